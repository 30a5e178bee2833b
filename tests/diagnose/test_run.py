"""Diagnoses of runs: what limits a device with a queue, and what a step is spent on without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.finding import Finding
from profiler.analyse.model.host import LineCost, Period, Phase, ThreadActivity, ThreadState, UnmeasuredPeriod
from profiler.analyse.model.input import InputPart
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice
from profiler.diagnose.findings import find
from profiler.diagnose.model import RunDiagnosis, RunVerdict
from profiler.diagnose.rule import StepCosts
from profiler.diagnose.rules.python import thread_holds_gil
from profiler.diagnose.run import diagnose_run
from profiler.run.model import RunInfo, Site, StepDefinition, StepKind
from profiler.run.tables import ActivityKind, CallKind
from tests.diagnose.runs import fast, idle_in_region, slow
from tests.recorded.builders import MS, RunBuilder, S

LOADER, AFTER = Site("/x/train.py", 41, "main"), Site("/x/train.py", 60, "main")


def judged(analysis: Analysis) -> Analysis:
    """The analysis with all of its time as it is, since there are no rules."""
    return replace(analysis, findings=find(analysis, ()).findings)


def diagnosed(analysis: Analysis) -> RunDiagnosis:
    return diagnose_run(judged(analysis))


def told(analysis: Analysis) -> list[Finding]:
    return [finding for finding in judged(analysis).findings if finding.is_told]


def names(analysis: Analysis) -> list[str]:
    return [finding.rule.name for finding in told(analysis)]


def places(analysis: Analysis) -> list[tuple[str, float, str]]:
    return [
        (each.rule.name, round(each.share, 2), f"{each.sites[0].file}:{each.sites[0].line}" if each.sites else "")
        for each in told(analysis)
    ]


def test_an_idle_device_is_told_with_the_lines_of_the_host() -> None:
    diagnosis = diagnosed(slow())
    assert (diagnosis.verdict, diagnosis.device, round(diagnosis.share, 2)) == (
        RunVerdict.DEVICE_IDLE,
        "host device (CPU)",
        0.9,
    )
    assert places(slow()) == [("idle-sync", 0.6, "src/train.py:88"), ("idle-input", 0.3, "")]
    assert told(slow())[0].values["rows"][0].state is HostState.AFTER_SYNC


def test_several_lines_of_one_category_are_added_up() -> None:
    builder = RunBuilder(device="cuda", device_label="NVIDIA H200")
    builder.step(0, 1000)
    for begin, site in ((0, "a.py:1"), (400, "a.py:2")):
        builder.activity(ActivityKind.KERNEL, begin, begin + 20)
        builder.call(CallKind.SYNC, begin, begin + 30, blocked=30, site=site)
        builder.call(CallKind.LAUNCH, begin + 395, begin + 400)
    analysis = analyse(builder.build())
    diagnosis, first = diagnosed(analysis), told(analysis)[0]
    assert (diagnosis.device, round(diagnosis.share, 2)) == ("NVIDIA H200", 0.96)
    assert (first.rule.name, round(first.share, 2), len(first.places)) == ("idle-sync", 0.75, 2)


def test_a_busy_device() -> None:
    diagnosis = diagnosed(fast())
    assert (diagnosis.verdict, round(diagnosis.share, 2), names(fast())) == (RunVerdict.DEVICE_BUSY, 0.9, ["idle-sync"])
    assert names(fast(level="light")) == [], "the light level records no blame"


def test_where_the_cause_was_not_recorded_it_is_not_guessed() -> None:
    diagnosis = diagnosed(slow(level="light"))
    assert (diagnosis.verdict, diagnosis.reason) == (RunVerdict.DEVICE_IDLE_UNEXPLAINED, Notice("level-light"))


@pytest.mark.parametrize(
    ("level", "region", "facts", "expected"),
    [
        ("standard", "data", {"device": "cpu"}, (RunVerdict.CAUSE, "input")),
        ("standard", "sync", {"device": "cpu", "engine": "inline"}, (RunVerdict.CAUSE, "sync")),
        ("standard", "workers", {"device": "cpu", "engine": "pool"}, (RunVerdict.CAUSE, "waits-for-workers")),
        ("standard", "forward", {"device": "cuda"}, (RunVerdict.CAUSE, "python-or-device-wait")),
        ("light", "", {"device": "cpu"}, (RunVerdict.STEP_TIME_ONLY, "")),
        ("light", "", {}, (RunVerdict.UNKNOWN, "")),
    ],
)
def test_without_a_queue_the_host_is_described(
    level: str, region: str, facts: dict[str, Any], expected: tuple[RunVerdict, str]
) -> None:
    builder = RunBuilder(level=level, **facts)
    builder.step(0, 100 * MS)
    if region:
        builder.region(region, 0, 90 * MS)
    if facts.get("device") == "cuda":
        builder.sample("gpu.util", 100 * MS, 0.6, pid=0)
    analysis = analyse(builder.build())
    assert (diagnosed(analysis).verdict, *names(analysis)[:1]) == tuple(filter(None, expected))
    assert all(round(each.share, 2) == 0.9 for each in told(analysis)[:1])


def test_nothing_measured() -> None:
    diagnosis = diagnosed(analyse(RunBuilder().build()))
    assert (diagnosis.verdict, diagnosis.reason) == (RunVerdict.NOTHING_MEASURED, Notice("no-step"))


def test_recording_itself_is_never_a_cause() -> None:
    assert names(idle_in_region(100 * MS, 50 * MS, region="recording")) == []
    builder = RunBuilder(device="host")
    builder.step(0, 100)
    builder.activity(ActivityKind.KERNEL, 0, 20)
    builder.region("recording", 20, 80)
    builder.region("tokenize", 80, 100)
    assert places(analyse(builder.build())) == [("idle-input", 0.2, "")]


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
        Phase("after the optimizer", after, after, after / 2, 1, AFTER, "log_metrics"),
    )
    lines = tuple(
        LineCost(Site(f"/x/{name}.py", 7, "f"), "", share, share, share, share, samples, {name: share})
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


CAUSE, COMPUTING = RunVerdict.CAUSE, RunVerdict.COMPUTING
UNKNOWN, BUSY = RunVerdict.UNKNOWN_STEP, RunVerdict.DEVICE_BUSY_SAMPLED


@pytest.mark.parametrize(
    ("given", "verdict", "named", "unknown"),
    [
        (analysis({"input": 0.61, "compute": 0.39}), CAUSE, "input compute", None),
        (
            analysis({"python": 0.31, "input": 0.3, "log": 0.2, "gil": 0.1, "sync": 0.09}),
            CAUSE,
            "python input log gil sync",
            None,
        ),
        # computing is what a training is for: it comes after all else from a tenth on
        (analysis({"compute": 0.84, "python": 0.13, "input": 0.03}), CAUSE, "python compute", None),
        (analysis({"compute": 0.98, "python": 0.02}), COMPUTING, "compute", None),
        (analysis({"compute": 0.94, "python": 0.06}), COMPUTING, "compute python", None),
        (analysis({"checkpoint": 0.7, "framework": 0.3}), CAUSE, "checkpoint framework", None),
        # time without a core says nothing about the program, and comes last
        (analysis({"core": 0.9, "input": 0.06, "compute": 0.04}), CAUSE, "input compute core", None),
        (analysis({"core": 0.77, "python": 0.05, "compute": 0.18}), CAUSE, "python compute core", None),
        # what is unknown comes after what is known to be large
        (analysis({"input": 0.08, "unattributed": 0.92}, samples=10), UNKNOWN, "unattributed input", (0.92, 20)),
        (analysis({"input": 0.6, "unattributed": 0.4}, samples=10), CAUSE, "input unattributed", (0.4, 20)),
        (
            analysis({"input": 0.06, "compute": 0.87, "unattributed": 0.07}, samples=10),
            COMPUTING,
            "compute input",
            None,
        ),
        (analysis({"unattributed": 1.0}, samples=10), UNKNOWN, "unattributed", (1.0, 10)),
        # where NVML saw the device busy, what the host waits in or launches late is no cause
        (analysis({"sync": 0.75, "framework": 0.25}, nvml=0.99), BUSY, "", None),
        (analysis({"sync": 0.7, "python": 0.1, "log": 0.2}, nvml=0.85), BUSY, "log", None),
        (analysis({"sync": 0.75, "framework": 0.25}, nvml=0.4), CAUSE, "sync framework", None),
    ],
)
def test_all_time_of_a_step_is_told_as_it_is(
    given: Analysis, verdict: RunVerdict, named: str, unknown: tuple[float, int] | None
) -> None:
    diagnosis = diagnosed(given)
    assert diagnosis.verdict is verdict
    assert names(given) == named.split()
    assert (diagnosis.unknown and (round(diagnosis.unknown.share, 2), diagnosis.unknown.samples)) == unknown


@pytest.mark.parametrize(
    ("low", "named"),
    [
        (0.0, ["compute", "core"]),
        (0.03, ["compute", "python", "core"]),  # it may be less than a tenth of the program's own time
        (0.045, ["python", "compute", "core"]),
    ],
)
def test_time_that_may_be_chance_is_not_told(low: float, named: list[str]) -> None:
    given = analysis({"core": 0.6, "compute": 0.35, "python": 0.05})
    breakdown = {**given.breakdown, "python": Measure("python", 0.05, "s", low, 0.11)}
    assert names(replace(given, breakdown=breakdown, lines=())) == named


@pytest.mark.parametrize(("share", "named"), [(0.9, 1), (0.5, 0)])
def test_of_a_trace_with_few_launches_only_a_call_that_blocks_nearly_all_of_it_is_a_cause(
    share: float, named: int
) -> None:
    given = analysis({"copy": share, "unattributed": 1 - share})
    rows = (
        IdleBlame(HostState.BLOCKED_IN_CALL, "d2h", SiteOrigin.ITSELF, "copy", None, share, share, 1),
        IdleBlame(HostState.BETWEEN_CALLS, "", SiteOrigin.ITSELF, "unattributed", None, 0.05, 0.05, 1),
    )
    measures = {**given.measures, "launches_per_step": Measure("launches_per_step", 4.0, "1", n=1)}
    step = StepDefinition(StepKind.WHOLE_TRACE)
    given = replace(given, idle=rows, step=step, measures=measures)
    assert names(given) == ["idle-copy"] * named
    assert (diagnosed(given).reason is None) == bool(named)


def test_the_thread_that_holds_the_gil_is_named() -> None:
    def thread(tid: int, gil: float | None, at_site: float) -> ThreadActivity:
        line = LineCost(AFTER, "", 1.0, at_site, 0.0, 1.0, 50, {ThreadState.PYTHON: 1.0})
        return ThreadActivity(
            7, tid, "main process", "", ThreadState.PYTHON, 0.9, 0.8, 1.0, 60, AFTER, "", None, gil, lines=(line,)
        )

    given = analysis({"gil": 0.6, "compute": 0.4})
    for gil, at_site, expected in ((0.7, 0.8, (0.7, AFTER)), (0.7, 0.3, (0.7, None)), (None, 0.8, (None, None))):
        threads = (thread(7, 0.9, 0.9), thread(8, gil, at_site))
        claim = thread_holds_gil.judge(StepCosts(replace(given, threads=threads)))
        assert claim is not None
        assert (claim.values.get("held"), claim.values.get("holder")) == expected


def test_it_is_known_whether_stacks_were_sampled_outside_of_the_steps() -> None:
    given = analysis({"unattributed": 1.0}, samples=0)
    period = UnmeasuredPeriod(Period.STARTUP, 3.0, given.lines)
    for periods in ((), (period,), (replace(period, lines=()),)):
        unknown = diagnose_run(replace(given, startup_teardown=periods)).unknown
        assert unknown is not None
        assert unknown.has_samples_outside == (periods == (period,))


def test_few_samples_name_the_line_at_which_they_show_most_of_what_is_not_recorded() -> None:
    builder = RunBuilder(device="cpu", package="/v/profiler")
    builder.boundary(0)
    builder.step(0, 10 * S)
    builder.region("backward", 0, 4 * S)
    backward = "train.py:7:main", "/v/site-packages/torch/autograd/__init__.py:1:backward"
    for begin, end, frames in (
        (0, 4, backward),
        (4, 5, ("train.py:8:main",)),
        (5, 7, ("train.py:9:main",)),
        (7, 10, ("train.py:9:main",)),
    ):
        builder.stack(frames, begin * S, end * S)
    analysis = analyse(builder.build())
    unknown = diagnose_run(analysis).unknown
    assert unknown is not None
    assert round(unknown.share, 3) == 0.6
    assert unknown.site == Site("train.py", 9, "main")
    assert unknown.site_share == pytest.approx(0.5)
    assert {line.site.line: line.unrecorded for line in analysis.lines} == {
        7: 0.0, 8: pytest.approx(1), 9: pytest.approx(5)
    }  # fmt: skip


def test_a_wait_for_data_names_what_the_loader_does() -> None:
    loader = (
        InputPart("waiting for the workers", "main process", 0.6, 0.6),
        InputPart("dataset", "worker", 0.5, 0.9, Site("/x/data.py", 12, "Data.__getitem__")),
    )
    assert told(analysis({"input": 0.7, "compute": 0.3}, loader=loader))[0].values["loader"] is loader[1]


def test_time_without_a_core_is_never_the_first_cause() -> None:
    """The causes of the program keep their order on a loaded machine, and count by their share of the other time."""
    builder = RunBuilder(device="host")
    builder.step(0, 1000)
    builder.activity(ActivityKind.KERNEL, 0, 20)
    builder.call(CallKind.SYNC, 0, 900, blocked=900, site="a.py:1")
    builder.call(CallKind.LAUNCH, 910, 980, site="a.py:2")
    builder.activity(ActivityKind.KERNEL, 980, 1000)
    for name, ns in (("waits_stalled_ns", 850), ("waits_delayed_ns", 0)):
        builder.counter(name, ns, step=0)
    assert places(analyse(builder.build())) == [
        ("idle-launch", 0.07, "a.py:2"), ("idle-sync", 0.06, "a.py:1"), ("idle-core", 0.83, ""),
    ]  # fmt: skip
