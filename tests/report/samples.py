"""Made-up values for the tests of the report: nothing in here was measured, and every title says SYNTHETIC."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Mismatch, Ratio, ResultComparison, Side
from profiler.analyse.model.device import (
    CallSite,
    HostState,
    IdleBlame,
    SiteOrigin,
    Timeline,
    TimelineEvent,
    TimelineLane,
)
from profiler.analyse.model.host import FlameDiff, FlameNode
from profiler.analyse.model.measures import Measure, Missing, Series, Topic
from profiler.report.blocks import Section
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide, Results
from profiler.run.model import CollectorStatus, RunInfo, Site
from tests.fakes.sentences import note

HOSTILE = "<script>alert('boo')</script>"
HOSTILE_ATTRIBUTE = '"><img src=x onerror="document.title=\'owned\'">'
HOSTILE_TEXT = "naïve 数据 | `tick` [link](javascript:alert(1)) $\\frac{x}$ \x1b[31mred\u202eder"
LONG_PATH = "/home/somebody/" + "a-rather-long-folder-name/" * 9 + "train_the_language_model.py"
TRAINER = "/home/somebody/project/reference_trainer/lm"
LOOP, FIXED, TOKENIZER = f"{TRAINER}/fixes/as_found.py", f"{TRAINER}/fixes/chunked.py", f"{TRAINER}/tokenizer.py"
MEASURES: tuple[tuple[str, str, float, float], ...] = (  # name, unit, as found, cured
    ("tokens_per_s", "tokens/s", 20840.0, 1063000.0),
    ("step_time", "s", 0.14395, 0.002822),
    ("steps", "steps", 31.0, 1590.0),
    ("device_utilization", "1", 0.0513, 0.8841),
    ("host_cpu", "cores", 1.02, 0.29),
    ("device_cpu", "cores", 0.061, 0.91),
    ("peak_memory", "bytes", 412000000.0, 405000000.0),
    ("loss", "1", 0.98412, 0.98412),
    ("accuracy", "1", 0.01588, 0.01588),
    ("syncs_per_step", "1/step", 6000.0, 1.0),
    ("h2d_per_step", "1/step", 6001.0, 1.0),
    ("d2h_per_step", "1/step", 6000.0, 1.0),
    ("h2d_bytes_per_step", "bytes/step", 1548000.0, 12000.0),
    ("d2h_bytes_per_step", "bytes/step", 780000.0, 12008.0),
    ("allocations_per_step", "1/step", 12004.0, 0.0),
    ("launches_per_step", "1/step", 9002.0, 7.0),
)
UNITS = {name: unit for name, unit, *_ in MEASURES} | {"steps_per_s": "steps/s"}
AS_FOUND = {name: value for name, _, value, _ in MEASURES}
CURED = {name: value for name, *_, value in MEASURES}
FLOOR = AS_FOUND | {"tokens_per_s": 31_270.0, "steps": 47.0, "step_time": 0.09594, "device_utilization": 0.0104}
CATEGORIES = ("input", "sync", "copy", "launch", "log", "python", "unattributed")
AS_FOUND_BREAKDOWN = dict(zip(CATEGORIES, (0.0059, 0.0621, 0.0408, 0.0287, 0.0006, 0.0463, 0.0021), strict=True))
CURED_BREAKDOWN = dict(zip(CATEGORIES, (0.00041, 0.00219, 8e-05, 0.00017, 5e-05, 0.00019, 3e-05), strict=True))
ABSENT = {
    "framework": "torch operators are seen at level full only",
    "compute": "the operators are the work on the cpu device only",
    "checkpoint": "the program marks no region of this name",
}
_LEARN, _TOKENIZE, _FAR = Site(LOOP, 88, "learn_chunk"), Site(TOKENIZER, 33, "tokenize"), Site(LONG_PATH, 104, HOSTILE)
_ITSELF = SiteOrigin.ITSELF
IDLE = (
    IdleBlame(HostState.AFTER_SYNC, "sync", _ITSELF, "sync", _LEARN, 0.0612, 0.3273, 3000.0),
    IdleBlame(HostState.BETWEEN_CALLS, "", _ITSELF, "python", replace(_LEARN, line=97), 0.0461, 0.2466, 3000.0),
    IdleBlame(HostState.IN_REGION, HOSTILE, _ITSELF, "copy", _FAR, 0.0388, 0.2075, 6000.0),
    IdleBlame(HostState.IN_REGION, "tokenize", _ITSELF, "input", _TOKENIZE, 0.0059, 0.0316, 1.0),
    IdleBlame(HostState.BETWEEN_CALLS, "", _ITSELF, "unattributed", None, 0.0009, 0.0048, 11.0),
)
CALLS = (
    CallSite(_LEARN, "sync", 3000.0, 0.0441, 0.0418, 0.0),
    CallSite(replace(_FAR, function=HOSTILE_ATTRIBUTE), "d2h", 3000.0, 0.0212, 0.0187, 768_000.0),
    CallSite(replace(_LEARN, line=64), "h2d", 3000.0, 0.0196, 0.0, 768_000.0),
    CallSite(replace(_LEARN, line=74), "launch", 9000.0, 0.0287, 0.0, 0.0),
)


def _measures(values: Mapping[str, float], noise: float, seed: str) -> dict[str, Measure]:
    scale = 1 + random.Random(seed).uniform(-noise, noise)
    scaled = {"tokens_per_s": scale, "step_time": 1 / scale}
    return {
        name: Measure(name, value * scaled.get(name, 1.0), UNITS.get(name, "1/step"), n=28, source="light run")
        for name, value in values.items()
    }


def _over_runs(runs: tuple[Analysis, ...]) -> dict[str, Measure]:
    merged = {}
    for name, first in runs[0].measures.items():
        values = sorted(run.measures[name].value for run in runs)  # type: ignore[type-var]
        merged[name] = replace(first, value=values[len(values) // 2], low=values[0], high=values[-1], n=len(runs))
    return merged


def info(label: str, level: str = "light", **facts: Any) -> RunInfo:
    """A manifest as a recorder could have written it."""
    return RunInfo(
        schema=1,
        run_id=f"synthetic-{label[:12]}",
        started_at="2025-01-02T03:04:05+00:00",
        argv=("python", "-m", "reference_trainer.lm", "--variant", label),
        label=label,
        level=level,
        state="complete",
        exit_code=0,
        begin=1_000_000_000,
        end=9_000_000_000,
        git_commit="0123456789abcdef0123456789abcdef01234567",
        host={"cpu": "Synthetic CPU 9000", "cores": 2, "memory_bytes": 8 << 30, "os": "Linux", "kernel": "6.1"},
        versions={"python": "3.11.9", "torch": "2.4.0", "numpy": "2.0.1", "profiler": "0.1.0"},
        collectors=(
            CollectorStatus("host", "ok", records=812, cost_s=0.021),
            CollectorStatus("gpu", "unavailable", "no NVIDIA driver on this machine"),
        ),
        facts={"device": "host", "corpus": "pydoc topics", "preset": "tiny", "step": "chunk"} | facts,
    )


def _breakdown(seconds: Mapping[str, float]) -> dict[str, Measure]:
    measured = {name: Measure(name, value, "s", n=28, source="breakdown pass") for name, value in seconds.items()}
    return measured | {name: Measure(name, None, "s", reason=note(reason)) for name, reason in ABSENT.items()}


def _device(seconds: float, busy: float, copy: float) -> dict[str, Measure]:
    shares = {"compute": busy - copy, "copy": copy, "idle": 1 - busy}
    measured = {name: Measure(name, share * seconds, "s", n=28) for name, share in shares.items()}
    absent = Measure("communication", None, "s", reason=note("one process: nothing communicates"))
    return measured | {absent.name: absent}


def _series(values: Mapping[str, float]) -> tuple[Series, ...]:
    times = tuple(round(0.1 * i, 3) for i in range(40))

    def wave(name: str, unit: str) -> Series:
        rng, level = random.Random(f"{name}{values[name]}"), values[name]
        points = (level * (1 + 0.05 * math.sin(t * 5) + rng.uniform(-0.04, 0.04)) for t in times)
        return Series(name, unit, times, tuple(max(0.0, point) for point in points))

    return wave("host_cpu", "cores"), wave("device_cpu", "cores"), wave("device_utilization", "1")


def _node(name: str, file: str, line: int, value: float, *children: FlameNode) -> FlameNode:
    return FlameNode(name, value, Site(file, line, name), children)


def as_found_flame() -> FlameNode:
    """Tree of the slow side, with hostile names, a deep chain and far too many tiny frames."""
    token = (
        _node("next_embedding", LOOP, 61, 0.031, _node("to_device", LOOP, 64, 0.022)),
        _node("recurrent_step", LOOP, 71, 0.038, _node("launch", LOOP, 74, 0.028)),
        _node(HOSTILE, LONG_PATH, 104, 0.052, _node("synchronize", LOOP, 88, 0.044)),
        _node(HOSTILE_ATTRIBUTE, LOOP, 91, 0.021, _node(HOSTILE_TEXT, LOOP, 92, 0.012)),
    )
    deep = FlameNode("leaf", 0.004, Site("/lib/deep.py", 1, "leaf"))
    for level in range(60, 0, -1):
        deep = FlameNode(f"level_{level}", 0.004, Site("/lib/deep.py", level, "level"), (deep,))
    crumbs = tuple(FlameNode(f"crumb_{i}", 0.000001, Site("/lib/crumbs.py", i, "crumb")) for i in range(400))
    tokenize = _node("tokenize", TOKENIZER, 33, 0.006, _node("encode", TOKENIZER, 41, 0.005))
    main = _node("main", LOOP, 20, 0.186, tokenize, _node("learn_chunk", LOOP, 52, 0.171, *token), deep, *crumbs)
    return FlameNode("all", 0.1865, None, (main,))


def cured_flame() -> FlameNode:
    """Tree of the fast side."""
    tokenize = _node("tokenize", TOKENIZER, 33, 0.00041, _node("encode_batch", TOKENIZER, 58, 0.00036))
    calls = _node("synchronize", FIXED, 77, 0.00219), _node("launch", FIXED, 61, 0.00017)
    main = _node("main", LOOP, 20, 0.00312, tokenize, _node("learn_chunk", FIXED, 40, 0.00262, *calls))
    return FlameNode("all", 0.00312, None, (main,))


def flame_diff() -> FlameDiff:
    """A difference of the two trees, made by hand."""
    hostile, waiting = FlameDiff(HOSTILE, 0.052, 0.0, _FAR), FlameDiff("synchronize", 0.0, 0.00219)
    below = (
        FlameDiff("tokenize", 0.006, 0.00041, _TOKENIZE),
        FlameDiff("learn_chunk", 0.171, 0.00262, replace(_LEARN, line=52), (hostile, waiting)),
    )
    return FlameDiff("all", 0.1865, 0.00312, None, (FlameDiff("main", 0.186, 0.00312, Site(LOOP, 20, "main"), below),))


def analysis(label: str = "as-found", *, values: Mapping[str, float] = AS_FOUND, seed: str = "1") -> Analysis:
    """One rich run: every field is filled; `values` are its measures."""
    slow = values["device_utilization"] < 0.5
    seconds = AS_FOUND_BREAKDOWN if slow else CURED_BREAKDOWN
    return Analysis(
        info=info(label, level="standard"),
        measures=_measures(values, 0.0, seed),
        breakdown=_breakdown(seconds),
        device_breakdown=_device(sum(seconds.values()), values["device_utilization"], 0.01),
        idle=IDLE if slow else IDLE[3:],
        call_sites=CALLS if slow else CALLS[3:],
        series=_series(values),
        flame=as_found_flame() if slow else cured_flame(),
        missing=(
            Missing(Topic.MEASURE, note("no NVIDIA driver on this machine"), "GPU samples"),
            Missing(Topic.MEASURE, note("only this process is recorded"), "device queue of other processes"),
        ),
        warnings=(note("SYNTHETIC: 28 steps only; the 95% interval of a share is about 2 points"),),
        verdict=(
            "Device idle 95% of the time: the host waits for it 3,000 times a step at as_found.py:88."
            if slow
            else "The device is busy 88% of the time: the host is not what limits this run."
        ),
        timeline=_timeline(sum(seconds.values()), 3000 if slow else 1),
    )


def _timeline(step: float, calls: int) -> Timeline:
    """So many rounds of a launch and a wait in a step of `step` seconds, with a kernel that the host waits for."""
    every = int(1e9 * step / calls)
    starts = range(0, max(1, 3_000_000 // every) * every, every)
    cuts = [(at, at + every // 5, at + every) for at in starts]
    host = tuple(moment for first, second, _ in cuts for moment in (first, second))
    ends = tuple(moment for _, second, third in cuts for moment in (second, third))
    events = (
        TimelineEvent("launch", "launch", _LEARN),
        TimelineEvent("sync", HOSTILE, _FAR),
        TimelineEvent("compute", HOSTILE, None, is_device=True),
    )
    lanes = (
        TimelineLane("host", False, host, ends, (0, 1) * len(cuts)),
        TimelineLane("device", True, host[1::2], tuple(third - every // 9 for *_, third in cuts), (2,) * len(cuts)),
    )
    length = cuts[-1][-1] / 1e9
    offset = step / 2 if calls > 1 else 0.0
    return Timeline(lanes, events, length, 41, step, offset, tokens=3000, parts=2 * calls)


def side(label: str, values: Mapping[str, float], *, detail: bool = True, slowdown: float = 1.29) -> Side:
    """One side of five light runs and, unless told otherwise, its breakdown pass."""
    runs = tuple(
        Analysis(info(label), _measures(values, 0.03, f"{label}{number}"), {}, {}, series=_series(values))
        for number in range(5)
    )
    return Side(
        label=label,
        command=f"python -m reference_trainer.lm --variant {label}",
        runs=runs,
        detail=analysis(label, values=values) if detail else None,
        measures=_over_runs(runs),
        recording_slowdown=Measure("recording_slowdown", slowdown, "x", n=28),
    )


def _ratio(name: str, before: Side, after: Side) -> Ratio:
    pairs = [
        b.measures[name].value / a.measures[name].value  # type: ignore[operator]
        for a, b in zip(before.runs, after.runs, strict=True)
        if a.measures[name].value and b.measures[name].value is not None
    ]
    if not pairs or min(pairs) <= 0:
        return Ratio(name, None, None, None, 0, different=False, reason=note("one side is zero"))
    value = math.exp(sum(map(math.log, pairs)) / len(pairs))
    low, high = min(pairs) * 0.99, max(pairs) * 1.01
    return Ratio(name, value, low, high, len(pairs), different=not low <= 1 <= high)


def ratios(sides: tuple[Side, ...]) -> dict[str, dict[str, Ratio]]:
    """Ratios of every side over the first; the interval is a stand-in, not statistics."""
    return {other.label: {name: _ratio(name, sides[0], other) for name in other.measures} for other in sides[1:]}


def comparison(*, title: str = "SYNTHETIC: as-found and fixed", after: str = "fixed") -> Comparison:
    """As-found against fixed, with a floor, trees, blame, and hostile text in many places."""
    sides = (side("as-found", AS_FOUND), side(after, CURED, slowdown=1.06))
    headline = "fixed trains 51× as many tokens a second as as-found on the host device (CPU):"
    why = "as-found left the device idle 95% of the time, waiting for it 6,000 times a step; fixed waits once."
    return Comparison(
        title=title,
        created_at="2025-01-02T03:10:00+00:00",
        sides=sides,
        ratios=ratios(sides),
        pairs=5,
        comparable=True,
        mismatches=(),
        forced=False,
        verdict=f"{headline} {why}",
        headline=headline,
        floor=side("floor", FLOOR, detail=False),
        differences=(("variant", ("as-found", after)), (HOSTILE_TEXT, (HOSTILE, HOSTILE_ATTRIBUTE))),
        environment=(("cpu", "Synthetic CPU 9000"), ("corpus", "pydoc topics"), ("path", LONG_PATH)),
        method=(
            note("SYNTHETIC: 5 interleaved pairs after one warm-up of each side."),
            note("Each ratio is a geometric mean over pairs with a 95% interval."),
            note("Breakdown, causes of idle time and flame graphs come from a separate pass."),
        ),
        flame_diff=flame_diff(),
        results=(
            ResultComparison("predictions", 9, 3000, 3000, 1, (), "", None),
            ResultComparison("state", 9, 64, 64, 0, (), "", None),
            ResultComparison("loss", 4, 3, 3, 0, ("fixed",), "", None),
        ),
    )


def three_sides() -> Comparison:
    """A baseline and two others, one of which shows no difference."""
    sides = (side("as-found", AS_FOUND), side("as-found again", AS_FOUND), side("fixed", CURED))
    return replace(comparison(), sides=sides, ratios=ratios(sides), differences=(), flame_diff=None, floor=None)


def forced_comparison() -> Comparison:
    """Not comparable, and compared all the same."""
    mismatches = (Mismatch("device", "host", "cuda"), Mismatch("corpus", "pydoc topics", HOSTILE))
    return replace(comparison(title="SYNTHETIC: forced"), comparable=False, forced=True, mismatches=mismatches)


def empty_analysis() -> Analysis:
    """A run that was killed before its first step; every None has its reason."""
    absent = {
        name: Measure(name, None, unit, reason=note(f"SYNTHETIC: no collector for {name}"))
        for name, unit in UNITS.items()
        if not name.endswith("_per_step")
    }
    missing = (Missing(Topic.MEASURE, note("SYNTHETIC: recorder killed"), "everything"),)
    return Analysis(info("a"), absent, {}, {}, missing=missing)


def empty_comparison() -> Comparison:
    """Almost nothing was measured."""
    run, reason = empty_analysis(), note("no step was closed on either side")
    slowdown = Measure("recording_slowdown", None, "x", reason=note("no breakdown pass was made"))
    return Comparison(
        title="SYNTHETIC: empty",
        created_at="2025-01-02T03:10:00+00:00",
        sides=tuple(Side(label, "", (run,), None, run.measures, slowdown) for label in ("a", "b")),
        ratios={"b": {"tokens_per_s": Ratio("tokens_per_s", None, None, None, 0, different=False, reason=reason)}},
        pairs=0,
        comparable=True,
        mismatches=(),
        forced=False,
        verdict="Nothing could be concluded: no step was closed on either side.",
    )


def build_section(plugin: SectionPlugin, results: Results) -> Section | None:
    """The section of a plug-in for these results."""
    return plugin.build(ReportInput.from_results(results))


def sides(results: Results) -> tuple[ReportSide, ...]:
    """The sides of the report of these results."""
    return ReportInput.from_results(results).sides
