"""Writes the report for programs: strict JSON of a documented schema (docs/json.md), from values and not from blocks.

The one renderer that knows metrics, because their names are its schema. What was not measured is null, and
`not_measured` maps its path to the reason; NaN and infinities are not measured either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from profiler.analyse.finding import Finding, compare_findings
from profiler.analyse.ledger.cells import SMALLEST
from profiler.analyse.model import (
    DEVICE_CATEGORIES,
    HOST_CATEGORIES,
    WAIT_CATEGORIES,
    Analysis,
    Comparison,
    LineCost,
    Measure,
    RankLedger,
    Ratio,
    ResultComparison,
    Spikes,
    ThreadActivity,
)
from profiler.core.notice import Notice
from profiler.core.plugins import call_plugin
from profiler.core.terminal import plain
from profiler.report.build import section_plugins
from profiler.report.finding_text import finding_text
from profiler.report.model import ReportInput, ReportSide
from profiler.report.rank_text import none_waits
from profiler.report.text import (
    NO_REASON,
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
_CALLS: Final = ("syncs_per_step", "h2d_per_step", "d2h_per_step", "allocations_per_step")
_USE: Final = ("device_utilization", "host_cpu", "peak_memory", "loss", "accuracy")
SIDE_KEYS: Final = ("tokens_per_s", "steps", "step_time", *_CALLS, *_USE)
"""Measures that every side has, measured or not; others follow them."""
_NOWHERE: Final = Site("", 0, "")
_NO_LINE: Final = "no line of the program's own was seen"


@dataclass(frozen=True, slots=True)
class Null:
    """Stands in a document for a value that was not measured, until `complete` replaces it with null."""

    reason: Notice | str | None


def number(value: float | None, reason: Notice | str | None) -> float | Null:
    """The value, or the reason why there is none."""
    return Null(reason) if value is None else value


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON report of a comparison; `before` is the baseline and `after` the last side."""
    report_input = ReportInput.from_results(comparison)
    sides = [_side(side) for side in report_input.sides]
    last = report_input.sides[-1].label if len(sides) > 1 else ""
    floor = comparison.floor and _side(ReportSide.from_side(comparison.floor, "floor"))
    return complete({
        "schema": COMPARISON_SCHEMA,
        **_fields(comparison, "title", "created_at", "verdict", "comparable", "forced"),
        "reasons": [mismatch(item) for item in comparison.mismatches],
        "device": report_input.devices,
        "results": [_result(result) for result in comparison.results],
        "pairs": comparison.pairs,
        "planned_pairs": comparison.pairs if comparison.planned is None else comparison.planned,
        "throughput_ratio": ratio_json(report_input.ratio(last, "tokens_per_s")),
        "before": sides[0] if sides else None,
        "after": sides[-1] if last else Null("there is one side only"),
        "sides": sides,
        "ratios": {
            label: {name: ratio_json(ratio) for name, ratio in ratios.items()}
            for label, ratios in comparison.ratios.items()
        },
        "findings": [*_changes(report_input)],
        "floor": floor or Null("no floor was measured for this baseline"),
        "differences": [{"name": name, "values": list(values)} for name, values in comparison.differences],
        "environment": [{"name": name, "value": value} for name, value in comparison.environment],
        "method": [describe(notice) for notice in comparison.method],
        **_section_keys(report_input),
    })  # fmt: skip


def _result(result: ResultComparison) -> dict[str, Any]:
    difference = result.difference
    return {
        **_fields(result, "name", "runs", "compared", "stated", "near_ties"),
        "same": result.are_same,
        "missing": list(result.missing),
        "different": difference.different if difference else 0,
        "side": result.side,
    }


def analysis_json(analysis: Analysis) -> dict[str, Any]:
    """The JSON report of one run."""
    report_input = ReportInput.from_results(analysis)
    return complete({
        "schema": RUN_SCHEMA,
        "verdict": analysis.verdict,
        **finding_keys(analysis),
        "device": report_input.devices,
        "run": _side(report_input.sides[0]),
        "environment": _environment(analysis.info),
        "step_source": step_text(analysis.step),
        "phases": [
            {
                **_fields(phase, "name", "seconds_per_step", "share", "low", "high"),
                **_file_and_line(phase.site),
                "calls": phase.calls,
            }
            for phase in analysis.phases
        ],
        "hot": [
            {
                **_site(row.site),
                **_fields(row, "kind", "operation", "calls_per_step"),
                **_fields(row, "seconds_per_step", "blocked_per_step", "bytes_per_step"),
            }
            for row in analysis.call_sites
        ],
        "doing": [_thread(thread) for thread in analysis.threads],
        "lines": _lines(analysis.lines),
        "cells": [*_cells(analysis)],
        "input": [
            {
                "name": input_part(part),
                **_fields(part, "where", "seconds_per_step", "share"),
                **_file_and_line(part.site),
            }
            for part in analysis.input
        ],
        "outside": [
            {"name": PERIODS[period.period], "seconds": period.seconds, "lines": _lines(period.lines)}
            for period in analysis.startup_teardown
        ],
        "stages": [
            {"name": row.stage.value, **_fields(row, "seconds", "share", "low", "high")} for row in analysis.stages
        ],
        "spikes": _spikes(analysis.spikes) if analysis.spikes else Null("no step takes much longer than the others"),
        **({"ranks": _ranks(analysis.ranks)} if analysis.ranks else {}),
        "notes": [describe(warning) for warning in analysis.warnings],
        "missing": [{"what": missing_name(gap), "reason": describe(gap.reason)} for gap in analysis.missing],
        **_section_keys(report_input),
    })  # fmt: skip


