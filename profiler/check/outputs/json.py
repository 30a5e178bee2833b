"""A gate's result for programs: strict JSON of a documented schema (docs/check-json.md), with every round as measured.

What was not measured is null, and `not_measured` maps its path to the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from profiler.check.model import CounterLine, GateResult, Limits, SideInfo, Throughput, TimeLine
from profiler.check.outputs import text as sentences
from profiler.core.metrics import counter_unit
from profiler.report.model import MissingReasons
from profiler.report.render import json as report_json
from profiler.report.render.json import clean, strict

SCHEMA = "check/1"
HISTORY = {1: "first schema"}
_NUMBERS = re.compile(r"\[\n\s+(\d+(?:,\n\s+\d+)*)\n\s+\]")
_NO_RISE = "the base does not have this counter"
_NOT_COUNTED = "the candidate does not have this counter"
_NO_BOUND = "too few rounds for a bound"


def result_json(result: GateResult) -> dict[str, Any]:
    """The keys of docs/check-json.md."""
    gaps = MissingReasons()
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "state": result.state,
        "sentence": result.sentence,
        "mode": result.mode,
        "created_at": result.created_at,
        "seconds": gaps.number("seconds", result.seconds, ""),
        "limits": _limits(result.limits, gaps),
        "base": _side(result.base, "base", gaps),
        "candidate": _side(result.candidate, "candidate", gaps),
        "counters": _counters(result, gaps),
        "throughput": _throughput(result.throughput, gaps) if result.throughput is not None else None,
        "explanation": result.explanation,
        "doubts": list(sentences.warnings(result)),
        "notes": [sentences.sentence(note) for note in result.notes],
        "machine": dict(sorted(result.machine.items())),
        "baseline_file": result.baseline_file,
        "out": result.out,
    }
    if result.counters_state is None:
        gaps.reasons["counters"] = sentences.reasons(result.counters_reasons) or "counters were not gated"
    if result.throughput is None:
        gaps.reasons["throughput"] = "throughput was not gated: stored times gate nothing"
    document["not_measured"] = gaps.reasons
    cleaned: dict[str, Any] = clean(document)
    return cleaned


def render(document: Mapping[str, Any]) -> str:
    """Strict JSON text; the steps of a turn on one line."""
    # no text holds a line's end unescaped: such lists are of numbers only
    return _NUMBERS.sub(
        lambda found: f"[{', '.join(found[1].split())}]".replace(",,", ","), report_json.render(document)
    )


def _limits(limits: Limits, gaps: MissingReasons) -> dict[str, Any]:
    if limits.max_seconds is None:
        gaps.reasons["limits.max_seconds"] = "no limit was set"
    return {
        "detect": gaps.number("limits.detect", limits.detect, ""),
        "counters": [
            {
                "counter": counter,
                "absolute": gaps.number(f"limits.counters.{index}.absolute", limit.absolute, ""),
                "relative": gaps.number(f"limits.counters.{index}.relative", limit.relative, ""),
            }
            for index, (counter, limit) in enumerate(sorted(limits.counters.items()))
        ],
        "ignore": sorted(limits.ignore),
        "inconclusive": limits.inconclusive,
        "max_rounds": limits.max_rounds,
        "max_seconds": limits.max_seconds
        if limits.max_seconds is None
        else gaps.number("limits.max_seconds", limits.max_seconds, ""),
    }


def _side(side: SideInfo, path: str, gaps: MissingReasons) -> dict[str, Any]:
    if side.commit is None:
        gaps.reasons[f"{path}.commit"] = "not known: not a commit of its own, or no git checkout"
    return {
        "label": side.label,
        "what": side.what,
        "command": side.command,
        "commit": side.commit,
        "step_source": side.step_source,
        "step_time": gaps.number(f"{path}.step_time", side.step_time, "no step of it was timed"),
        "tokens_per_s": gaps.number(f"{path}.tokens_per_s", side.tokens_per_s, "the program does not say its tokens"),
        "facts": strict(side.facts),
    }


def _counters(result: GateResult, gaps: MissingReasons) -> dict[str, Any] | None:
    if result.counters_state is None:
        return None
    lines = [_counter(line, f"counters.lines.{index}", gaps) for index, line in enumerate(result.counters)]
    return {"state": result.counters_state, "reason": sentences.reasons(result.counters_reasons), "lines": lines}


def _counter(line: CounterLine, path: str, gaps: MissingReasons) -> dict[str, Any]:
    return {
        "counter": line.counter,
        "scope": line.scope,
        "unit": counter_unit(line.counter) or "1",
        "state": line.state,
        "before": _span(line.before, f"{path}.before", _NO_RISE, gaps),
        "after": _span(line.after, f"{path}.after", _NOT_COUNTED, gaps),
        "allowed": gaps.number(f"{path}.allowed", line.allowed, "it gates nothing"),
        "reason": sentences.reasons(line.reasons),
        "changes": [
            {
                "file": change.file,
                "line": change.line,
                "function": change.function,
                "operation": change.operation,
                "before": gaps.number(f"{path}.changes.{index}.before", change.before, ""),
                "after": gaps.number(f"{path}.changes.{index}.after", change.after, ""),
            }
            for index, change in enumerate(line.changes)
        ],
    }


def _span(ends: tuple[float, float] | None, path: str, reason: str, gaps: MissingReasons) -> dict[str, Any] | None:
    if ends is None:
        gaps.reasons[path] = reason
        return None
    return {name: gaps.number(f"{path}.{name}", value, "") for name, value in zip(("least", "most"), ends, strict=True)}


def _throughput(throughput: Throughput, gaps: MissingReasons) -> dict[str, Any]:
    if throughput.confirmed is None:
        gaps.reasons["throughput.confirmed"] = "nothing was to be confirmed"
    return {
        "state": throughput.state,
        "reason": sentences.sentence(throughput.reason) if throughput.reason else "",
        "lines": [_line(line, f"throughput.lines.{index}", gaps) for index, line in enumerate(throughput.lines)],
        "control": gaps.number("throughput.control", throughput.control, "no rounds with a second copy of the base"),
        "confirmed": throughput.confirmed,
        "doubts": [sentences.sentence(warning) for warning in throughput.warnings],
        "rounds": [_round(measured.to_json(), index, gaps) for index, measured in enumerate(throughput.rounds)],
    }


def _line(line: TimeLine, path: str, gaps: MissingReasons) -> dict[str, Any]:
    more = "it is settled, or more rounds would not settle it"
    numbers: Iterable[tuple[str, float | None, str]] = (
        ("slowdown", line.slowdown, "no round could be compared"),
        ("low", line.low, _NO_BOUND),
        ("high", line.high, _NO_BOUND),
        ("smallest", line.smallest, _NO_BOUND),
        ("more_rounds", line.more_rounds, more),
        ("more_seconds", line.more_seconds, more),
    )
    known = {key: gaps.number(f"{path}.{key}", value, reason) for key, value, reason in numbers}
    return {"name": line.name, "state": line.state, "rounds": line.rounds, **known}


def _round(document: dict[str, Any], index: int, gaps: MissingReasons) -> dict[str, Any]:
    """A round, with the reasons of what is not known of its conditions."""
    path = f"throughput.rounds.{index}"
    document["seconds"] = gaps.number(f"{path}.seconds", document["seconds"], "")
    conditions = document["conditions"]
    for key in ("load", "steal", "cores"):
        conditions[key] = gaps.number(f"{path}.conditions.{key}", conditions[key], "this machine does not say")
    return document
