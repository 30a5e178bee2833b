"""What the rounds so far amount to: the state of both lines at the last look, and what the next round must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profiler.check import confirm
from profiler.check.model import CONFIRM, FAIL, INCONCLUSIVE, MEASURE, PASS, Limits
from profiler.check.sequential import Edges, bounds, edges, looks, suspicion
from profiler.check.stalls import rare_stalls
from profiler.check.values import RoundValues

TYPICAL: Final = "typical step"
WHOLE: Final = "all steps"
LINES: Final = (TYPICAL, WHOLE)
FULL: Final = "all steps, stalls in full"
"""What the line of all steps is judged by where rare and long stalls are more than chance."""
_KEYS: Final = (*LINES, FULL)
HOPELESS: Final = 3
"""Rounds one after the other without enough turns, after which no more are taken."""
FEWEST: Final = 3
"""Rounds that a last look needs, where something other than the rounds ended them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the usable rounds say, line by line."""

    measured: Mapping[str, list[float]]
    """By TYPICAL, WHOLE and FULL, as the other two."""
    errors: Mapping[str, list[float]]
    """Of each measured value, from inside its round."""
    confirming: Mapping[str, list[confirm.Against]]
    taken: int
    """Rounds that measure, usable or not."""
    lost: int
    """Unusable ones of either kind since the last usable one."""

    @property
    def usable(self) -> int:
        return len(self.measured[TYPICAL])

    def rare(self, look: int, at: Edges) -> float | None:
        """What rare and long stalls add in the first `look` rounds; None: nothing that is more than chance."""
        both = zip(self.measured[FULL][:look], self.measured[WHOLE][:look], strict=True)
        return rare_stalls([full - capped for full, capped in both], at)


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
    """What rare and long stalls add, which then count in full; None: nothing that is more than chance."""

    def judged_by(self, line: str) -> str:
        """The values of `Kept` that a line is judged by."""
        return FULL if line == WHOLE and self.rare is not None else line


def kept(rounds: Sequence[tuple[str, RoundValues]]) -> Kept:
    """:param rounds: kind and values of each, in their order."""
    measured: dict[str, list[float]] = {key: [] for key in _KEYS}
    errors: dict[str, list[float]] = {key: [] for key in _KEYS}
    confirming: dict[str, list[confirm.Against]] = {key: [] for key in _KEYS}
    taken = lost = 0
    for kind, values in rounds:
        taken += kind == MEASURE
        said = _by_key(values)
        if said is None or (kind == CONFIRM and any(control is None for _, control, _ in said)):
            lost += 1
            continue
        lost = 0
        for key, (value, control, error) in zip(_KEYS, said, strict=True):
            if kind == MEASURE:
                measured[key].append(value)
                errors[key].append(error)
            else:
                confirming[key].append((value, control))
    return Kept(measured, errors, confirming, taken, lost)


def _by_key(of: RoundValues) -> list[tuple[float, float | None, float]] | None:
    """Value, control and error for each key; None: the round says nothing."""
    if of.typical is None or of.whole is None:
        return None
    in_full = None if of.control_whole is None else of.control_whole + of.control_beyond
    return [
        (of.typical, of.control_typical, of.typical_error),
        (of.whole, of.control_whole, of.whole_error),
        (of.whole + of.beyond, in_full, of.whole_error),
    ]


def decide(of: Kept, limits: Limits, *, last: bool = False) -> Decision:
    """The decision at the first look that allows one.

    :param last: there will be no more rounds, for a reason that has nothing to do with what they say: what there is may
        be looked at once more.
    """
    at = edges(limits.detect)
    lines = dict.fromkeys(LINES, INCONCLUSIVE)
    rare = None
    for look in _looks(of, limits, last):
        rare = of.rare(look, at)
        so_far = Decision(None, CONFIRM, lines, rare=rare)
        for line in LINES:
            key = so_far.judged_by(line)
            now = suspicion(bounds(of.measured[key][:look], errors=of.errors[key][:look]), at)
            if now != INCONCLUSIVE or key == FULL:
                lines[line] = now
        suspected = tuple(line for line in LINES if lines[line] == FAIL)
        if suspected:
            return _confirm(of, limits, replace(so_far, suspected=suspected), last)
        if all(lines[line] == PASS for line in LINES):
            return replace(so_far, state=PASS, next=None)
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
    answers = {}
    for line in so_far.suspected:
        key = so_far.judged_by(line)
        answers[line] = confirm.confirmed(of.measured[key], of.confirming[key], at, errors=of.errors[key], last=last)
    agreed = tuple(line for line, answer in answers.items() if answer)
    if agreed:
        return replace(so_far, state=FAIL, next=None, suspected=agreed, confirmed=True)
    undecided = None in answers.values()
    if undecided and not last and of.lost < HOPELESS:
        return so_far
    unsure = {line: INCONCLUSIVE if line in so_far.suspected else now for line, now in so_far.lines.items()}
    return replace(so_far, state=INCONCLUSIVE, next=None, lines=unsure, confirmed=None if undecided else False)
