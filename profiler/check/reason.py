"""Why the throughput gate says what it says, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiler.check.decision import Decision, Kept
from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Limits, TimeLine
from profiler.check.nouns import some
from profiler.check.sequential import FAILS_ABOVE, LOOKS, PASSES_BELOW


def percent(log_slowdown: float) -> str:
    """A log slow-down as more time for the same work: '+5.1%'."""
    return f"{round(100 * math.expm1(log_slowdown), 1) + 0.0:+.1f}%"


def slower(log_slowdown: float) -> str:
    """'3.1% slower', or faster."""
    return f"{100 * abs(math.expm1(log_slowdown)):.1f}% {'slower' if log_slowdown >= 0 else 'faster'}"


def reason(found: Decision, lines: Sequence[TimeLine], of: Kept, limits: Limits, stopped: str) -> str:
    """Empty for a PASS.

    :param stopped: what ended the rounds early.
    """
    if found.state == PASS:
        return ""
    if found.state == FAIL:
        return _confirmed(found, of)
    if found.suspected:
        return _not_confirmed(found, of, stopped)
    if of.usable < LOOKS[0]:
        return _too_few(of, limits, stopped)
    early = f"stopped by {stopped} after {_rounds(of.usable)}: " if stopped else ""
    names = " and ".join(f"{line.name} {_range(line)}" for line in lines if line.state == INCONCLUSIVE)
    low, high = (f"{100 * share * limits.detect:g}%" for share in (FAILS_ABOVE, PASSES_BELOW))
    undecided = f"{_rounds(of.usable)} do not tell a slow-down of {low} or less from one of {high} or more"
    settled = "" if stopped else _settled(lines, of, limits)
    return f"{early}{undecided}: {names}{_rare(found)}{settled}"


def _too_few(of: Kept, limits: Limits, stopped: str) -> str:
    """Below the first look, of which nothing can be foretold but that it has to come."""
    lost = f" with enough turns, of {of.taken} taken" if of.usable < of.taken else ""
    few = f"stopped by {stopped} after {_rounds(of.usable)}" if stopped else f"too few rounds: {of.usable}"
    asked = ""
    if of.taken >= limits.max_rounds and not stopped:
        asked = f": --max-rounds {math.ceil(LOOKS[0] * of.taken / of.usable) if of.usable else LOOKS[0]}"
    return f"{few}{lost}; a verdict needs {LOOKS[0]} rounds at least{asked}"


def _settled(lines: Sequence[TimeLine], of: Kept, limits: Limits) -> str:
    """How many rounds would probably do, where they ran out; empty where more would not."""
    more = [line.more_rounds for line in lines if line.state == INCONCLUSIVE]
    known = [number for number in more if number is not None]
    if of.taken < limits.max_rounds or not known or len(known) < len(more):
        return ""
    # as many of those to come will be lost as were of these
    needed = of.taken + math.ceil(max(known) * of.taken / of.usable)
    return f"; --max-rounds {needed} would probably settle it"


def _rare(found: Decision) -> str:
    return "" if found.rare is None else f"; rare and long stalls of the candidate add {percent(found.rare)} of it"


def _rounds(number: int) -> str:
    return some(number, "round")


def _range(line: TimeLine) -> str:
    if line.slowdown is None or line.low is None or line.high is None:
        return "not measured"
    return f"{percent(line.slowdown)} ({percent(line.low)} to {percent(line.high)})"


def _swapped(found: Decision, of: Kept) -> str:
    said = []
    for line in found.suspected:
        rounds = of.confirming[found.judged_by(line)]
        candidate = math.fsum(value for value, _ in rounds) / len(rounds)
        control = math.fsum(value or 0.0 for _, value in rounds) / len(rounds)
        said.append(f"{line} {percent(candidate)}, the base against itself {percent(control)}")
    return "; ".join(said)


def _confirmed(found: Decision, of: Kept) -> str:
    number = len(of.confirming[found.suspected[0]])
    how = f"confirmed by {_rounds(number)} with the programs started in the other order"
    return f"{how}: {_swapped(found, of)}{_rare(found)}"


def _not_confirmed(found: Decision, of: Kept, stopped: str) -> str:
    number = len(of.confirming[found.suspected[0]])
    what = f"a FAIL is suspected ({' and '.join(found.suspected)})"
    if found.confirmed is None:
        why = f"stopped by {stopped} after" if stopped else "there were only"
        said = f": {_swapped(found, of)}" if number else ""
        return f"{what}, but not confirmed: {why} {_rounds(number)} of those that confirm{said}"
    return f"{what}, but {_rounds(number)} that should confirm it do not: {_swapped(found, of)}"
