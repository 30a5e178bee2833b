"""Diagnoses of every kind: the approval tests hold the sentence that each becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from profiler.analyse.finding import Confidence, Finding, Gain, GainMethod, RuleText
from profiler.analyse.model import (
    Cause,
    DevicePart,
    HostState,
    IdleBlame,
    InputPart,
    Location,
    LocationKind,
    Ratio,
    SiteOrigin,
    SpikeLine,
    Spikes,
)
from profiler.core.notice import Notice
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
AT_LINE = Location(LocationKind.LINE, (LINE,), 0.97, 0.9, 1.0, 80)
MOSTLY_AT_LOG = Location(LocationKind.LINE, (LOG,), 0.6, 0.45, 0.8, 12)
IN_FUNCTION = Location(LocationKind.FUNCTION, (LOG,), 0.95, 0.8, 1.0, 80)
IN_CALLS = Location(LocationKind.CALL_PATH, (LINE, LOG), 0.95, 0.8, 1.0, 80)
IN_LIBRARY = replace(AT_LINE, library=(("rl.Model.learn", 0.97), ("rl.Model.collect_rollouts", 0.85)))
IN_CELL = replace(AT_LINE, path=(Site("/tmp/ipykernel_12/3456.py", 4, "<module>"),))
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
RUNS = {
    "one cause": RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("sync", 0.6, location=AT_LINE, blame=SYNC),)),
    "category": RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("sync", 0.75, location=AT_LINE, blame=SYNC),)),
    "no line": RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("copy", 0.01), Cause("log", 0.004))),
    "no cause": RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.5),
    "unexplained": RunDiagnosis(RunVerdict.DEVICE_IDLE_UNEXPLAINED, "H200", 0.9, reason=Notice("level-light")),
    "busy": RunDiagnosis(RunVerdict.DEVICE_BUSY, "H200", 0.9, (Cause("sync", 0.06, location=AT_LINE),)),
    "communicating": RunDiagnosis(
        RunVerdict.DEVICE_BUSY, "H200", 0.95, (Cause("communicating", 0.66),), computing=0.26
    ),
    "copying": RunDiagnosis(
        RunVerdict.DEVICE_BUSY,
        "H200",
        0.99,
        (Cause("copying", 0.99, parts=(DevicePart("h2d", "pageable", 0.5, 0.5), DevicePart("d2h", "", 0.49, 0.49))),),
        computing=0.0,
    ),
    "busy computing": RunDiagnosis(RunVerdict.DEVICE_BUSY, "H200", 0.87, computing=0.84),
    "few launches": RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, reason=Notice("few-launches", {"launches": 4})),
    "earlier work": RunDiagnosis(RunVerdict.DEVICE_IDLE, "H200", 0.9, earlier=0.6),
    "whole trace": RunDiagnosis(RunVerdict.COMPUTING, share=0.98, is_whole_trace=True),
    "setup calls": RunDiagnosis(
        RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("launch", 0.6, notice=Notice("setup-calls")),)
    ),
    "between operators": RunDiagnosis(
        RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("unattributed", 0.6, notice=Notice("between-operators")),)
    ),
    "functions of a trace": RunDiagnosis(
        RunVerdict.DEVICE_IDLE, "H200", 0.9, (Cause("input", 0.6, blame=FUNCTION, places=(FUNCTION, OPERATOR)),)
    ),
    "trace without events": RunDiagnosis(RunVerdict.UNKNOWN_STEP, unknown=UnknownShare(1.0, 0, in_trace=True)),
    "busy alone": RunDiagnosis(RunVerdict.DEVICE_BUSY, "H200", 0.9),
    "busy, of the peak": RunDiagnosis(RunVerdict.DEVICE_BUSY, "H200", 1.0, computing=0.99, peak_share=0.12),
    "NVML, of the peak": RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, "H200", 1.0, peak_share=0.12),
    "NVML": RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, "H200", 0.85, (Cause("log", 0.2, 0.1, 0.3, IN_FUNCTION),)),
    "computing": RunDiagnosis(
        RunVerdict.COMPUTING,
        share=0.84,
        causes=(Cause("python", 0.13, 0.1, 0.16, MOSTLY_AT_LOG, (replace(IN_FUNCTION, share=0.3),)),),
    ),
    "computing alone": RunDiagnosis(RunVerdict.COMPUTING, share=0.98),
    "several causes": RunDiagnosis(
        RunVerdict.CAUSE, share=0.1, causes=(Cause("python", 0.4, location=IN_CALLS), Cause("waiting", 0.3, 0.2, 0.4))
    ),
    "library": RunDiagnosis(RunVerdict.CAUSE, causes=(Cause("python", 0.6, location=IN_LIBRARY),), driver=IN_LIBRARY),
    "notebook": RunDiagnosis(RunVerdict.CAUSE, causes=(Cause("python", 0.6, location=IN_CELL),)),
    "loader": RunDiagnosis(RunVerdict.CAUSE, share=0.39, causes=(Cause("input", 0.61, location=AT_LINE, loader=DATA),)),
    "after, at several lines": RunDiagnosis(
        RunVerdict.CAUSE,
        share=0.4,
        causes=(
            Cause("after the optimizer", 0.35, further=(replace(AT_LINE, share=0.4), replace(AT_LINE, share=0.2))),
            Cause("framework", 0.24),
            Cause("python", 0.11),
        ),
    ),
    "after": RunDiagnosis(
        RunVerdict.CAUSE, causes=(Cause("after the optimizer", 0.38, location=replace(AT_LINE, calls="log_metrics")),)
    ),
    "without samples": RunDiagnosis(RunVerdict.UNKNOWN_STEP, unknown=UnknownShare(0.92, 0)),
    "samples outside": RunDiagnosis(RunVerdict.UNKNOWN_STEP, unknown=UnknownShare(0.87, 0, has_samples_outside=True)),
    "backward passes alone": RunDiagnosis(
        RunVerdict.COMPUTING, share=0.51, unknown=UnknownShare(0.49, 2, is_whole=True)
    ),
    "few samples at a line": RunDiagnosis(
        RunVerdict.UNKNOWN_STEP, unknown=UnknownShare(0.92, 7, site=Site("train.py", 9, "main"), site_share=0.51)
    ),
    "many samples of waits or Python": RunDiagnosis(
        RunVerdict.UNKNOWN_STEP, unknown=UnknownShare(0.92, 700, site=Site("train.py", 9, "main"), site_share=0.9)
    ),
    "few samples": RunDiagnosis(RunVerdict.CAUSE, causes=(Cause("log", 0.3),), unknown=UNKNOWN, spikes=SPIKES),
    "only long steps": RunDiagnosis(RunVerdict.UNKNOWN_STEP, spikes=SPIKES),
    "light": RunDiagnosis(RunVerdict.STEP_TIME_ONLY, seconds=0.06),
    "workers": RunDiagnosis(RunVerdict.CAUSE, causes=(Cause("sync", 0.6, notice=Notice("waits-for-workers")),)),
    "Python or wait": RunDiagnosis(
        RunVerdict.CAUSE, causes=(Cause("python", 0.6, notice=Notice("python-or-device-wait")),)
    ),
    "float64": RunDiagnosis(
        RunVerdict.CAUSE, share=0.9, causes=(Cause("compute", 0.9, notice=Notice("float64", {"share": 0.98})),)
    ),
    "GIL": RunDiagnosis(RunVerdict.CAUSE, causes=(Cause("gil", 0.4, location=IN_FUNCTION),)),
    "GIL of a thread": RunDiagnosis(
        RunVerdict.CAUSE,
        causes=(Cause("gil", 0.4),),
    ),
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
    "a finding leads": replace(SEVERAL, findings=(PYTHON,)),
    "a small finding": replace(RUNS["computing"], findings=(SMALL,)),
    "an uncertain finding": replace(SEVERAL, findings=(replace(PYTHON, confidence=Confidence.LOW),)),
    "a finding about an idle device": replace(
        RUNS["category"], findings=(replace(PYTHON, costs={"sync": 0.04}, share=0.75, low=0.75, high=0.75),)
    ),
    "a finding about long steps": replace(
        SEVERAL,
        spikes=replace(SPIKES, lines=TWO_LINES),
        findings=(replace(PYTHON, sites=(TWO_LINES[0].site,)),),
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
