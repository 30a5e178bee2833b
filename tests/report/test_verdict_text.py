"""The sentences of verdicts: one of each kind, made of data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Comparison, HostState, IdleBlame, InputPart, Ratio, SiteOrigin, SpikeLine, Spikes
from profiler.core.notice import Notice
from profiler.diagnose.model import (
    Cause,
    ChangeKind,
    ComparisonDiagnosis,
    CounterChange,
    LiveDiagnosis,
    LiveLimit,
    PhaseChange,
    RunDiagnosis,
    RunVerdict,
    SideDiagnosis,
    TimeChange,
    UnknownShare,
    WorkerMove,
)
from profiler.report.verdict_text import (
    comparison_statement,
    live_sentence,
    run_statement,
    spikes_sentence,
    with_comparison_verdict,
)
from profiler.run.model import Site
from tests.report import samples

LINE, LOG = Site("src/train.py", 88, "loop"), Site("log.py", 7, "log_metrics")
SYNC = IdleBlame(HostState.AFTER_SYNC, "sync", SiteOrigin.ITSELF, "sync", LINE, 0.06, 0.6, 1.0)
DATA = InputPart("dataset", "worker", 0.5, 0.9, Site("data.py", 12, "Data.__getitem__"))


@pytest.mark.parametrize(
    ("diagnosis", "text"),
    [
        (
            RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("sync", 0.6, LINE, blame=SYNC),)),
            "The H200 was idle 90% of the time: 60 points of it after the sync at train.py:88.",
        ),
        (
            RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("sync", 0.75, LINE, blame=SYNC),)),
            (
                "The H200 was idle 90% of the time: 75 points of it in and after syncs (most: 60 points after the "
                "sync at train.py:88)."
            ),
        ),
        (
            RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.5),
            "The H200 was idle 50% of the time: no cause was found in the program.",
        ),
        (
            RunDiagnosis(RunVerdict.DEVICE_IDLE_UNEXPLAINED, "H200", 0.9, reason=Notice("level-light")),
            (
                "The H200 was idle 90% of the time; why was not measured: recorded at level light: record again with "
                "--level standard."
            ),
        ),
        (
            RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, "H200", 0.85, (Cause("log", 0.2, LOG),)),
            (
                "The H200 was busy 85% of the time, according to NVML (which does not see short gaps): the host "
                "is not what limits this run; in addition, 20% of each step goes to logging at log.py:7 (log_metrics)."
            ),
        ),
        (
            RunDiagnosis(RunVerdict.COMPUTING, share=0.84, causes=(Cause("python", 0.13, LOG),)),
            (
                "Computing takes 84% of the step: neither data nor Python is what limits this run; 13% of it is "
                "spent in Python code, or waiting in it at log.py:7 (log_metrics)."
            ),
        ),
        (
            RunDiagnosis(RunVerdict.CAUSE, share=0.39, causes=(Cause("input", 0.61, LINE, loader=DATA),)),
            (
                "61% of each step is waiting for data (next(loader), train.py:88; the loader's time goes mostly to the "
                "dataset at data.py:12, in the worker); computing takes 39%."
            ),
        ),
        (
            RunDiagnosis(RunVerdict.CAUSE, causes=(Cause("after the optimizer", 0.38, LINE, "log_metrics"),)),
            "38% of each step runs after optimizer.step() at train.py:88 (log_metrics).",
        ),
        (
            RunDiagnosis(RunVerdict.UNKNOWN_STEP, unknown=UnknownShare(0.92, 0)),
            "What ran in 92% of each step is not known: there are no stack samples.",
        ),
        (
            RunDiagnosis(RunVerdict.LARGEST_CATEGORY, share=0.6, category="python-or-wait", seconds=0.06),
            "The largest part of a step is Python or a wait inside CUDA: 60.0 ms, 60% of it (device idle time: ).",
        ),
    ],
)
def test_runs(diagnosis: RunDiagnosis, text: str) -> None:
    assert run_statement(diagnosis).text == text


SPEED = Ratio("tokens_per_s", 2.0, 1.9, 2.1, 3, different=True)
IDLE = TimeChange(ChangeKind.IDLE, "sync", faster=True, is_cause=True, before=0.6, after=0.1, as_shares=True, site=LINE)
PHASES = TimeChange(
    ChangeKind.SEVERAL_PHASES,
    "",
    faster=False,
    is_cause=True,
    phases=(PhaseChange("data", 0.004, LINE), PhaseChange("forward", 0.003)),
    against=(PhaseChange("backward", -0.002),),
    step_seconds=0.005,
)
PHASE = TimeChange(
    ChangeKind.PHASE, "forward", faster=True, is_cause=False, before=0.02, after=0.002, site=LINE, site_seconds=0.018
)
SIDE = SideDiagnosis("base", "side", SPEED, "tokens/s", ("CPU",))
HEAD = "side runs 2.00× (95% 1.90 to 2.10) the tokens/s of base on the CPU"


@pytest.mark.parametrize(
    ("side", "text"),
    [
        (SIDE, f"{HEAD}."),
        (
            replace(SIDE, change=IDLE, explained=True, counters=(CounterChange("syncs", 50, 1),)),
            (
                f"{HEAD}, because idle in and after syncs fell from 60% to 10% of a step (train.py:88), with "
                "syncs from 50 to 1 a step."
            ),
        ),
        (
            replace(SIDE, change=replace(IDLE, is_cause=False), slowed=("base", 1.67)),
            (
                f"{HEAD}, with idle in and after syncs from 60% to 10% of a step (train.py:88) (the breakdown "
                "pass of base took 1.67× the time of its light runs)."
            ),
        ),
        (
            replace(SIDE, change=PHASES),
            (
                f"{HEAD}, and several parts grew: waiting for data +4.00 ms (most at train.py:88), forward +3.00 ms; "
                "in the other direction backward -2.00 ms (of +5.00 ms a step)."
            ),
        ),
        (
            replace(SIDE, change=PHASE),
            f"{HEAD}, with the time of forward from 20.0 ms (most at train.py:88, 18.0 ms) to 2.00 ms a step.",
        ),
        (
            replace(SIDE, busy=(0.1, 0.9), counters=(CounterChange("syncs", 50, 1), CounterChange("h2d", 9, 2))),
            f"{HEAD}, with device utilization from 10% to 90%, syncs from 50 to 1 and H2D copies from 9 to 2 a step.",
        ),
        (replace(SIDE, moved=WorkerMove("pool", 2)), f"{HEAD}, with its work done by 2 workers (engine pool)."),
        (
            replace(SIDE, speed=replace(SPEED, different=False)),
            "no difference seen between side and base in tokens/s on the CPU: 2.00× (95% 1.90 to 2.10).",
        ),
        (
            replace(SIDE, speed=None, reason=Notice("no-pairs")),
            "the speed of side relative to base is not known: no pair of runs.",
        ),
    ],
)
def test_comparisons(side: SideDiagnosis, text: str) -> None:
    assert comparison_statement(ComparisonDiagnosis(True, False, (), (side,))).text == text


@pytest.mark.parametrize("label", ["exp: 1", "a. b", "c, with d"])
def test_a_label_does_not_cut_the_headline(label: str) -> None:
    side = replace(SIDE, side=label, busy=(0.1, 0.9))
    comparison: Comparison = samples.comparison()
    made = with_comparison_verdict(comparison, ComparisonDiagnosis(True, False, (), (side,), (("base", 0.5),)))
    assert made.headline == f"{HEAD.replace('side', label, 1)},"
    assert made.verdict == (
        f"{made.headline} with device utilization from 10% to 90%. "
        "These figures do not include the time before the first step (500 ms in base)."
    )


EVALUATE = SpikeLine(Site("a/train.py", 36, "evaluate"), 0.97)
SPIKES = Spikes(6, 60, 10, 25.6, 0.72, (EVALUATE,), 150, enough=True)
TWO = (replace(EVALUATE, share=0.6), SpikeLine(Site("train.py", 40, "<module>"), 0.3))


@pytest.mark.parametrize(
    ("spikes", "often", "where"),
    [
        (SPIKES, "Every 10th step takes about 26 times", "is at train.py:36, in evaluate()"),
        (
            replace(SPIKES, every=0, times=3.14, lines=()),
            "6 of 60 steps take about 3.1 times",
            "is at no line in particular: the machine was slow, or these steps had more of the same work",
        ),
        (
            replace(SPIKES, every=0, count=1, lines=TWO),
            "1 of 60 steps takes about 26 times",
            "is mostly at train.py:36, in evaluate() (60%) and at train.py:40 (30%)",
        ),
        (
            replace(SPIKES, every=3, lines=(), enough=False, samples=0),
            "Every 3rd step takes about 26 times",
            "has no stack samples: too few to say at which lines it is",
        ),
    ],
)
def test_long_steps(spikes: Spikes, often: str, where: str) -> None:
    assert spikes_sentence(spikes) == f"{often} as long; the extra time (72% of all) {where}."


@pytest.mark.parametrize("limit", list(LiveLimit))
def test_every_limit_of_a_running_program_has_its_sentence(limit: LiveLimit) -> None:
    sentence = live_sentence(LiveDiagnosis(limit, 30.0, "main", 0.98, "data", 0.78, 10.0, None, 1.0, 8.0, 0.3, 1, 2))
    if limit is not LiveLimit.UNKNOWN:
        assert sentence.startswith(
            "no step for 30.0 s; the main thread is on a CPU 98% of the time, 78% of the last 10.0 s in next(loader)"
        )
