"""The report for programs: strict JSON of a documented schema (docs/json.md), from the values and not from the blocks.

The one renderer that knows metrics, because their names are its schema. What was not measured is null, and
`not_measured` maps its path to the reason; NaN and infinities are not measured either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from profiler.analyse.model import (
    DEVICE_CATEGORIES,
    HOST_CATEGORIES,
    Analysis,
    Comparison,
    IdleBlame,
    InputPart,
    LineCost,
    Measure,
    Phase,
    Ratio,
    Spikes,
    ThreadActivity,
)
from profiler.core.notice import Notice
from profiler.core.plugins import call_plugin
from profiler.core.terminal import plain
from profiler.report.build import section_plugins
from profiler.report.model import MissingReasons, ReportInput, ReportSide, report_side
from profiler.report.text import (
    PERIODS,
    THREAD_STATES,
    describe,
    host_state,
    input_part,
    mismatch,
    missing_name,
    step_text,
)
from profiler.run.model import RunInfo, Site

COMPARISON_SCHEMA: Final = "comparison/1"
RUN_SCHEMA: Final = "run/1"
HISTORY: Final = {1: "first schema"}
SIDE_KEYS: Final = (
    "tokens_per_s",
    "steps",
    "step_time",
    "syncs_per_step",
    "h2d_per_step",
    "d2h_per_step",
    "allocations_per_step",
    "device_utilization",
    "host_cpu",
    "peak_memory",
    "loss",
    "accuracy",
)
"""Measures that every side has, measured or not; others follow them."""


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON report of a comparison; `before` is the baseline and `after` the last side."""
    reasons, report_input = MissingReasons(), ReportInput.from_results(comparison)
    sides = report_input.sides
    documents = [_side(side, f"sides.{index}", reasons) for index, side in enumerate(sides)]
    last = sides[-1].label if len(sides) > 1 else ""
    report: dict[str, Any] = {
        "schema": COMPARISON_SCHEMA,
        **_fields(comparison, "title", "created_at", "verdict", "comparable", "forced"),
        "reasons": [mismatch(item) for item in comparison.mismatches],
        "device": report_input.devices,
        "pairs": comparison.pairs,
        "throughput_ratio": ratio_json(report_input.ratio(last, "tokens_per_s"), "throughput_ratio", reasons),
        "before": _side(sides[0], "before", reasons) if sides else None,
        "after": _side(sides[-1], "after", reasons) if last else None,
        "sides": documents,
        "ratios": {
            label: {name: ratio_json(ratio, f"ratios.{label}.{name}", reasons) for name, ratio in ratios.items()}
            for label, ratios in comparison.ratios.items()
        },
        "floor": _side(report_side(comparison.floor, "floor"), "floor", reasons) if comparison.floor else None,
        "differences": [{"name": name, "values": list(values)} for name, values in comparison.differences],
        "environment": [{"name": name, "value": value} for name, value in comparison.environment],
        "method": [describe(notice) for notice in comparison.method],
        **_section_keys(report_input, reasons),
    }
    if comparison.floor is None:
        reasons.add("floor", "no floor was measured for this baseline")
    if not last:
        reasons.add("after", "there is one side only")
    return _complete(report, reasons)


def analysis_json(analysis: Analysis) -> dict[str, Any]:
    """The JSON report of one run."""
    reasons, report_input = MissingReasons(), ReportInput.from_results(analysis)
    report: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "verdict": analysis.verdict,
        "device": report_input.devices,
        "run": _side(report_input.sides[0], "run", reasons),
        "environment": _environment(analysis.info, reasons),
        "step_source": step_text(analysis.step),
        "phases": [_phase(phase, f"phases.{index}", reasons) for index, phase in enumerate(analysis.phases)],
        "hot": [
            {
                **_site(row.site, function=True),
                **_fields(row, "kind", "operation", "calls_per_step"),
                **_fields(row, "seconds_per_step", "blocked_per_step", "bytes_per_step"),
            }
            for row in analysis.call_sites
        ],
        "doing": [_thread(thread, f"doing.{index}", reasons) for index, thread in enumerate(analysis.threads)],
        "lines": _lines(analysis.lines),
        "input": [_input(part, f"input.{index}", reasons) for index, part in enumerate(analysis.input)],
        "outside": [
            {"name": PERIODS[period.period], "seconds": period.seconds, "lines": _lines(period.lines)}
            for period in analysis.startup_teardown
        ],
        "spikes": _spikes(analysis.spikes, reasons),
        "notes": [describe(warning) for warning in analysis.warnings],
        "missing": [{"what": missing_name(gap), "reason": describe(gap.reason)} for gap in analysis.missing],
        **_section_keys(report_input, reasons),
    }
    return _complete(report, reasons)


