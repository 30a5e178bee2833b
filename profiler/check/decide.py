"""The throughput gate: what the next round must be, and the verdict of the rounds there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from profiler.check import decision, sequential
from profiler.check.decision import LINES, TYPICAL, Decision, Kept
from profiler.check.doubts import doubts
from profiler.check.model import FAIL, INCONCLUSIVE, MEASURE, Limits, Round, Throughput, TimeLine
from profiler.check.reason import reason
from profiler.check.values import round_values

INTERRUPTED: Final = "an interrupt"


def next_kind(rounds: Sequence[Round], limits: Limits) -> str | None:
    """MEASURE or CONFIRM: what the next round must be; None: it is decided, or there are as many as there may be.

    :param rounds: all so far, in their order.
    """
    return decision.decide(_kept(rounds), limits).next


def throughput(
    rounds: Sequence[Round], limits: Limits, *, interrupted: bool = False, why_stopped: str = ""
) -> Throughput:
    """The verdict of the rounds there are.

    :param interrupted: someone stopped it who could see the rounds: only the looks that were due count.
    :param why_stopped: what ended the rounds early, in words ('the time limit of 120 s'), nothing that the rounds say:
        what there is is looked at once more.
    """
    of = _kept(rounds)
    found = decision.decide(of, limits, last=bool(why_stopped) and not interrupted)
    stopped = why_stopped or (INTERRUPTED if interrupted else "")
    control = [value for _, value in of.confirming[TYPICAL] if value is not None]
    lines = tuple(_line(name, of, found, limits, rounds) for name in LINES)
    state = found.state or INCONCLUSIVE
    return Throughput(
        state,
        lines,
        tuple(rounds),
        reason(found, lines, of, limits, stopped),
        math.fsum(control) / len(control) if control else None,
        found.confirmed,
        doubts(rounds, limits),
    )


def _kept(rounds: Sequence[Round]) -> Kept:
    return decision.kept([(one.kind, round_values(one)) for one in rounds])


def _line(name: str, of: Kept, found: Decision, limits: Limits, rounds: Sequence[Round]) -> TimeLine:
    """Of all rounds together, since those that a FAIL is suspected in are the unlucky ones."""
    key = found.judged_by(name)
    values = [*of.measured[key], *(candidate for candidate, _ in of.confirming[key])]
    state = found.lines.get(name, INCONCLUSIVE)
    if len(values) < 2:
        return TimeLine(name, INCONCLUSIVE, values[0] if values else None, None, None, len(values), None)
    at = sequential.edges(limits.detect)
    bounds = sequential.bounds(values, errors=of.errors[key])
    if found.state == FAIL and name not in found.suspected:
        state = sequential.state(bounds, at)
    more = sequential.more_rounds(bounds, at) if state == INCONCLUSIVE else None
    each = _seconds(rounds)
    return TimeLine(
        name,
        state,
        bounds.mean,
        bounds.low,
        bounds.high,
        bounds.rounds,
        sequential.smallest(bounds, at),
        more,
        more * each if more is not None and each else None,
    )


def _seconds(rounds: Sequence[Round]) -> float:
    """Of a round that measures, mean."""
    times = [one.seconds for one in rounds if one.kind == MEASURE] or [0.0]
    return math.fsum(times) / len(times)
