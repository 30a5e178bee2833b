"""Writes the report for programs: strict JSON of an analysis or a comparison, by the names of the fields.

The schema is that of the dataclasses of `profiler.analyse`: docs/json.md is generated from the docstrings of their
fields. A value that is not known is null; where the reason was recorded, `not_measured` maps its path to the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Mismatch
from profiler.analyse.model.device import RunCounts
from profiler.analyse.model.finding import Finding, RuleText, compare_findings
from profiler.analyse.model.ledger import SMALLEST, Ledger
from profiler.core.errors import Notice
from profiler.core.plugins import call_plugin
from profiler.core.terminal import plain
from profiler.report.build import section_plugins
from profiler.report.counts import KINDS, PerStep
from profiler.report.finding_text import finding_text
from profiler.report.model import ReportInput, Results
from profiler.report.next_step import counts_next_step, results_next_step
from profiler.report.notices import describe, mismatch

COMPARISON_SCHEMA: Final = "comparison/2"
RUN_SCHEMA: Final = "run/2"
HISTORY: Final = {1: "first schema", 2: "keys are the names of the fields, and a measure is an object with its unit"}
LEFT_OUT: Final = frozenset({
    # They have formats of their own: `export`, `report --format html`, and the document of each run.
    *("Analysis.flame", "Analysis.series", "Analysis.timeline", "Comparison.flame_diff", "Side.runs"),
    # Rules work out findings from them, and cells have the same time.
    *("Analysis.library", "Analysis.memory_fills", "Analysis.operators", "Analysis.preparation", "Analysis.replay"),
    *("Analysis.made", "Analysis.steady_launches", "Analysis.tables"),
    *("Finding.values", "Cell.callers"),
    # A comparison has their differences.
    "Analysis.results",
    # Plug-ins write them.
    "Comparison.extensions",
    # They are folders of the machine.
    *("Analysis.path", "RunInfo.cwd", "RunInfo.project"),
})  # fmt: skip
"""Fields that no document has, as `Class.field`."""
WORDS: Final = ("title", "evidence", "fix", "code")
"""What a finding says, from the templates of its rule."""


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """Return the JSON report of a comparison; the first side is the baseline."""
    return _document(COMPARISON_SCHEMA, comparison, changes=[*_changes(comparison)])


def analysis_json(analysis: Analysis) -> dict[str, Any]:
    """Return the JSON report of one run."""
    return _document(RUN_SCHEMA, analysis)


def _document(schema: str, results: Results, **more: Any) -> dict[str, Any]:
    """Return the fields of the results, and the keys that sections add; a section that fails is left out."""
    report_input = ReportInput.from_results(results)
    head = {"schema": schema, "next_step": results_next_step(report_input), "device": report_input.devices}
    document = {**head, **values_of(results), **more}
    for plugin in section_plugins():
        if plugin.json is not None:
            document |= call_plugin(f"{plugin.name} (json)", plugin.json, report_input) or {}
    return complete(document)


def _changes(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Tell what became of the findings about the baseline on each other side, where both have a breakdown pass."""
    judged = {side.label: side.detail.judged if side.detail else None for side in comparison.sides}
    base, *others = judged
    for label in others:
        before, after = judged[base], judged[label]
        for change in compare_findings(before, after) if before and after else ():
            yield {"side": label, **values_of(change)}


def render(document: Mapping[str, Any]) -> str:
    """Return strict JSON text of a document of this module."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def complete(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document in plain values, with `not_measured`: the path of a null -> its reason."""
    reasons: dict[str, str] = {}
    return {**_plain(document, "", reasons), "not_measured": reasons}


def clean(value: Any) -> Any:
    """Return plain values of JSON, without control characters and lone surrogates, which some readers refuse."""
    return _plain(value, "", {})


