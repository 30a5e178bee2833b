"""Diagnoses of runs: what limits a device with a queue, and what a step is spent on without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Analysis, HostState, InputPart, LineCost, Measure, Period, Phase, UnmeasuredPeriod
from profiler.core.notice import Notice
from profiler.diagnose.model import RunDiagnosis, RunVerdict
from profiler.diagnose.run import diagnose_run
from profiler.run.model import RunInfo, Site
from profiler.run.tables import ActivityKind, CallKind
from tests.diagnose.runs import fast, idle_in_region, slow
from tests.recorded.builders import MS, RunBuilder

LOADER, AFTER = Site("/x/train.py", 41, "main"), Site("/x/train.py", 60, "main")


def diagnosed(builder: RunBuilder) -> RunDiagnosis:
    return diagnose_run(analyse(builder.build()))


def causes(diagnosis: RunDiagnosis) -> list[tuple[str, float, str]]:
    return [
        (cause.category, round(cause.share, 2), f"{cause.site.file}:{cause.site.line}" if cause.site else "")
        for cause in diagnosis.causes
    ]


def test_an_idle_device_has_causes_with_their_lines() -> None:
    diagnosis = diagnose_run(slow())
    assert (diagnosis.verdict, diagnosis.device, round(diagnosis.share, 2)) == (
        RunVerdict.DEVICE_IDLE,
        "host device (CPU)",
        0.9,
    )
    assert causes(diagnosis) == [("sync", 0.6, "src/train.py:88"), ("input", 0.3, "")]
    assert diagnosis.causes[0].blame.state is HostState.AFTER_SYNC


def test_several_lines_of_one_category_are_added_up() -> None:
    builder = RunBuilder(device="cuda", device_label="NVIDIA H200")
    builder.step(0, 1000)
    for begin, site in ((0, "a.py:1"), (400, "a.py:2")):
        builder.activity(ActivityKind.KERNEL, begin, begin + 20)
        builder.call(CallKind.SYNC, begin, begin + 30, blocked=30, site=site)
        builder.call(CallKind.LAUNCH, begin + 395, begin + 400)
    diagnosis = diagnosed(builder)
    assert (diagnosis.device, round(diagnosis.share, 2)) == ("NVIDIA H200", 0.96)
    first = diagnosis.causes[0]
    assert (first.category, round(first.share, 2), round(first.blame.share_of_wall, 3)) == ("sync", 0.75, 0.365)


def test_a_busy_device() -> None:
    diagnosis = diagnose_run(fast())
    assert (diagnosis.verdict, round(diagnosis.share, 2), len(diagnosis.causes)) == (RunVerdict.DEVICE_BUSY, 0.9, 1)
    assert diagnose_run(fast(level="light")).causes == (), "the light level records no blame"


def test_where_the_cause_was_not_recorded_it_is_not_guessed() -> None:
    diagnosis = diagnose_run(slow(level="light"))
    assert (diagnosis.verdict, diagnosis.reason) == (RunVerdict.DEVICE_IDLE_UNEXPLAINED, Notice("level-light"))


@pytest.mark.parametrize(
    ("level", "region", "facts", "expected"),
    [
        ("standard", "data", {"device": "cpu"}, (RunVerdict.LARGEST_CATEGORY, "input", 0.9)),
        ("standard", "sync", {"device": "cpu", "engine": "inline"}, (RunVerdict.LARGEST_CATEGORY, "sync", 0.9)),
        ("standard", "workers", {"device": "cpu", "engine": "pool"}, (RunVerdict.WAITING_FOR_WORKERS, "", 0.9)),
        ("standard", "forward", {"device": "cuda"}, (RunVerdict.LARGEST_CATEGORY, "python-or-wait", 0.9)),
        ("light", "", {"device": "cpu"}, (RunVerdict.STEP_TIME_ONLY, "", 0.0)),
        ("light", "", {}, (RunVerdict.UNKNOWN, "", 0.0)),
    ],
)
def test_without_a_queue_the_host_is_described(
    level: str, region: str, facts: dict[str, Any], expected: tuple[RunVerdict, str, float]
) -> None:
    builder = RunBuilder(level=level, **facts)
    builder.step(0, 100 * MS)
    if region:
        builder.region(region, 0, 90 * MS)
    if facts.get("device") == "cuda":
        builder.sample("gpu.util", 100 * MS, 0.6, pid=0)
    diagnosis = diagnosed(builder)
    assert (diagnosis.verdict, diagnosis.category, round(diagnosis.share, 2)) == expected


def test_nothing_measured() -> None:
    diagnosis = diagnosed(RunBuilder())
    assert (diagnosis.verdict, diagnosis.reason) == (RunVerdict.NOTHING_MEASURED, Notice("no-step"))


def test_recording_itself_is_never_a_cause() -> None:
    assert diagnose_run(idle_in_region(100 * MS, 50 * MS, region="recording")).causes == ()
    builder = RunBuilder(device="host")
    builder.step(0, 100)
    builder.activity(ActivityKind.KERNEL, 0, 20)
    builder.region("recording", 20, 80)
    builder.region("tokenize", 80, 100)
    assert causes(diagnosed(builder)) == [("input", 0.2, "")]


def analysis(
    parts: Mapping[str, float],
    *,
    after: float = 0.0,
    phases: bool = True,
    loader: tuple[InputPart, ...] = (),
    samples: int = 90,
    nvml: float | None = None,
) -> Analysis:
    """Shares of a step of 1 s; `after` of it after the optimizer.

    :param samples: that each line has.
    :param nvml: the share of time in which NVML saw a GPU busy.
    """
    known = (
        Phase("data", parts.get("input", 0.0), parts.get("input", 0.0), 0, 1, LOADER),
        Phase("after the optimizer", after, after, 0, 1, AFTER, "log_metrics"),
    )
    lines = tuple(
        LineCost(Site(f"/x/{name}.py", 7, "f"), "", share, share, 0, 1, samples, {name: share})
        for name, share in parts.items()
    )
    facts = {"device": "cuda" if nvml else "cpu", "device_label": "H200"}
    busy = Measure("device_utilization", nvml, "1", reason=Notice("no-queue"), source="nvml" * bool(nvml))
    return Analysis(
        RunInfo(2, "r", "", ("t.py",), level="standard", facts=facts),
        measures={"step_time": Measure("step_time", 1.0, "s"), "device_utilization": busy},
        breakdown={name: Measure(name, share, "s") for name, share in parts.items()},
        device_breakdown={},
        lines=lines,
        phases=known if phases else (),
        input=loader,
    )


CAUSE, COMPUTING, BOTH = RunVerdict.CAUSE, RunVerdict.COMPUTING, RunVerdict.COMPUTING_AND_CAUSE
UNKNOWN, BUSY = RunVerdict.UNKNOWN_STEP, RunVerdict.DEVICE_BUSY_SAMPLED


@pytest.mark.parametrize(
    ("given", "verdict", "cause", "unknown"),
    [
        (analysis({"input": 0.61, "compute": 0.39}), CAUSE, ("input", 0.61), None),
        (analysis({"python": 0.4, "compute": 0.6}, after=0.38), CAUSE, ("after the optimizer", 0.38), None),
        (analysis({"compute": 0.84, "python": 0.13, "input": 0.03}), COMPUTING, ("python", 0.13), None),
        (analysis({"compute": 0.98, "python": 0.02}), COMPUTING, None, None),
        (analysis({"compute": 0.9, "python": 0.1}, after=0.72), CAUSE, ("after the optimizer", 0.72), None),
        (analysis({"compute": 0.76, "framework": 0.18, "python": 0.06}), BOTH, ("framework", 0.18), None),
        (analysis({"python": 0.9, "compute": 0.1}, after=0.2), CAUSE, ("python", 0.9), None),
        (analysis({"checkpoint": 0.7, "framework": 0.3}), CAUSE, ("checkpoint", 0.7), None),
        # what is unknown comes before any cause
        (analysis({"input": 0.08, "unattributed": 0.92}, samples=10), CAUSE, ("input", 0.08), (0.92, 20)),
        (
            analysis({"input": 0.06, "compute": 0.87, "unattributed": 0.07}, samples=10),
            COMPUTING,
            ("input", 0.06),
            None,
        ),
        (analysis({"unattributed": 1.0}, samples=10), UNKNOWN, None, (1.0, 10)),
        (analysis({"unattributed": 1.0}, samples=10, phases=False), UNKNOWN, None, (1.0, 10)),
        (analysis({"unattributed": 0.5, "compute": 0.5}, samples=10, after=0.3), UNKNOWN, None, (0.5, 20)),
        (analysis({"python": 0.6, "input": 0.4}, phases=False), RunVerdict.LARGEST_CATEGORY, None, None),
        # where NVML saw the device busy, what the host waits in or launches late is no cause
        (analysis({"sync": 0.75, "framework": 0.25}, nvml=0.99), BUSY, None, None),
        (analysis({"framework": 1.0}, nvml=0.99), BUSY, None, None),
        (analysis({"sync": 0.7, "python": 0.1, "log": 0.2}, after=0.5, nvml=0.85), BUSY, ("log", 0.2), None),
        (analysis({"sync": 0.75, "framework": 0.25}, nvml=0.4), CAUSE, ("sync", 0.75), None),
    ],
)
def test_the_largest_part_of_a_step_that_can_be_removed(
    given: Analysis, verdict: RunVerdict, cause: tuple[str, float] | None, unknown: tuple[float, int] | None
) -> None:
    diagnosis = diagnose_run(given)
    assert diagnosis.verdict is verdict
    lines = {"input": "/x/train.py:41", "after the optimizer": "/x/train.py:60"}
    assert causes(diagnosis) == ([(*cause, lines.get(cause[0], f"/x/{cause[0]}.py:7"))] if cause else [])
    assert (diagnosis.unknown and (round(diagnosis.unknown.share, 2), diagnosis.unknown.samples)) == unknown


def test_it_is_known_whether_stacks_were_sampled_outside_of_the_steps() -> None:
    given = analysis({"unattributed": 1.0}, samples=0)
    period = UnmeasuredPeriod(Period.STARTUP, 3.0, given.lines)
    for periods in ((), (period,), (replace(period, lines=()),)):
        unknown = diagnose_run(replace(given, startup_teardown=periods)).unknown
        assert unknown is not None
        assert unknown.has_samples_outside == (periods == (period,))


def test_a_wait_for_data_names_what_the_loader_does() -> None:
    loader = (
        InputPart("waiting for the workers", "main process", 0.6, 0.6),
        InputPart("dataset", "worker", 0.5, 0.9, Site("/x/data.py", 12, "Data.__getitem__")),
    )
    assert diagnose_run(analysis({"input": 0.7, "compute": 0.3}, loader=loader)).causes[0].loader is loader[1]