def finding_keys(analysis: Analysis) -> dict[str, Any]:
    """What the rules say about a run: `findings` and `not_judged`."""
    return {
        "findings": [_finding(finding) for finding in analysis.findings],
        "not_judged": [{"rule": rule.rule.name, "reason": describe(rule.reason)} for rule in analysis.not_judged],
    }


def _changes(report_input: ReportInput) -> Iterator[dict[str, Any]]:
    """What became of the findings about the baseline on each other side, where both have a breakdown pass."""
    base, *others = report_input.sides
    before = base.detailed.judged
    for side in others:
        after = side.detailed.judged
        for change in compare_findings(before, after) if before and after else ():
            yield {
                "side": side.label,
                "state": change.state.value,
                "rule": change.finding.rule.name,
                "before": _finding(change.before) if change.before else Null(f"{base.label} does not have it"),
                "after": _finding(change.after) if change.after else Null(f"{side.label} does not have it"),
            }


def _finding(finding: Finding) -> dict[str, Any]:
    text = finding_text(finding)
    return {
        "rule": finding.rule.name,
        **_fields(finding, "seconds", "share", "low", "high"),
        "confidence": finding.confidence.value,
        "costs": dict(finding.costs),
        "is_of_run": finding.is_of_run,
        "title": text.title,
        "evidence": list(text.evidence),
        "fix": text.fix,
        "code": text.code,
        "sites": [_site(site) for site in finding.sites],
        "gains": [
            {"method": gain.method.value, **_fields(gain, "factor", "low", "high", "is_least", "is_most")}
            for gain in finding.gains
        ],
        **_fields(finding, "left_out"),
        "overlaps": finding.overlaps,
    }


