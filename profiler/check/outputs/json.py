"""Writes the result of a check as strict JSON of a documented schema (docs/check-json.md), with every round.

What was not measured is null, and `not_measured` maps its path to the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from profiler.check.model import Change, CounterLine, GateResult, Throughput
from profiler.check.outputs import text
from profiler.check.outputs.first_screen import gate_next_step
from profiler.check.outputs.format import NO_BOUND, NOT_COMPARED, NOT_REPORTED
from profiler.core.metrics import counter_unit
from profiler.report.notices import NO_REASON
from profiler.report.render import json as report_json
from profiler.report.render.json import clean

SCHEMA: Final = "check/2"
HISTORY: Final = {1: "first schema", 2: "no `control`: confirming rounds run two programs"}
_STEPS: Final = re.compile(r"\[\n\s+(\d+(?:,\n\s+\d+)*)\n\s+\]")
_SETTLED: Final = "it is settled, or more rounds would not settle it"
_REASONS: Final = {
    "throughput": "speed was not tested: only programs that run in alternating blocks are compared",
    "max_seconds": "no limit was set",
    "slower_lines": "only a FAIL of speed against a revision has recordings of both sides whose lines can be compared",
    "commit": "not known: not a commit of its own, or no git checkout",
    "step_time": "no step of it was timed",
    "tokens_per_s": "the program does not report its tokens",
    "before": "the base does not have it, or its cost there was not measured",
    "after": "the candidate does not have this counter",
    "allowed": "it has no limit",
    "exceeded_budget": "it has no budget, or is within it",
    "warn": "the budget has no such amount",
    "fail": "the budget has no such amount",
    "slowdown": NOT_COMPARED,
    "low": NO_BOUND,
    "high": NO_BOUND,
    "smallest": NO_BOUND,
    "more_rounds": _SETTLED,
    "more_seconds": _SETTLED,
    "confirmed": "nothing was to be confirmed",
    "load": NOT_REPORTED,
    "steal": NOT_REPORTED,
    "cores": NOT_REPORTED,
}
"""Key -> why its value may be null."""


def result_json(result: GateResult) -> dict[str, Any]:
    """Return the keys of docs/check-json.md."""
    limits = result.limits
    counters = [{"counter": counter, **asdict(limit)} for counter, limit in sorted(limits.counters.items())]
    budgets = [{"counter": counter, **asdict(budget)} for counter, budget in sorted(limits.budgets.items())]
    reason = text.reasons(result.counters_reasons)
    lines = [_counter(line) for line in result.counters]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "next_step": gate_next_step(result),
        **{key: getattr(result, key) for key in ("state", "sentence", "mode", "created_at", "seconds")},
        "limits": {**asdict(limits), "counters": counters, "budgets": budgets, "ignore": sorted(limits.ignore)},
        "base": asdict(result.base),
        "candidate": asdict(result.candidate),
        "counters": result.counters_state and {"state": result.counters_state, "reason": reason, "lines": lines},
        "throughput": _throughput(result.throughput) if result.throughput else None,
        "explanation": result.explanation,
        "causes": list(map(asdict, result.causes)),
        "slower_lines": None if result.slower_lines is None else list(map(asdict, result.slower_lines)),
        "hunks": list(map(asdict, result.hunks)),
        "doubts": list(text.warnings(result)),
        "notes": list(map(text.sentence, result.notes)),
        "machine": dict(sorted(result.machine.items())),
        **{key: getattr(result, key) for key in ("baseline_file", "out")},
    }
    reasons: dict[str, str] = {}
    why = {**_REASONS, "counters": reason or "counters were not compared"} | ({"throughput": reason} if reason else {})
    document = _without_gaps(document, "", why, reasons)
    cleaned: dict[str, Any] = clean({**document, "not_measured": reasons})
    return cleaned


def render(document: Mapping[str, Any]) -> str:
    """Return strict JSON text; the steps of a block on one line."""
    # strings contain no unescaped line ends, so only lists of numbers match
    return _STEPS.sub(lambda match: f"[{', '.join(match[1].split())}]".replace(",,", ","), report_json.render(document))


def _counter(line: CounterLine) -> dict[str, Any]:
    before, after = (ends and {"least": ends[0], "most": ends[1]} for ends in (line.before, line.after))
    return {
        **{key: getattr(line, key) for key in ("counter", "scope", "state", "allowed")},
        "unit": counter_unit(line.counter) or "1",
        "before": before,
        "after": after,
        "reason": text.reasons(line.reasons),
        "changes": list(map(_change, line.changes)),
        "other_changes": list(map(_change, line.other_changes)),
        "exceeded_budget": line.exceeded,
        "largest": list(map(_change, line.largest)),
    }


def _change(change: Change) -> dict[str, Any]:
    values = {key: value for key, value in asdict(change).items() if key != "counter"}
    return {"kind": str(change.kind), **values}


def _throughput(speed: Throughput) -> dict[str, Any]:
    return {
        "state": speed.state,
        "reason": text.sentence(speed.reason) if speed.reason else "",
        "lines": list(map(asdict, speed.lines)),
        "confirmed": speed.confirmed,
        "doubts": [text.sentence(warning) for warning in speed.warnings],
        "rounds": [measured.to_json() for measured in speed.rounds],
    }


def _without_gaps(value: Any, path: str, why: Mapping[str, str], reasons: dict[str, str]) -> Any:
    """Return `value` with null for numbers that are not finite; `reasons` gets path -> reason of every null."""
    if isinstance(value, Mapping):
        return {key: _without_gaps(item, f"{path}.{key}".lstrip("."), why, reasons) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], int):  # the steps of a block, thousands of them
            return value
        return [_without_gaps(item, f"{path}.{index}", why, reasons) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        reasons[path] = f"not a finite number: {value}"
        return None
    if value is None:
        reasons[path] = why.get(path.rpartition(".")[2], NO_REASON)
    return value
