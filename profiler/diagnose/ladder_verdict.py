"""What a ladder says: which fixes count on top of all others, and which cannot be told from no effect here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profiler.analyse.model import Ladder, LadderRow, Ratio
from profiler.core.units import ratio, significant

_MOST: Final = 3
"""Fixes that are named with their gains."""


def ladder_verdict(ladder: Ladder) -> str:
    """From the rows with one fix left out, since all others are in place there."""
    rows = [row for row in ladder.rows if row.kind == "without"]
    unsure = [row for row in rows if row.gain.value is not None and row.gain.low is None]
    said = list(_parts([row for row in rows if row.gain.low is not None])) if not unsure else []
    if unsure:
        said = [f"no fix can be told from no effect: {unsure[0].gain.reason}"]
    if unknown := [row for row in rows if row.gain.value is None]:
        said.append(f"not known of {_names(unknown)}: {unknown[0].gain.reason}")
    if not said:
        return ""
    rounds = f" (interrupted after {ladder.rounds} round{'s' * (ladder.rounds != 1)})" if ladder.interrupted else ""
    return f"Of the fixes, each left out of the full set{rounds}: {'; '.join(said)}."


def _parts(rows: Sequence[LadderRow]) -> Iterator[str]:
    """Gains, losses, and what is neither; the largest first."""
    ordered = sorted(rows, key=lambda row: -(row.gain.value or 0.0))
    gains = [row for row in ordered if row.gain.different and (row.gain.value or 0.0) > 1]
    if gains:
        yield ", ".join(f"{_name(row)} gives {_amount(row.gain)}" for row in gains[:_MOST])
    if len(gains) > _MOST:
        yield f"less, but more than none: {_names(gains[_MOST:])}"
    if losses := [row for row in reversed(ordered) if row.gain.different and (row.gain.value or 0.0) < 1]:
        yield "slower with: " + ", ".join(f"{_name(row)} {_amount(row.gain)}" for row in losses)
    alike = [row for row in rows if not row.gain.different]
    if alike and len(alike) == len(rows):
        yield "none can be told from no effect here"
    elif alike:
        yield f"indistinguishable from no effect here: {_names(alike)}"


def _name(row: LadderRow) -> str:
    """The fix, with what had to be left out along with it."""
    return row.fix + (f" (and {', '.join(row.also)})" if row.also else "")


def _names(rows: Sequence[LadderRow]) -> str:
    return ", ".join(map(_name, rows))


def _amount(gain: Ratio) -> str:
    assert gain.value is not None
    assert gain.low is not None
    assert gain.high is not None
    return f"{ratio(gain.value)} (95% {significant(gain.low)} to {significant(gain.high)})"
