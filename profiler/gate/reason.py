"""Why the throughput gate says what it says, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiler.gate.decision import FEWEST, Decision, Kept
from profiler.gate.model import FAIL, INCONCLUSIVE, PASS, Limits, TimeLine
from profiler.gate.sequential import FAILS_ABOVE, PASSES_BELOW


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
    early = f"stopped by {stopped} after {_rounds(of.usable)}: " if stopped else ""
    if of.usable < FEWEST:
        few = f"{_rounds(of.usable)} with enough turns, of {of.taken} taken"
        return f"{early or 'too few rounds: '}{few}; a verdict needs {FEWEST} at least"
    names = " and ".join(f"{line.name} {_range(line)}" for line in lines if line.state == INCONCLUSIVE)
    low, high = (f"{100 * share * limits.detect:g}%" for share in (FAILS_ABOVE, PASSES_BELOW))
    undecided = f"{_rounds(of.usable)} do not tell a slow-down of {low} or less from one of {high} or more"
    return f"{early}{undecided}: {names}{_rare(found)}"


def _rare(found: Decision) -> str:
    return "" if found.rare is None else f"; rare and long stalls of the candidate add {percent(found.rare)} of it"


def _rounds(number: int) -> str:
    return f"{number} round{'' if number == 1 else 's'}"


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
