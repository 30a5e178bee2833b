"""Diagnoses of running programs, by figures that can be read from outside."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import LineCost, ThreadActivity, ThreadState
from profiler.analyse.sampling.places import second_of_main_thread
from profiler.core.errors import ProfilerError
from profiler.core.live import StepUse
from profiler.diagnose.findings import find
from profiler.diagnose.live import NOT_YET, RunningAnalysis, diagnose_live
from profiler.diagnose.model import LiveLimit
from profiler.report.live_text import live_findings, live_sentence
from profiler.run.model import RunInfo, Site, StepDefinition, StepKind
from tests.fakes.live import gpu, snapshot

SGD = StepDefinition(StepKind.OPTIMIZER, (("SGD",),))


def step_use(since: float = 0.05, step: float = 0.1, **parts: float) -> StepUse:
    return StepUse(SGD, 10.0, step, since, parts=parts)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"cpu": None}, LiveLimit.UNKNOWN),
        ({"gpus": (gpu(0.09),)}, LiveLimit.HOST),
        ({"gpus": (gpu(0.6),)}, LiveLimit.HOST_OR_WAITS),
        ({"gpus": (gpu(0.95),)}, LiveLimit.GPU),
        ({"cpu": 0.1, "gpus": (gpu(0.2),), "workers": (0.9, 0.2)}, LiveLimit.WORKERS),
        ({"cpu": 0.1, "gpus": (gpu(0.79),), "workers": (0.9,)}, LiveLimit.WAIT_FOR_GPU),
        ({"cpu": 0.1, "gpus": (gpu(0.2),), "state": "D"}, LiveLimit.DISK),
        ({"cpu": 0.1}, LiveLimit.WAIT),
        ({"cpu": 0.4, "delayed": 0.5}, LiveLimit.CORES),
        ({"cpu": 0.4, "delayed": 0.5, "cores": 0.4}, LiveLimit.CORES),
        ({}, LiveLimit.THREAD),
        ({"gpus": (gpu(None),)}, LiveLimit.THREAD),  # a GPU that does not tell is no evidence
        ({"cpu": 0.99, "cores": 1.2}, LiveLimit.CPU),
        ({"cpu": 0.1, "steps": step_use(data=0.78, tokenize=0.1)}, LiveLimit.RECORDED_PART),
        ({"steps": step_use(data=0.78)}, LiveLimit.THREAD),
        ({"cpu": 0.1, "steps": step_use(data=0.1)}, LiveLimit.WAIT),
    ],
)
def test_what_limits(given: dict[str, Any], limit: LiveLimit) -> None:
    assert diagnose_live(snapshot(**given)).limit is limit


def test_a_quota_is_told_from_other_programs() -> None:
    """The thread has no core for 80% of the time; quotas cost its group 0.6 s a second."""
    diagnosis = diagnose_live(snapshot(cpu=0.2, delayed=0.8, throttled=0.6))
    assert (diagnosis.limit, diagnosis.delayed, diagnosis.throttled) == (
        LiveLimit.CORES, pytest.approx(0.2), pytest.approx(0.6)
    )  # fmt: skip
    assert live_sentence(diagnosis) == (
        "the CPU quota is used up: the main thread runs 20% of the time and is throttled 60% and waits for a core 20%"
    )


def test_figures() -> None:
    diagnosis = diagnose_live(snapshot(cpu=0.1, workers=(0.9, 0.1), steps=step_use(data=0.78)))
    assert (diagnosis.part, diagnosis.part_share, diagnosis.part_window) == ("data", 0.78, 10.0)
    assert (diagnosis.busy_workers, diagnosis.workers, diagnosis.thread_cpu) == (1, 2, 0.1)


@pytest.mark.parametrize(("since", "step", "stalled"), [(30.0, 0.1, 30.0), (30.0, 20.0, None), (1.0, 0.001, None)])
def test_a_stalled_program(since: float, step: float, stalled: float | None) -> None:
    assert diagnose_live(snapshot(steps=step_use(since, step))).stalled == stalled


CHECKPOINTING = ThreadActivity(
    7, 7, "main process", "", ThreadState.CHECKPOINTING, 0.6, 0.5, 0.7, 200, Site("t.py", 9, "main"), "", 0.5, 0.1,
    ((ThreadState.CHECKPOINTING, 0.6), (ThreadState.TORCH, 0.37), (ThreadState.MAKING_DATA, 0.03)),
    (LineCost(Site("t.py", 9, "main"), "", 3.0, 0.6, 0.5, 0.7, 120, {ThreadState.CHECKPOINTING: 3.0}),),
)  # fmt: skip


def attached(*threads: ThreadActivity, **facts: Any) -> Analysis:
    info = RunInfo(2, "run", "", ("t.py",), facts={"device": "cpu", **facts})
    return Analysis(info, {}, {}, {}, threads=threads)


def test_rules_judge_a_second_of_the_main_thread_of_an_attached_program() -> None:
    second = second_of_main_thread(attached(CHECKPOINTING))
    assert second is not None
    findings = [finding for finding in find(second).findings if finding.has_cure]
    assert [(finding.rule.name, round(finding.share, 2)) for finding in findings] == [("synchronous-checkpoint", 0.6)]
    [line] = live_findings(replace(second, findings=findings), "of the time")
    assert line.startswith(
        "The training waits while checkpoints are written at t.py:9: 60% (53 to 67%) of the time, about 2.50× as fast "
        "without it. "
    )


def test_nothing_is_judged_where_a_device_may_be_busy_meanwhile_or_the_main_thread_was_not_sampled() -> None:
    assert second_of_main_thread(attached(CHECKPOINTING, device="cuda")) is None
    assert second_of_main_thread(attached(replace(CHECKPOINTING, tid=8))) is None


def test_without_a_finding_the_live_view_tells_so() -> None:
    assert live_findings(attached()) == ("none so far that is sure and large enough to name",)


def test_a_run_that_is_being_recorded_is_not_analysed_at_each_look() -> None:
    calls = list[int]()

    def analyse() -> Analysis:
        calls.append(1)
        return attached()

    running = RunningAnalysis(analyse)
    first = running.read(wait=True)
    assert isinstance(first, Analysis)
    assert running.read(wait=True) is first
    assert len(calls) == 1


def test_a_look_does_not_wait_for_the_analysis_beside_it() -> None:
    may_end = threading.Event()

    def analyse() -> Analysis:
        may_end.wait(30)
        return attached()

    running = RunningAnalysis(analyse)
    assert running.read() == NOT_YET
    may_end.set()
    assert isinstance(running.read(wait=True), Analysis)


@pytest.mark.parametrize(
    ("error", "told"),
    [(ProfilerError("no run"), "no run"), (ValueError("half a row"), "the analysis failed: ValueError: half a row")],
)
def test_a_run_that_cannot_be_read_is_told_until_it_is_read_again(error: Exception, told: str) -> None:
    def analyse() -> Analysis:
        raise error

    running = RunningAnalysis(analyse)
    assert [running.read(wait=wait) for wait in (True, False)] == [told, told]
