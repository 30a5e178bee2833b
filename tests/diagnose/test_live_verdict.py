"""The line about a program that runs: what limits it, by figures that can be read from outside."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.core.live import StepUse
from profiler.diagnose.live import RecentMean
from profiler.run.model import StepDefinition, StepKind
from tests.fakes.live import gpu, snapshot
from tests.fakes.sentences import live_verdict


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cpu": None}, "not known yet: CPU needs two readings"),
        (
            {"gpus": (gpu(0.09),)},
            "the main thread is on a CPU 98% of the time; GPU 9.0%: the host limits",
        ),
        ({"gpus": (gpu(0.6),)}, "the host limits in part, or spins in waits"),
        ({"gpus": (gpu(0.95),)}, "GPU 95%: the GPU limits, as far as NVML sees (it sees no short gaps)"),
        ({"cpu": 0.1, "gpus": (gpu(0.2),), "workers": (0.9, 0.2)}, "1 of 2 workers are at work: they may limit"),
        (
            {"cpu": 0.1, "gpus": (gpu(0.79),), "workers": (0.9,)},
            "it waits mostly, perhaps for the GPU: what for cannot be seen from outside",
        ),
        ({"cpu": 0.1, "gpus": (gpu(0.2),), "state": "D"}, "it waits for a disk"),
        ({"cpu": 0.1}, "CPU 10% of the time: it waits mostly, for what cannot be seen from outside"),
        ({"cpu": 0.4, "delayed": 0.5}, "for another 50% it waits for a free core: too few cores limit"),
        ({}, "98% of the time, and 1.0 of 8 cores are busy: this thread limits"),
        ({"gpus": (gpu(None),)}, "this thread limits"),  # a GPU that does not tell is no evidence
    ],
)
def test_verdicts(given: dict[str, Any], said: str) -> None:
    assert live_verdict(snapshot(**given)).endswith(said), live_verdict(snapshot(**given))


def test_all_cores_busy() -> None:
    busy = snapshot(cpu=0.99, cores=1.2)
    assert "1.0 of 1.2 cores are busy: the CPU limits" in live_verdict(busy)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cpu": 0.1}, "on a CPU 10% of the time, 78% of the last 10.0 s in next(loader): that limits"),
        ({"cpu": 0.1, "workers": (0.9, 0.1)}, "in next(loader): that limits; 1 of 2 workers are at work"),
        ({}, "78% of the last 10.0 s in next(loader), and 1.0 of 8 cores are busy: this thread limits"),
    ],
)
def test_what_was_recorded_says_what_the_thread_waits_for(given: dict[str, Any], said: str) -> None:
    steps = StepUse(
        StepDefinition(StepKind.OPTIMIZER, (("SGD",),)), 5, 10.0, 10.0, 0.1, 0.05, parts={"tokenize": 0.1, "data": 0.78}
    )
    assert live_verdict(snapshot(**given, steps=steps)).endswith(said), live_verdict(snapshot(**given, steps=steps))
    little = StepUse(StepDefinition(StepKind.OPTIMIZER, (("SGD",),)), 5, 10.0, 10.0, 0.1, 0.05, parts={"data": 0.1})
    assert "next(loader)" not in live_verdict(snapshot(**given, steps=little))


def test_it_is_spoken_from_the_mean_of_some_seconds() -> None:
    recent = RecentMean()
    for cpu, workers in ((0.2, (0.9, 0.9)), (0.4, (0.1, 0.5))):
        found = recent.update(snapshot(cpu=cpu, workers=workers))
    assert found.cpu == pytest.approx(0.3)
    assert found.threads[0].cpu == pytest.approx(0.3)
    assert [worker.cpu for worker in found.workers] == [pytest.approx(0.5), pytest.approx(0.7)]
    for _ in range(6):
        found = recent.update(snapshot(cpu=0.8))
    assert found.cpu == pytest.approx(0.8), "what is long ago counts no more"
    assert recent.update(snapshot(cpu=None)).cpu is None


@pytest.mark.parametrize(("since", "step", "stands"), [(30.0, 0.1, True), (30.0, 20.0, False), (1.0, 0.001, False)])
def test_a_program_that_stands(since: float, step: float, stands: bool) -> None:
    steps = StepUse(StepDefinition(StepKind.OPTIMIZER, (("SGD",),)), 5, 10.0, 1 / step, step, since)
    assert live_verdict(snapshot(steps=steps)).startswith("no step for 30.0 s; ") is stands