def render(document: Mapping[str, Any]) -> str:
    """Strict JSON text of a document of this module."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _section_keys(report_input: ReportInput) -> dict[str, Any]:
    """The keys that sections add; one that fails is left out."""
    keys: dict[str, Any] = {}
    for plugin in section_plugins():
        if plugin.json is not None:
            keys |= call_plugin(f"{plugin.name} (json)", plugin.json, report_input) or {}
    return keys


def _fields(item: object, *names: str) -> dict[str, Any]:
    """Attributes that are called the same in JSON."""
    return {name: getattr(item, name) for name in names}


def _site(site: Site | None) -> dict[str, Any]:
    return {**{key: getattr(site, key, None) for key in ("file", "line", "function")}, **_source(site)}


def _file_and_line(site: Site | None, reason: str = _NO_LINE) -> dict[str, Any]:
    return {**{key: getattr(site, key, Null(reason)) for key in ("file", "line")}, **_source(site)}


def _source(site: Site | None) -> dict[str, str]:
    """The text of a line; empty where it is not known."""
    return {"source": site.source if site else ""}


def _side(side: ReportSide) -> dict[str, Any]:
    names = [*SIDE_KEYS, *sorted({*side.measures, *side.detailed.measures}.difference(SIDE_KEYS))]
    measures = {name: side.measure(name) for name in names}
    result: dict[str, Any] = {"label": side.label, "command": side.info.argv, "runs": len(side.runs)}
    result |= measures_json(measures)
    result["ranges"] = ranges_json(measures)
    for key, parts, categories in (
        ("breakdown", side.detailed.breakdown, HOST_CATEGORIES),
        ("device_breakdown", side.detailed.device_breakdown, DEVICE_CATEGORIES),
    ):
        absent = Measure("", None, "s", reason=Notice("text", {"text": side.why_no_breakdown()}))
        usual = (name for name in categories if name not in WAIT_CATEGORIES)
        result[key] = measures_json({name: parts.get(name, absent) for name in dict.fromkeys((*usual, *parts))})
    if side.slowdown is not None:
        result |= measures_json({"recording_slowdown": side.slowdown})
    result["device_parts"] = [
        _fields(part, "kind", "memory", "share", "exposed") for part in side.detailed.device_parts
    ]
    result["idle"] = [
        {
            "doing": host_state(row),
            "category": row.category,
            **_file_and_line(row.site, "no site was recorded"),
            **_fields(row, "seconds_per_step", "share_of_wall"),
        }
        for row in side.detailed.idle
    ]
    return result


def _environment(info: RunInfo) -> dict[str, Any]:
    return {
        **_fields(info, "run_id", "started_at", "state", "level"),
        "git_commit": info.git_commit or Null("the program was not started in a git checkout"),
        **{name: strict(getattr(info, name)) for name in ("host", "devices", "versions", "facts")},
    }


def _thread(thread: ThreadActivity) -> dict[str, Any]:
    return {
        **_fields(thread, "process", "pid", "thread", "tid"),
        "answer": THREAD_STATES[thread.state],
        **_fields(thread, "share", "low", "high", "samples"),
        **_file_and_line(thread.site),
        "on_cpu": number(thread.on_cpu, "the thread's clock was not read"),
        "gil": number(thread.gil, "no window of the GIL's holder was recorded"),
        "parts": {THREAD_STATES[state]: share for state, share in thread.states},
    }


def _lines(lines: Iterable[LineCost]) -> list[dict[str, Any]]:
    names = ("calls", "seconds_per_step", "share", "low", "high", "samples")
    return [{**_site(line.site), **_fields(line, *names), "categories": dict(line.categories)} for line in lines]


def _cells(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """The ledger: each cell with the findings that have it, without those that are too small to matter."""
    ledger = analysis.ledger
    if ledger is None:
        return
    for cell in ledger.cells:
        if cell.seconds < SMALLEST * ledger.wall[cell.rank, cell.thread, cell.period]:
            continue
        yield {
            **_fields(cell, "rank", "thread"),
            "period": cell.period.value,
            **_fields(cell, "activity", "kind"),
            "owner": cell.owner.value,
            "package": cell.package,
            **_fields(cell.place or _NOWHERE, "file", "line", "source"),
            "inside": cell.function,
            "entry": f"{cell.entry.file}:{cell.entry.line}" if cell.entry else "",
            "recurrence": cell.recurrence.value,
            **_fields(cell, "every", "seconds", "low", "high", "samples"),
            "findings": dict(cell.findings),
        }


def _spikes(spikes: Spikes) -> dict[str, Any]:
    return {
        **_fields(spikes, "count", "steps", "every", "times", "share", "samples", "enough"),
        "stage": spikes.stage,
        "stage_share": spikes.stage_share,
        "categories": dict(spikes.categories),
        "lines": [{**_site(line.site), **_fields(line, "share", "calls")} for line in spikes.lines],
    }


def _ranks(ledger: RankLedger) -> dict[str, Any]:
    straggler, unknown = ledger.straggler, ledger.reason
    names = ("rank", "lead", "category", "seconds", "others", "at_line", "core")
    return {
        **_fields(ledger, "size", "analysed", "synchronous", "uniform"),
        "few_steps": list(ledger.few_steps),
        "straggler": {**_fields(straggler, *names), **_site(straggler.site), "alike": list(straggler.alike)}
        if straggler
        else Null(unknown or none_waits(len(ledger.ranks))),
        "ledger": [
            {
                **_fields(each, "rank", "pid", "steps", "excluded", "step_time"),
                "own_work": number(each.own_work, unknown),
                "last": number(each.last, unknown),
                "breakdown": dict(each.categories),
            }
            for each in ledger.ranks
        ],
        "collectives": [
            {
                **_fields(each, "name", "rank", "last", "seconds", "at_line"),
                **_site(each.site),
                "before": _site(each.before) if each.before else Null(each.reason),
            }
            for each in ledger.collectives
        ],
    }


def measures_json(measures: Mapping[str, Measure]) -> dict[str, float | Null]:
    """The values of measures."""
    return {name: number(item.value, item.reason) for name, item in measures.items()}


def ratio_json(ratio: Ratio | None) -> dict[str, Any]:
    """A ratio with its interval."""
    ratio = ratio or Ratio("", None, None, None, 0, different=False, reason=Notice("no-pair"))
    why = ratio.reason or "too few pairs for an interval"
    ends = {key: number(getattr(ratio, key), why) for key in ("value", "low", "high")}
    bound = {} if ratio.bound is None else {"bound": ratio.bound}
    return {**ends, **_fields(ratio, "n", "different"), **bound}


def ranges_json(measures: Mapping[str, Measure]) -> dict[str, Any]:
    """The lowest and the highest run of the measures that have a range."""
    return {
        name: _fields(measure, "low", "high", "n")
        for name, measure in measures.items()
        if measure.low is not None and measure.high is not None and math.isfinite(measure.low + measure.high)
    }


def complete(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document in plain text and finite numbers; why values are null is at their paths in `not_measured`."""
    reasons: dict[str, str] = {}
    return {**_clean(document, "", reasons), "not_measured": clean(reasons)}


def clean(value: Any) -> Any:
    """Text without control characters and lone surrogates, which some readers of JSON refuse."""
    return _clean(value, "", {})


def _clean(value: Any, path: str, reasons: dict[str, str]) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        return {plain(str(key)): _clean(item, f"{prefix}{key}", reasons) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, f"{path}.{index}", reasons) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        value = Null(f"not a finite number: {value}")
    if isinstance(value, Null):
        reasons[path] = (value.reason if isinstance(value.reason, str) else describe(value.reason)) or NO_REASON
        return None
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
