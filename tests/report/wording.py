"""Diagnoses of every kind: the approval tests hold the sentence that each becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from profiler.analyse.model.comparison import Ratio
from profiler.analyse.model.device import DevicePart, HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, Place, RuleText
from profiler.analyse.model.host import Driver, SpikeLine, Spikes
from profiler.analyse.model.input import InputPart
from profiler.core.errors import Notice
from profiler.diagnose.model import (
    ComparisonDiagnosis,
    CounterChange,
    LiveDiagnosis,
    LiveLimit,
    PhaseChange,
    RunDiagnosis,
    RunVerdict,
    SideDiagnosis,
    TimeChange,
    TimeChangeKind,
    UnknownShare,
    WorkerMove,
)
from profiler.report.comparison_text import comparison_statement
from profiler.report.live_text import live_sentence
from profiler.report.verdict_text import run_statement, spikes_sentence
from profiler.run.model import Site

LINE, LOG = Site("src/train.py", 88, "loop"), Site("log.py", 7, "log_metrics")
IN_LIBRARY = Driver(LINE, 0.97, (("rl.Model.learn", 0.97), ("rl.Model.collect_rollouts", 0.85)))
CELL = Site("/tmp/ipykernel_12/3456.py", 4, "<module>")
SYNC = IdleBlame(HostState.AFTER_SYNC, "sync", SiteOrigin.ITSELF, "sync", LINE, 0.06, 0.6, 1.0)
RESIZE = Site("transformers/image_transforms.py", 390, "resize")
FUNCTION = IdleBlame(HostState.IN_PYTHON, "", SiteOrigin.ITSELF, "input", RESIZE, 0.03, 0.3, 1.0)
OPERATOR = IdleBlame(HostState.IN_REGION, "operator aten::div", SiteOrigin.ITSELF, "input", None, 0.02, 0.2, 1.0)
DATA = InputPart("dataset", "worker", 0.5, 0.9, Site("data.py", 12, "Data.__getitem__"))
EVALUATE = SpikeLine(Site("a/train.py", 36, "evaluate"), 0.97)
SPIKES = Spikes(6, 60, 10, 25.6, 0.72, (EVALUATE,), 150, enough=True)
MANY_SPIKES = replace(SPIKES, every=0, times=3.14, lines=())
TWO_LINES = (replace(EVALUATE, share=0.6), SpikeLine(Site("train.py", 40, "<module>"), 0.3))
UNKNOWN = UnknownShare(0.92, 7)


def rest(
    name: str, share: float, *places: tuple[Site, float], ends: tuple[float, float] | None = None, **values: Any
) -> Finding:
    """Time that no rule explains, as a share of a step of a second."""
    low, high = ends or (share, share)
    sites = tuple(site for site, _ in places)
    return Finding(
        RuleText(name, "", (), ""), share, share, low, high, Confidence.HIGH, sites, values, costs={name: share},
        places=tuple(Place(*place) for place in places),
    )  # fmt: skip


def idle(share: float, *findings: Finding, **more: Any) -> RunDiagnosis:
    return RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", share, findings=findings, **more)


def busy(share: float, *findings: Finding, **more: Any) -> RunDiagnosis:
    return RunDiagnosis(RunVerdict.DEVICE_BUSY, "H200", share, findings=findings, **more)


def step(*findings: Finding, verdict: RunVerdict = RunVerdict.CAUSE, **more: Any) -> RunDiagnosis:
    return RunDiagnosis(verdict, findings=findings, **more)


COMPUTING, UNKNOWN_STEP = RunVerdict.COMPUTING, RunVerdict.UNKNOWN_STEP
RUNS = {
    "one cause": idle(0.9, rest("idle-sync", 0.6, rows=(SYNC,))),
    "a line": idle(0.9, rest("idle-sync", 0.75, (LINE, 0.4))),
    "no cause": idle(0.5),
    "unexplained": RunDiagnosis(RunVerdict.DEVICE_IDLE_UNEXPLAINED, "H200", 0.9, reason=Notice("level-light")),
    "busy": busy(0.9, rest("idle-sync", 0.06, (LINE, 0.06))),
    "communicating": busy(0.95, rest("communicating", 0.66), computing=0.26),
    "copying": busy(
        0.99,
        rest("copying", 0.99, parts=(DevicePart("h2d", "pageable", 0.5, 0.5), DevicePart("d2h", "", 0.49, 0.49))),
        computing=0.0,
    ),
    "busy computing": busy(0.87, computing=0.84),
    "few launches": idle(0.9, reason=Notice("few-launches", {"launches": 4})),
    "earlier work": idle(0.9, earlier=0.6),
    "whole trace": step(rest("compute", 0.98), verdict=COMPUTING, is_whole_trace=True),
    "setup calls": idle(0.9, rest("idle-setup-calls", 0.6)),
    "between operators": idle(0.9, rest("idle-between-operators", 0.6)),
    "functions of a trace": idle(0.9, rest("idle-input", 0.6, rows=(FUNCTION, OPERATOR))),
    "trace without events": step(
        rest("unattributed", 1.0), verdict=UNKNOWN_STEP, unknown=UnknownShare(1.0, 0, in_trace=True)
    ),
    "busy alone": busy(0.9),
    "busy, of the peak": busy(1.0, computing=0.99, peak_share=0.12),
    "NVML, of the peak": RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, "H200", 1.0, peak_share=0.12),
    "NVML": RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, "H200", 0.85, findings=(rest("log", 0.2, (LOG, 0.2)),)),
    "computing": step(rest("python", 0.13, (LOG, 0.08), (LINE, 0.05)), rest("compute", 0.84)),
    "computing alone": step(rest("compute", 0.98), verdict=COMPUTING),
    "several causes": step(rest("python", 0.4), rest("waiting", 0.3, ends=(0.2, 0.4)), rest("compute", 0.1)),
    "library": step(rest("python", 0.6, (LINE, 0.6)), driver=IN_LIBRARY),
    "notebook": step(rest("python", 0.6, (CELL, 0.6))),
    "loader": step(rest("input", 0.61, (LINE, 0.6), loader=DATA), rest("compute", 0.39)),
    "receiving": step(rest("input", 0.61, (LINE, 0.6), loader=replace(DATA, name="receive")), rest("compute", 0.39)),
    "after": step(rest("after the optimizer", 0.35, (LINE, 0.14), (LOG, 0.07)), rest("framework", 0.24)),
    "stages": step(rest("evaluation", 0.3), rest("roll-out", 0.2), rest("compile", 0.2), rest("optimizer", 0.35)),
    "ranks": step(rest("ranks", 0.3), rest("compute", 0.6)),
    "other waits": step(rest("core", 0.6), rest("throttled", 0.2), rest("gil", 0.1)),
    "calls": step(rest("copy", 0.3), rest("launch", 0.2), rest("sync", 0.2), rest("log", 0.1), rest("checkpoint", 0.1)),
    "without samples": step(rest("unattributed", 0.92), verdict=UNKNOWN_STEP, unknown=UnknownShare(0.92, 0)),
    "samples outside": step(verdict=UNKNOWN_STEP, unknown=UnknownShare(0.87, 0, has_samples_outside=True)),
    "backward passes alone": step(rest("compute", 0.51), verdict=COMPUTING, unknown=UnknownShare(0.49, 2)),
    "few samples at a line": step(
        verdict=UNKNOWN_STEP, unknown=UnknownShare(0.92, 7, site=Site("train.py", 9, "main"), site_share=0.51)
    ),
    "many samples of waits or Python": step(
        verdict=UNKNOWN_STEP, unknown=UnknownShare(0.92, 700, site=Site("train.py", 9, "main"), site_share=0.9)
    ),
    "few samples": step(rest("log", 0.3), unknown=UNKNOWN, spikes=SPIKES),
    "only long steps": step(verdict=UNKNOWN_STEP, spikes=SPIKES),
    "light": RunDiagnosis(RunVerdict.STEP_TIME_ONLY, seconds=0.06),
    "workers": step(rest("waits-for-workers", 0.6)),
    "Python or wait": step(rest("python-or-device-wait", 0.6)),
    "Python or waiting": step(rest("between-operators", 0.6)),
    "unknown": RunDiagnosis(RunVerdict.UNKNOWN, reason=Notice("no-queue")),
    "nothing": RunDiagnosis(RunVerdict.NOTHING_MEASURED, reason=Notice("no-step")),
}
SPEED = Ratio("tokens_per_s", 2.0, 1.9, 2.1, 3, different=True)
IDLE = TimeChange(
    TimeChangeKind.IDLE, "sync", faster=True, is_cause=True, before=0.6, after=0.1, as_shares=True, site=LINE
)
PHASES = TimeChange(
    TimeChangeKind.SEVERAL_PHASES,
    "",
    faster=False,
    is_cause=True,
    phases=(PhaseChange("data", 0.004, LINE), PhaseChange("forward", 0.003)),
    against=(PhaseChange("backward", -0.002),),
    step_seconds=0.005,
)
PHASE = TimeChange(
    TimeChangeKind.PHASE,
    "forward",
    faster=True,
    is_cause=False,
    before=0.02,
    after=0.002,
    site=LINE,
    site_seconds=0.018,
)
HOST = TimeChange(TimeChangeKind.HOST, "log", faster=False, is_cause=True, before=0.01, after=0.02, site=LOG)
SYNCS, COPIES = CounterChange("syncs", 50, 1), CounterChange("h2d", 9, 2)
SIDE = SideDiagnosis("base", "side", SPEED, "tokens/s", ("CPU",))
SIDES = {
    "faster": SIDE,
    "because": replace(SIDE, change=IDLE, explained=True, counters=(SYNCS,)),
    "host": replace(SIDE, change=HOST, explained=True),
    "slowed": replace(SIDE, change=replace(IDLE, is_cause=False), slowed=("base", 1.67)),
    "several": replace(SIDE, change=PHASES),
    "all": replace(SIDE, change=replace(PHASES, kind=TimeChangeKind.ALL_PHASES, faster=True, against=())),
    "phase": replace(SIDE, change=PHASE),
    "slower phase": replace(SIDE, change=replace(PHASE, name="data", faster=False)),
    "counters": replace(SIDE, busy=(0.1, 0.9), counters=(SYNCS, COPIES)),
    "a label: of. several, parts": replace(SIDE, side="exp: a. b, c", busy=(0.1, 0.9)),
    "moved": replace(SIDE, moved=WorkerMove("pool", 2)),
    "moved to one": replace(SIDE, moved=WorkerMove("pool", 1), devices=("CPU", "GPU")),
    "same": replace(SIDE, speed=replace(SPEED, different=False)),
    "one pair": replace(SIDE, speed=replace(SPEED, low=None, high=None, n=1, reason=Notice("one-pair"))),
    "not known": replace(SIDE, speed=None, reason=Notice("no-pairs")),
}
LONG_STEPS = {
    "regular": SPIKES,
    "irregular": MANY_SPIKES,
    "one": replace(MANY_SPIKES, count=1, lines=TWO_LINES),
    "two lines": replace(SPIKES, lines=(replace(TWO_LINES[0], share=0.4), TWO_LINES[1])),
    "no samples": replace(SPIKES, every=3, lines=(), enough=False, samples=0),
}
LIVE = LiveDiagnosis(LiveLimit.CPU, 30.0, "main", 0.98, "data", 0.78, 10.0, None, 1.0, 8.0, 0.3, 1, 2)


PYTHON = Finding(
    RuleText("python-loop", "Python code of the training loop takes time", ("{share:share} of it.",), "Use operators."),
    *(0.04, 0.4, 0.35, 0.45),
    Confidence.HIGH,
    (LOG,),
    gains=(Gain(GainMethod.BOUND, 1.67, 1.54, 1.82),),
    costs={"python": 0.04},
)
SMALL = replace(PYTHON, share=0.08, low=0.06, high=0.1, gains=(Gain(GainMethod.BOUND, 1.09, 1.06, 1.11),))
SEVERAL = RUNS["several causes"]
WITH_FINDINGS = {
    "a finding leads": replace(SEVERAL, findings=(PYTHON, *SEVERAL.findings[1:])),
    "a small finding": step(rest("compute", 0.84), SMALL, verdict=COMPUTING),
    "an uncertain finding": replace(SEVERAL, findings=(*SEVERAL.findings, replace(PYTHON, confidence=Confidence.LOW))),
    "a finding about an idle device": idle(0.9, replace(PYTHON, costs={"sync": 0.04}, share=0.75, low=0.75, high=0.75)),
    "a finding about long steps": replace(
        SEVERAL, spikes=replace(SPIKES, lines=TWO_LINES), findings=(replace(PYTHON, sites=(TWO_LINES[0].site,)),)
    ),
}


def sentences() -> Iterator[tuple[str, str]]:
    """Name and sentence of each; bars are between the lines."""
    for name, run in {**RUNS, **WITH_FINDINGS}.items():
        statement = run_statement(run)
        yield f"run, {name}", " | ".join((statement.headline, *statement.details))
    for name, side in SIDES.items():
        statement = comparison_statement(ComparisonDiagnosis(True, False, (), (side,), (("base", 0.5),)))
        yield f"comparison, {name}", " | ".join((statement.headline, *statement.details))
    for name, spikes in LONG_STEPS.items():
        yield f"long steps, {name}", spikes_sentence(spikes)
    for limit in LiveLimit:
        yield f"live, {limit}", live_sentence(replace(LIVE, limit=limit))
    yield "live, GPU", live_sentence(replace(LIVE, limit=LiveLimit.GPU, gpu=0.99, stalled=None, part=""))
    yield "live, no worker", live_sentence(replace(LIVE, limit=LiveLimit.RECORDED_PART, busy_workers=0))
