"""The report for programs: strict JSON of a documented schema (docs/json.md), from the values, not from the blocks.

The one renderer that knows metrics, since their names are its schema. What was not measured is null, and
`not_measured` maps its path to the reason; NaN and infinities are not measured either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from profiler.analyse.model import DEVICE_CATEGORIES, HOST_CATEGORIES, Analysis, Comparison, IdleBlame, Measure
from profiler.core.notice import Notice
from profiler.core.plugins import call_plugin, entry_points
from profiler.report.render.json_found import found_json
from profiler.report.render.json_values import Gaps, clean, ranges_json, ratio_json, strict
from profiler.report.subject import View, breakdown_reason, devices, side_view, views
from profiler.report.text import describe, host_state, mismatch, missing_name
from profiler.run.model import RunInfo

COMPARISON_SCHEMA = "comparison/1"
RUN_SCHEMA = "run/1"
HISTORY = {1: "first schema"}
SIDE_KEYS = (
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
"""Measures that every side has, measured or not; others that were found follow them."""


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON report of a comparison; `before` is the baseline and `after` the last side."""
    gaps = Gaps()
    sides = [_side(view, f"sides.{index}", gaps) for index, view in enumerate(views(comparison))]
    last = comparison.sides[-1].label if len(comparison.sides) > 1 else ""
    throughput = comparison.ratios.get(last, {}).get("tokens_per_s")
    report: dict[str, Any] = {
        "schema": COMPARISON_SCHEMA,
        "title": comparison.title,
        "created_at": comparison.created_at,
        "verdict": comparison.verdict,
        "comparable": comparison.comparable,
        "forced": comparison.forced,
        "reasons": [mismatch(one) for one in comparison.mismatches],
        "device": devices(views(comparison)),
        "pairs": comparison.pairs,
        "throughput_ratio": ratio_json(throughput, "throughput_ratio", gaps),
        "before": _side(views(comparison)[0], "before", gaps) if comparison.sides else None,
        "after": _side(views(comparison)[-1], "after", gaps) if last else None,
        "sides": sides,
        "ratios": {
            label: {name: ratio_json(ratio, f"ratios.{label}.{name}", gaps) for name, ratio in ratios.items()}
            for label, ratios in comparison.ratios.items()
        },
        "floor": _side(side_view(comparison.floor, "floor"), "floor", gaps) if comparison.floor else None,
        "differences": [{"name": name, "values": list(values)} for name, values in comparison.differences],
        "environment": [{"name": name, "value": value} for name, value in comparison.environment],
        "method": [describe(notice) for notice in comparison.method],
    }
    for name, to_json in entry_points("json").items():
        report[name] = call_plugin(f"{name} (json)", to_json, comparison, gaps)
    if comparison.floor is None:
        gaps.reasons["floor"] = "no floor was measured for this baseline"
    if not last:
        gaps.reasons["after"] = "there is one side only"
    return _closed(report, gaps)


def analysis_json(analysis: Analysis) -> dict[str, Any]:
    """The JSON report of one run."""
    gaps = Gaps()
    report: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "verdict": analysis.verdict,
        "device": devices(views(analysis)),
        "run": _side(views(analysis)[0], "run", gaps),
        "environment": _environment(analysis.info, gaps),
        **found_json(analysis, gaps),
        "notes": [describe(warning) for warning in analysis.warnings],
        "missing": [{"what": missing_name(gap), "reason": describe(gap.reason)} for gap in analysis.missing],
    }
    return _closed(report, gaps)


def render(document: Mapping[str, Any]) -> str:
    """Strict JSON text of a document of this module."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _closed(report: dict[str, Any], gaps: Gaps) -> dict[str, Any]:
    report["not_measured"] = gaps.reasons
    cleaned: dict[str, Any] = clean(report)
    return cleaned


def _side(view: View, path: str, gaps: Gaps) -> dict[str, Any]:
    names = [*SIDE_KEYS, *sorted({*view.measures, *view.any_detail.measures}.difference(SIDE_KEYS))]
    side: dict[str, Any] = {"label": view.label, "command": view.info.argv, "runs": len(view.runs)}
    for name in names:
        measure = view.measure(name)
        side[name] = gaps.number(f"{path}.{name}", measure.value, measure.reason)
    side["ranges"] = ranges_json({name: view.measure(name) for name in names})
    for key, parts, always in (
        ("breakdown", view.any_detail.breakdown, HOST_CATEGORIES),
        ("device_breakdown", view.any_detail.device_breakdown, DEVICE_CATEGORIES),
    ):
        absent = Measure("", None, "s", reason=Notice("text", {"text": breakdown_reason(view)}))
        measures = {name: parts.get(name, absent) for name in dict.fromkeys((*always, *parts))}
        side[key] = {name: gaps.number(f"{path}.{key}.{name}", m.value, m.reason) for name, m in measures.items()}
    if view.slowdown is not None:
        slowdown = view.slowdown
        side["recording_slowdown"] = gaps.number(f"{path}.recording_slowdown", slowdown.value, slowdown.reason)
    side["idle"] = [_idle(blame, f"{path}.idle.{index}", gaps) for index, blame in enumerate(view.any_detail.idle)]
    return side


def _idle(blame: IdleBlame, path: str, gaps: Gaps) -> dict[str, Any]:
    if blame.site is None:
        gaps.reasons[f"{path}.file"] = gaps.reasons[f"{path}.line"] = "no site was recorded"
    return {
        "doing": host_state(blame),
        "category": blame.category,
        "file": blame.site.file if blame.site else None,
        "line": blame.site.line if blame.site else None,
        "seconds_per_step": gaps.number(f"{path}.seconds_per_step", blame.seconds_per_step, ""),
        "share_of_wall": gaps.number(f"{path}.share_of_wall", blame.share_of_wall, ""),
    }


def _environment(info: RunInfo, gaps: Gaps) -> dict[str, Any]:
    if info.git_commit is None:
        gaps.reasons["environment.git_commit"] = "the program was not started in a git checkout"
    return {
        "run_id": info.run_id,
        "started_at": info.started_at,
        "state": info.state,
        "level": info.level,
        "git_commit": info.git_commit,
        "host": strict(info.host),
        "devices": strict(info.devices),
        "versions": strict(info.versions),
        "facts": strict(info.facts),
    }