def render(document: Mapping[str, Any]) -> str:
    """Strict JSON text of a document of this module."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _section_keys(report_input: ReportInput, reasons: MissingReasons) -> dict[str, Any]:
    """The keys that sections add; one that fails is left out."""
    keys: dict[str, Any] = {}
    for plugin in section_plugins():
        if plugin.json is not None:
            keys |= call_plugin(f"{plugin.name} (json)", plugin.json, report_input, reasons) or {}
    return keys


def _complete(report: dict[str, Any], reasons: MissingReasons) -> dict[str, Any]:
    """The report with the reasons of what is null, and without characters that readers of JSON refuse."""
    report["not_measured"] = reasons.reasons
    cleaned: dict[str, Any] = clean(report)
    return cleaned


def _fields(item: object, *names: str) -> dict[str, Any]:
    """Attributes that are called the same in JSON."""
    return {name: getattr(item, name) for name in names}


def _site(site: Site | None, *, function: bool = False) -> dict[str, Any]:
    keys = ("file", "line", "function") if function else ("file", "line")
    return {key: getattr(site, key, None) for key in keys}


def _optional_site(site: Site | None, path: str, reasons: MissingReasons, reason: str) -> dict[str, Any]:
    if site is None:
        reasons.add(f"{path}.file", reason)
        reasons.add(f"{path}.line", reason)
    return _site(site)


_NO_LINE: Final = "no line of the program's own was seen"


def _side(side: ReportSide, path: str, reasons: MissingReasons) -> dict[str, Any]:
    names = [*SIDE_KEYS, *sorted({*side.measures, *side.detailed.measures}.difference(SIDE_KEYS))]
    measures = {name: side.measure(name) for name in names}
    result: dict[str, Any] = {"label": side.label, "command": side.info.argv, "runs": len(side.runs)}
    result |= measures_json(measures, path, reasons)
    result["ranges"] = ranges_json(measures)
    for key, parts, categories in (
        ("breakdown", side.detailed.breakdown, HOST_CATEGORIES),
        ("device_breakdown", side.detailed.device_breakdown, DEVICE_CATEGORIES),
    ):
        absent = Measure("", None, "s", reason=Notice("text", {"text": side.why_no_breakdown()}))
        by_category = {name: parts.get(name, absent) for name in dict.fromkeys((*categories, *parts))}
        result[key] = measures_json(by_category, f"{path}.{key}", reasons)
    if side.slowdown is not None:
        result |= measures_json({"recording_slowdown": side.slowdown}, path, reasons)
    result["idle"] = [_idle(row, f"{path}.idle.{index}", reasons) for index, row in enumerate(side.detailed.idle)]
    return result


def _idle(row: IdleBlame, path: str, reasons: MissingReasons) -> dict[str, Any]:
    return {
        "doing": host_state(row),
        "category": row.category,
        **_optional_site(row.site, path, reasons, "no site was recorded"),
        "seconds_per_step": reasons.number(f"{path}.seconds_per_step", row.seconds_per_step, None),
        "share_of_wall": reasons.number(f"{path}.share_of_wall", row.share_of_wall, None),
    }


def _environment(info: RunInfo, reasons: MissingReasons) -> dict[str, Any]:
    if info.git_commit is None:
        reasons.add("environment.git_commit", "the program was not started in a git checkout")
    return {
        **_fields(info, "run_id", "started_at", "state", "level", "git_commit"),
        **{name: strict(getattr(info, name)) for name in ("host", "devices", "versions", "facts")},
    }


def _thread(thread: ThreadActivity, path: str, reasons: MissingReasons) -> dict[str, Any]:
    return {
        **_fields(thread, "process", "pid", "thread", "tid"),
        "answer": THREAD_STATES[thread.state],
        **_fields(thread, "share", "low", "high", "samples"),
        **_optional_site(thread.site, path, reasons, _NO_LINE),
        "on_cpu": reasons.number(f"{path}.on_cpu", thread.on_cpu, "the thread's clock was not read"),
        "gil": reasons.number(f"{path}.gil", thread.gil, "no window of the GIL's holder was recorded"),
        "parts": {THREAD_STATES[state]: share for state, share in thread.states},
    }


def _phase(phase: Phase, path: str, reasons: MissingReasons) -> dict[str, Any]:
    numbers = _fields(phase, "name", "seconds_per_step", "share", "low", "high")
    return {**numbers, **_optional_site(phase.site, path, reasons, _NO_LINE), "calls": phase.calls}


def _lines(lines: Iterable[LineCost]) -> list[dict[str, Any]]:
    return [
        {
            **_site(line.site, function=True),
            **_fields(line, "calls", "seconds_per_step", "share", "low", "high", "samples"),
            "categories": dict(line.categories),
        }
        for line in lines
    ]


def _input(part: InputPart, path: str, reasons: MissingReasons) -> dict[str, Any]:
    numbers = _fields(part, "where", "seconds_per_step", "share")
    return {"name": input_part(part), **numbers, **_optional_site(part.site, path, reasons, _NO_LINE)}


def _spikes(spikes: Spikes | None, reasons: MissingReasons) -> dict[str, Any] | None:
    if spikes is None:
        reasons.add("spikes", "no step takes much longer than the others")
        return None
    return {
        **_fields(spikes, "count", "steps", "every", "times", "share", "samples", "enough"),
        "lines": [{**_site(line.site, function=True), "share": line.share} for line in spikes.lines],
    }


def measures_json(measures: Mapping[str, Measure], path: str, reasons: MissingReasons) -> dict[str, float | None]:
    """The values of measures."""
    return {name: reasons.number(f"{path}.{name}", item.value, item.reason) for name, item in measures.items()}


def ratio_json(ratio: Ratio | None, path: str, reasons: MissingReasons) -> dict[str, Any]:
    """A ratio with its interval."""
    ratio = ratio or Ratio("", None, None, None, 0, different=False, reason=Notice("no-pair"))
    why = ratio.reason or "too few pairs for an interval"
    ends = {key: reasons.number(f"{path}.{key}", getattr(ratio, key), why) for key in ("value", "low", "high")}
    return {**ends, **_fields(ratio, "n", "different")}


def ranges_json(measures: Mapping[str, Measure]) -> dict[str, Any]:
    """The lowest and the highest run of the measures that have a range."""
    return {
        name: _fields(measure, "low", "high", "n")
        for name, measure in measures.items()
        if measure.low is not None and measure.high is not None and math.isfinite(measure.low + measure.high)
    }


def clean(value: Any) -> Any:
    """Text without control characters and lone surrogates, which some readers of JSON refuse."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def strict(value: Any) -> Any:
    """The content of a manifest, with text for values that JSON cannot express."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if value is None:
        return "unknown"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | bool | int | float) else str(value)
