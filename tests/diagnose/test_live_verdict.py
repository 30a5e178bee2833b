"""The line about a program that runs: what limits it, by figures that can be read from outside."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.base.live import StepUse
from profiler.diagnose.live_verdict import live_verdict
from tests.fakes.live import gpu, snapshot


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


@pytest.mark.parametrize(("since", "step", "stands"), [(30.0, 0.1, True), (30.0, 20.0, False), (1.0, 0.001, False)])
def test_a_program_that_stands(since: float, step: float, stands: bool) -> None:
    steps = StepUse("steps of SGD", 5, 10.0, 1 / step, step, since)
    assert live_verdict(snapshot(steps=steps)).startswith("no step for 30.0 s; ") is stands
