"""What each fix gives, alone, on top of those before it and on top of all others: recorded rounds to a Ladder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.comparable import differences
from profiler.analyse.model import Ladder, LadderRow, PlannedRow, Ratio
from profiler.analyse.ratios import SideRuns, over_runs, paired_ratio

SPEED: Final = "tokens_per_s"
OTHER_WORK: Final = "does other work: no like-for-like ratio"
ITSELF: Final = "the baseline itself"
_SIZE_FACTS: Final = frozenset({"tokens_per_chunk", "samples_per_chunk"})
"""What rows of another chunk size differ in on purpose."""

_Program = tuple[frozenset[str], int | None] | None


def ladder(
    rows: Sequence[PlannedRow],
    programs: Mapping[str, SideRuns],
    *,
    unavailable: tuple[tuple[str, str], ...] = (),
    interrupted: bool = False,
    anyway: bool = False,
) -> Ladder:
    """The rows with what was measured of them.

    :param rows: the first is the baseline.
    :param programs: by label; run i of every program belongs to round i.
    :param anyway: give ratios of rows that are not comparable too.
    """
    base = programs[rows[0].program]
    return Ladder(
        rows=tuple(_row(row, programs, base, anyway=anyway) for row in rows),
        unavailable=unavailable,
        rounds=min(len(program.light) for program in programs.values()),
        interrupted=interrupted,
    )


def ladder_method(found: Ladder) -> tuple[str, ...]:
    """How the ladder was measured, sentence by sentence."""
    return tuple(_sentences(found))


def _row(row: PlannedRow, programs: Mapping[str, SideRuns], base: SideRuns, *, anyway: bool) -> LadderRow:
    side = programs[row.program]
    before, after = programs.get(row.against, base), side
    if row.kind == "without":
        before, after = after, before
    return LadderRow(
        label=row.label,
        kind=row.kind,
        fix=row.fix,
        also=row.also,
        fixes=row.fixes,
        removes=row.removes,
        rule=row.rule,
        measures=over_runs(side),
        gain=_speed(row, before, after, anyway=anyway),
        against=row.against,
        total=_speed(row, base, side, anyway=anyway),
        analysis=side.detail or (side.light[-1] if side.light else None),
        tokens_per_chunk=row.tokens_per_chunk,
    )


def _speed(row: PlannedRow, before: SideRuns, after: SideRuns, *, anyway: bool) -> Ratio:
    """Ratio of the tokens per second, or why there is none."""
    pairs = min(len(before.light), len(after.light))
    if row.kind == "work":
        return Ratio(SPEED, None, None, None, pairs, different=False, reason=OTHER_WORK)
    reasons = differences((before, after), but=_SIZE_FACTS if row.kind == "chunk size" else frozenset())
    if reasons and not anyway:
        return Ratio(SPEED, None, None, None, pairs, different=False, reason=f"not comparable: {'; '.join(reasons)}")
    found = paired_ratio(SPEED, before, after)
    if before is after and found.value is not None:
        return replace(found, low=1.0, high=1.0, reason=ITSELF)
    return found


def _sentences(found: Ladder) -> Iterator[str]:
    rounds = f"{found.rounds} round{'s' * (found.rounds != 1)}{', then it was interrupted' * found.interrupted}"
    yield (
        f"Every program of the ladder ran once in each of {rounds}, and the full set twice; each round was in an order "
        "of its own, and a gain is over pairs of the same round, of the geometric mean where a program ran twice."
    )
    yield (
        "Gains of fixes that were left out share their numerator, the runs of the full set, and gains over as-found "
        "share their denominator: such gains are correlated, and a hiccup of the shared runs moves all of them."
    )
    yield "A fix that others require was left out together with them."
    intervals = len(_pairs(found))
    if intervals:
        yield (
            f"One in twenty of the {intervals} intervals, each of two different programs, excludes 1 by chance, where "
            "a fix does nothing."
        )


def _pairs(found: Ladder) -> set[frozenset[_Program]]:
    """Pairs of programs with an interval: rows of the same two count once."""
    size = found.rows[0].tokens_per_chunk
    programs = {row.label: _program(row, size) for row in found.rows}
    full = next((programs[row.label] for row in reversed(found.rows) if row.kind == "cumulative"), None)
    pairs = (
        frozenset({programs[row.label], programs.get(row.against, full)})
        for row in found.rows
        if row.gain.low is not None and row.gain.reason != ITSELF
    )
    return {pair for pair in pairs if len(pair) > 1}


def _program(row: LadderRow, size: int | None) -> _Program:
    """What tells its program from others: its fixes and, other than the default `size`, its chunks."""
    return frozenset(row.fixes), row.tokens_per_chunk or size