def values_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass without LEFT_OUT.

    A finding also has its words, because only its rule can make them. A ledger lacks cells that are too small to
    matter, of which there are thousands.
    """
    kind = type(value).__name__
    values = {each.name: getattr(value, each.name) for each in fields(value) if f"{kind}.{each.name}" not in LEFT_OUT}
    if isinstance(value, Finding):
        text = finding_text(value)
        values |= {name: getattr(text, name) for name in (*WORDS, "cure_site")}
    if isinstance(value, Ledger):
        least = {part: SMALLEST * seconds for part, seconds in value.wall.items()}
        values["cells"] = [each for each in value.cells if each.seconds >= least[each.rank, each.thread, each.period]]
    return values


def _plain(value: Any, path: str, reasons: dict[str, str]) -> Any:
    """Return a value as JSON has it; the reasons of its nulls are added to `reasons`."""
    match value:
        case Notice():
            return plain(describe(value))
        case RuleText():
            return value.name
        case IntEnum():
            return value.name.lower().replace("_", "-")
        case Enum():
            return value.value
        case float() if not math.isfinite(value):
            reasons[path] = f"not a finite number: {value}"
            return None
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return [_plain(item, _below(path, str(index)), reasons) for index, item in enumerate(value)]
    if is_dataclass(value):
        reason, value = getattr(value, "reason", None), values_of(value)
        if isinstance(reason, Notice):
            nulls = [name for name, item in value.items() if item is None]
            for name in ["value"] if "value" in nulls else nulls:
                reasons[_below(path, name)] = plain(describe(reason))
    if isinstance(value, Mapping):
        items = {
            plain("/".join(map(str, key)) if isinstance(key, tuple) else str(key)): item for key, item in value.items()
        }
        return {key: _plain(item, _below(path, key), reasons) for key, item in items.items()}
    return plain(str(value))


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


# ---------------------------------------------------------------- counts


def counts_json(counted: RunCounts) -> dict[str, Any]:
    """Return the counts as data: `steps`, `devices`, `card`, and for each line its kind, call, place and numbers."""
    return {
        "next_step": counts_next_step(counted),
        "steps": counted.steps,
        "devices": counted.info.facts.get("virtual_cuda"),
        "card": counted.info.facts.get("virtual_card"),
        "waits_per_step": sum(count.mean for count in counted.counts if count.waits),
        "waits_per_usual_step": PerStep.sum_of([count for count in counted.counts if count.waits]).usual,
        "per_step": {
            kind.name.lower(): {
                "number": sum(count.mean for count in own),
                "usual": PerStep.sum_of(own).usual,
                "bytes": sum(count.bytes_per_step for count in own),
            }
            for kind in KINDS
            if (own := [count for count in counted.counts if count.kind is kind])
        },
        "counts": [
            {
                "kind": count.kind.name.lower(),
                "call": count.name,
                "waits": count.waits,
                "file": count.site.file if count.site else None,
                "line": count.site.line if count.site else None,
                "function": count.site.function if count.site else None,
                "source": count.site.source if count.site else None,
                "libraries": [
                    {"file": frame.file, "line": frame.line, "function": frame.function, "source": frame.source}
                    | {"calls": calls}
                    for frame, calls in count.frames
                ],
                "per_step": count.mean,
                "usual": count.usual[0],
                "bytes_per_step": count.bytes_per_step,
                "usual_bytes": count.usual[1],
                "before_second_step": count.before,
                "bytes_before_second_step": count.before_bytes,
            }
            for count in counted.counts
        ],
    }


def comparison_json(sides: Sequence[RunCounts], differences: Iterable[Mismatch] = ()) -> dict[str, Any]:
    """Return the counts of both sides as data, the first side first.

    :param differences: the facts in which the sides differ, so that they do not do the same.
    """
    reasons = [mismatch(each) for each in differences]
    counted = [{"label": side.label, **counts_json(side)} for side in sides]
    return {"next_step": counted[-1]["next_step"], "comparable": not reasons, "reasons": reasons, "sides": counted}
