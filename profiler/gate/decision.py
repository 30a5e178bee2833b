"""What the rounds so far amount to: the state of both lines at the last look, and what the next round must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from profiler.gate import confirm
from profiler.gate.model import CONFIRM, FAIL, INCONCLUSIVE, MEASURE, PASS, Limits
from profiler.gate.sequential import bounds, edges, looks, suspicion
from profiler.gate.stalls import rare_stalls
from profiler.gate.values import RoundValues

TYPICAL: Final = "typical step"
WHOLE: Final = "all steps"
LINES: Final = (TYPICAL, WHOLE)
HOPELESS: Final = 3
"""Rounds one after the other without enough turns, after which no more are taken."""
FEWEST: Final = 3
"""Rounds that a last look needs, where something other than the rounds ended them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the usable rounds say, line by line."""

    measured: Mapping[str, list[float]]
    errors: Mapping[str, list[float]]
    """Of each measured value, from inside its round."""
    beyond: list[float]
    """Of each round that measures: what stalls add where they count in full."""
    confirming: Mapping[str, list[confirm.Against]]
    taken: int
    """Rounds that measure, usable or not."""
    lost: int
    """Unusable ones of either kind since the last usable one."""

    @property
    def usable(self) -> int:
        return len(self.measured[TYPICAL])


@dataclass(frozen=True, slots=True)
class Decision:
    state: str | None
    """None: the next round must say."""
    next: str | None
    """MEASURE | CONFIRM | None"""
    lines: Mapping[str, str] = field(default_factory=dict)
    """Of each line, at the last look; one that passed at a look stays passed unless it fails."""
    suspected: tuple[str, ...] = ()
    confirmed: bool | None = None
    rare: float | None = None
    """What rare and long stalls add, which stands in the way of a PASS; None: nothing that is more than chance."""


def kept(rounds: Sequence[tuple[str, RoundValues]]) -> Kept:
    """:param rounds: kind and values of each, in their order."""
    measured: dict[str, list[float]] = {line: [] for line in LINES}
    errors: dict[str, list[float]] = {line: [] for line in LINES}
    confirming: dict[str, list[confirm.Against]] = {line: [] for line in LINES}
    beyond: list[float] = []
    taken = lost = 0
    for kind, values in rounds:
        taken += kind == MEASURE
        usable = values.usable and (kind == MEASURE or values.control_typical is not None)
        lost = 0 if usable else lost + 1
        if values.typical is None or values.whole is None or not usable:
            continue
        if kind == MEASURE:
            measured[TYPICAL].append(values.typical)
            measured[WHOLE].append(values.whole)
            errors[TYPICAL].append(values.typical_error)
            errors[WHOLE].append(values.whole_error)
            beyond.append(values.beyond)
        else:
            confirming[TYPICAL].append((values.typical, values.control_typical))
            confirming[WHOLE].append((values.whole, values.control_whole))
    return Kept(measured, errors, beyond, confirming, taken, lost)


def decide(of: Kept, limits: Limits, *, last: bool = False) -> Decision:
    """The decision at the first look that allows one.

    :param last: there will be no more rounds, for a reason that has nothing to do with what they say: what there is may
        be looked at once more.
    """
    at = edges(limits.detect)
    lines = dict.fromkeys(LINES, INCONCLUSIVE)
    rare = None
    for look in _looks(of, limits, last):
        for line in LINES:
            now = suspicion(bounds(of.measured[line][:look], errors=of.errors[line][:look]), at)
            lines[line] = now if now != INCONCLUSIVE or lines[line] == FAIL else lines[line]
        suspected = tuple(line for line in LINES if lines[line] == FAIL)
        if suspected:
            return _confirm(of, limits, Decision(None, CONFIRM, lines, suspected), last)
        rare = rare_stalls(of.beyond[:look], at)
        if all(lines[line] == PASS for line in LINES) and rare is None:
            return Decision(PASS, None, lines)
    if rare is not None:
        lines[WHOLE] = INCONCLUSIVE
    if last or of.taken >= limits.max_rounds or of.lost >= HOPELESS:
        return Decision(INCONCLUSIVE, None, lines, rare=rare)
    return Decision(None, MEASURE, lines, rare=rare)


def _looks(of: Kept, limits: Limits, last: bool) -> list[int]:
    reached = [look for look in looks(limits.max_rounds) if look <= of.usable]
    # Where rounds were lost, the maximum is reached with fewer than its look wants.
    ended = last or of.taken >= limits.max_rounds
    if ended and of.usable >= FEWEST and (not reached or reached[-1] < of.usable):
        reached.append(of.usable)
    return reached


def _confirm(of: Kept, limits: Limits, so_far: Decision, last: bool) -> Decision:
    at = edges(limits.detect)
    answers = [
        confirm.confirmed(of.measured[line], of.confirming[line], at, errors=of.errors[line], last=last)
        for line in so_far.suspected
    ]
    if any(answers):
        return Decision(FAIL, None, so_far.lines, so_far.suspected, True)
    if None in answers and not last and of.lost < HOPELESS:
        return so_far
    unsure = {line: INCONCLUSIVE if line in so_far.suspected else now for line, now in so_far.lines.items()}
    return Decision(INCONCLUSIVE, None, unsure, so_far.suspected, False if None not in answers else None)
