"""What the parts of a check come to: one state, and the verdict in a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from profiler.check.counters import FEWER
from profiler.check.model import FAIL, INCONCLUSIVE, PASS, STATES, CounterLine, GateResult, Throughput, TimeLine
from profiler.check.values import round_values
from profiler.core.metrics import find_counter

_MOST_COUNTERS = 3


def concluded(result: GateResult) -> GateResult:
    """`result` with its state, as bad as its worst part, its sentence, and what each round says by itself.

    :raises ValueError: it has no part.
    """
    parts = [result.counters_state, result.throughput.state if result.throughput else None]
    states = [state for state in parts if state is not None]
    if not states:
        raise ValueError("nothing was gated")
    if not result.baseline_file:  # to write a gain down in
        lines = (replace(line, reason=FEWER) if line.reason.startswith(FEWER) else line for line in result.counters)
        result = replace(result, counters=tuple(lines))
    if result.throughput:
        result = replace(result, throughput=_with_rounds(result.throughput))
    state = max(states, key=STATES.index)
    sentence = "; ".join(_sentences(result, state))
    return replace(result, state=state, sentence=sentence[:1].upper() + sentence[1:])


def _with_rounds(speed: Throughput) -> Throughput:
    values = map(round_values, speed.rounds)
    return replace(speed, of_rounds=tuple((one.typical, one.control_typical) for one in values))


def _sentences(result: GateResult, state: str) -> Iterator[str]:
    """What is bad first; of a PASS what it rests on."""
    speed, counters = result.throughput, result.counters_state
    if speed is not None and speed.state == FAIL:
        yield _slower(speed)
    if counters == FAIL:
        yield _rose([line for line in result.counters if line.state == FAIL])
    if state == FAIL:
        return
    if speed is not None and speed.state == INCONCLUSIVE:
        yield f"whether it is slower could not be told: {speed.reason}" if speed.reason else "speed: not told"
    if counters == INCONCLUSIVE:
        yield result.counters_reason or _unsure(result.counters)
    if state == INCONCLUSIVE:
        return
    if counters == PASS:
        yield "no counter rose" if result.counters else "nothing was counted"
    if speed is not None:
        yield _as_fast(speed)


def _slower(speed: Throughput) -> str:
    line = next(line for line in speed.lines if line.state == FAIL)  # the typical step's comes first
    least = f", at least {_percent(line.low)}" if line.low is not None and line.low > 0 else ""
    return f"{_what(line)} {_percent(line.slowdown or 0.0)} longer{least}"


def _what(line: TimeLine) -> str:
    return "the typical step takes" if line.name == "typical step" else "all steps together take"


def _rose(lines: Sequence[CounterLine]) -> str:
    shown = ", ".join(_one(line) for line in lines[:_MOST_COUNTERS])
    more = f", and {len(lines) - _MOST_COUNTERS} more counters" if len(lines) > _MOST_COUNTERS else ""
    return f"{shown}{more}"


def _one(line: CounterLine) -> str:
    if line.before is None or line.after is None:
        return line.counter
    by = line.after[0] - line.before[1]
    at = f" at {line.changes[0].file}:{line.changes[0].line}" if line.changes else ""
    counter = find_counter(line.counter)
    workers = " in loader workers" if line.scope == "worker" else ""
    return f"{counter.plural if counter else line.counter} rose by {by:,.4g} per step{workers}{at}"


def _unsure(lines: Sequence[CounterLine]) -> str:
    line = next((line for line in lines if line.state == INCONCLUSIVE), None)
    return f"{line.counter}: {line.reason}" if line else "whether a counter rose could not be told"


def _as_fast(speed: Throughput) -> str:
    line = speed.lines[0] if speed.lines else None
    if line is None or line.slowdown is None:
        return "it is not slower"
    high = max((one.high for one in speed.lines if one.high is not None), default=None)
    change = f"{_percent(line.slowdown)} {'longer' if line.slowdown > 0 else 'shorter'}"
    bound = f", a slow-down above {_percent(max(high, 0.0))} is ruled out" if high is not None else ""
    return f"the typical step takes {change}{bound}"


def _percent(slowdown: float) -> str:
    return f"{abs(100 * math.expm1(slowdown)):.1f}%"
