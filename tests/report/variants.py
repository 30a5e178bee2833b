"""Made-up results in which one thing is unusual, with the sections that show it: approval tests hold these sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Side
from profiler.analyse.model.device import HostState, Timeline
from profiler.analyse.model.host import LineCost, ThreadActivity, ThreadState
from profiler.analyse.model.measures import Measure, Missing, Topic
from profiler.core.errors import Notice
from profiler.diagnose.comparison import diagnose_comparison
from profiler.diagnose.run import diagnose_run
from profiler.report.comparison_text import with_comparison_verdict
from profiler.report.model import Results
from profiler.report.verdict_text import with_verdict
from profiler.run.model import CollectorStatus, RunInfo, Site, StepDefinition, StepKind
from tests.fakes.sentences import note
from tests.report import hook_samples, ladders, samples

LOADED = Notice("other-programs", {"used": 1.2, "cores": 2})
STOLEN = Notice("other-machines", {"share": 0.12})


def run(**changes: Any) -> Analysis:
    """The run of hooks with these changes."""
    return replace(hook_samples.run(), **changes)


def details(comparison: Comparison, *changes: dict[str, Any]) -> Comparison:
    """The comparison with these changes of the breakdown pass of each side."""
    pairs = zip(comparison.sides, changes, strict=True)
    sides = (replace(side, detail=replace(side.detail, **change)) for side, change in pairs if side.detail)
    return replace(comparison, sides=tuple(sides))


def one_side(number: int, change: Callable[[Side], Side]) -> Comparison:
    """The made-up comparison with a changed side."""
    sides = list(samples.comparison().sides)
    sides[number] = change(sides[number])
    return replace(samples.comparison(), sides=tuple(sides))


def recorder_idle() -> Comparison:
    first = samples.comparison().sides[0].detail
    own = replace(first.idle[0], state=HostState.RECORDING, share_of_wall=0.1)
    return details(samples.comparison(), {"idle": (own, *first.idle)}, {})


def unlisted() -> Comparison:
    """A counter and a category that nobody listed."""
    side = samples.side("as-found", samples.AS_FOUND | {"graph_breaks_per_step": 3.0})
    comparison = replace(samples.comparison(), sides=(side,))
    return details(comparison, {"breakdown": {**side.detail.breakdown, "gossip": Measure("gossip", 0.01, "s")}})


def warned() -> Comparison:
    """Warnings that differ in their numbers, and a gap of a light run that the breakdown pass filled."""

    def change(side: Side) -> Side:
        runs = [
            replace(
                analysis,
                warnings=(Notice("drift", {"change": 0.2 + number / 100}), note("torn table")),
                missing=(Missing(Topic.FLAME_GRAPH, note("level light")),),
            )
            for number, analysis in enumerate(side.runs)
        ]
        return replace(side, runs=tuple(runs))

    return one_side(0, change)


def one_pair() -> Comparison:
    made = samples.comparison()
    ratios = {
        name: replace(ratio, low=None, high=None, n=1, different=False, reason=ratio.reason or Notice("one-pair"))
        for name, ratio in made.ratios["fixed"].items()
    }
    return replace(made, ratios={"fixed": ratios})


def on_cpu() -> Comparison:
    """Plain torch on the CPU, which has no queue to measure."""
    names = ("tokens_per_s", "step_time", "host_cpu")
    made = ladders.saying(device="cpu")
    return replace(
        made,
        sides=tuple(
            replace(side, measures={name: side.measures[name] for name in names}, detail=None) for side in made.sides
        ),
    )


def in_points(**changes: Any) -> Comparison:
    made = replace(ladders.in_points(), **changes)
    return with_comparison_verdict(made, diagnose_comparison(made))


def failed(*, step: StepDefinition | None = None) -> Analysis:
    """A program that failed before it imported torch."""
    hooks = CollectorStatus("hooks", "ok", code="hooks-loaded", values={"python": 1, "torch": 0})
    times = {"begin": 10**9, "end": 10**9 + 10**8}
    info = RunInfo(1, "r", "r", ("x",), state="failed", exit_code=1, collectors=(hooks,), **times)  # type: ignore[arg-type]
    return Analysis(info, {"step_time": Measure("step_time", 0.1, "s", n=9)}, {}, {}, verdict="Slow.", step=step)


WAITING = ThreadActivity(
    pid=7,
    tid=7,
    process="rank 0",
    thread="",
    state=ThreadState.WAITING_FOR_DATA,
    share=0.62,
    low=0.55,
    high=0.69,
    samples=200,
    site=Site("/data/u/train.py", 44, "train", "for batch in loader:"),
    calls="queue.Queue.get",
    on_cpu=0.3,
    gil=None,
    states=((ThreadState.WAITING_FOR_DATA, 0.62), (ThreadState.TORCH, 0.37), (ThreadState.IDLE, 0.01)),
)
LAUNCHER = replace(WAITING, pid=6, tid=6, process="main process", state=ThreadState.CHILD, share=1.0)
WAITING_LINES = (
    LineCost(
        Site("/data/u/train.py", 44, "train"), "queue.Queue.get", 5.5, 0.55, 0.5, 0.6, 110,
        {ThreadState.WAITING_FOR_DATA: 4.5, ThreadState.IDLE: 1.0},
    ),
    LineCost(Site("/data/u/train.py", 9, "log"), "", 1.0, 0.1, 0.06, 0.15, 20, {ThreadState.TORCH: 1.0}),
)  # fmt: skip


def attached(*threads: ThreadActivity) -> Analysis:
    """A running job that was sampled from outside."""
    analysis = Analysis(RunInfo(2, "r", "", ("x",), state="attached"), {}, {}, {}, threads=threads)
    return with_verdict(analysis, diagnose_run(analysis))


def light(unit: str = "") -> Analysis:
    """A light run of a program whose steps count something, or nothing."""
    times = {"step_time": 0.1, "step_time_p50": 0.09, "step_time_p95": 0.2}
    measures = {name: Measure(name, value, "s") for name, value in times.items()}
    measures["steps_per_s"] = Measure("steps_per_s", 10.0, "steps/s")
    if unit:
        measures["tokens_per_s"] = Measure("tokens_per_s", 2000.0, unit)
    return Analysis(samples.info("run", "light"), measures, {}, {}, verdict="The verdict.", warnings=(LOADED,))


FOUND = hook_samples.comparison()
MANY_LINES = tuple(replace(hook_samples.LINES[1], site=Site("train.py", n, "f"), share=0.01) for n in range(40))
FEW_SAMPLES = tuple(replace(line, samples=16) for line in hook_samples.LINES)
NO_SPIKE_LINE = replace(hook_samples.SPIKES, lines=())
LOADED_RUN = {"warnings": (Notice("few-steps", {"steps": 3, "needed": 5}), LOADED, STOLEN)}
THIRD = replace(FOUND.sides[1], label="third")
OWN_PASS = tuple(replace(side, runs=(side.detail,)) for side in FOUND.sides if side.detail is not None)
BLANK = {
    "environment": (*samples.comparison().environment, ("device note", " ")),
    "differences": (("note", ("", "")),),
}
VARIANTS: dict[str, tuple[Callable[[], Results], tuple[str, ...]]] = {
    "forced": (samples.forced_comparison, ("verdict", "numbers")),
    "refused": (lambda: replace(samples.forced_comparison(), forced=False), ("verdict", "numbers")),
    "blank facts": (lambda: replace(samples.comparison(), **BLANK), ("environment",)),
    "recorder idle": (recorder_idle, ("verdict", "numbers", "idle")),
    "unlisted": (unlisted, ("throughput", "breakdown", "counters")),
    "warned": (warned, ("method",)),
    "faster breakdown pass": (
        lambda: one_side(1, lambda side: replace(side, recording_slowdown=Measure("", 0.97, "x"))), ("method",)
    ),
    "one pair": (one_pair, ("verdict", "numbers", "throughput")),
    "on CPU": (on_cpu, ("verdict", "numbers", "breakdown", "utilization")),
    "points and a ladder": (in_points, ("verdict", "numbers", "throughput", "ladder")),
    "points": (lambda: in_points(extensions={}), ("verdict", "numbers", "throughput")),
    "loaded run": (lambda: run(**LOADED_RUN), ("verdict", "numbers")),
    "loaded side": (
        lambda: one_side(1, lambda side: replace(side, detail=replace(side.detail, **LOADED_RUN))),
        ("verdict", "numbers"),
    ),
    "failed": (lambda: failed(step=StepDefinition(StepKind.WHOLE_RUN)), ("verdict", "numbers")),
    "failed later": (failed, ("verdict", "numbers")),
    "empty run": (samples.empty_analysis, ()),
    "light": (light, ("verdict", "numbers", "throughput", "breakdown")),
    "light, points": (lambda: light("points/s"), ("verdict", "numbers")),
    "learning": (ladders.learner, ("verdict", "numbers", "learning")),
    "many lines": (lambda: run(lines=MANY_LINES), ("lines",)),
    "many calls": (lambda: run(call_sites=samples.CALLS * 4), ("hot",)),
    "few samples": (lambda: run(lines=FEW_SAMPLES), ("lines",)),
    "found sides": (lambda: FOUND, ("verdict", "numbers", "lines", "input")),
    "other order": (lambda: details(FOUND, {}, {"lines": hook_samples.LINES[1::-1]}), ("verdict", "numbers")),
    "three sides": (lambda: replace(FOUND, sides=(*FOUND.sides, THIRD)), ("verdict", "numbers")),
    "own passes": (lambda: replace(FOUND, sides=OWN_PASS), ("verdict", "numbers")),
    "one own pass": (lambda: replace(FOUND, sides=(FOUND.sides[0], OWN_PASS[1])), ("verdict", "numbers")),
    "no parts": (lambda: details(FOUND, {"phases": ()}, {"phases": ()}), ("verdict", "numbers", "lines")),
    "long steps": (lambda: run(spikes=replace(NO_SPIKE_LINE, every=0)), ("spikes",)),
    "long steps, few samples": (lambda: run(spikes=replace(NO_SPIKE_LINE, samples=3, enough=False)), ("spikes",)),
    "no timeline": (lambda: run(timeline=Timeline(reason=note("too large"))), ("timeline",)),
    "no timeline in sides": (lambda: details(FOUND, {"timeline": None}, {}), ("timeline",)),
    "attached": (lambda: attached(WAITING), ()),
    "attached, lines": (lambda: attached(replace(WAITING, lines=WAITING_LINES)), ("verdict", "numbers", "doing")),
    "attached, ranks": (lambda: attached(LAUNCHER, WAITING), ("verdict", "numbers", "doing")),
    "attached, launcher": (lambda: attached(LAUNCHER), ("verdict", "numbers")),
    "attached, nothing": (attached, ()),
}  # fmt: skip
"""Name -> the results, and the sections that show what is unusual; none for all sections."""
