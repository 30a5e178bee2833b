"""The rows of a ladder sorted by what a report asks of them: a cure with its three effects, other work, chunk sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from profiler.analyse.model import Comparison, Ladder, LadderRow, Measure, Ratio
from profiler.report.subject import Subject

NO_ROW = "the ladder has no such row"


@dataclass(frozen=True, slots=True)
class Cure:
    """One fix of the full set, and what it gives in each of the three places that it was tried in."""

    fix: str
    removes: str
    rule: str
    alone: LadderRow | None
    """As-found with it, and with what it requires."""
    added: LadderRow | None
    """On top of those before it."""
    without: LadderRow | None
    """The full set without it and without what requires it."""

    @property
    def on_top(self) -> Ratio:
        """What it gives on top of all others: the full set over the full set without it."""
        return gain(self.without)


def ladder_of(subject: Subject) -> Ladder | None:
    """The ladder of a comparison that has one."""
    return subject.ladder if isinstance(subject, Comparison) else None


def rows_of(ladder: Ladder, *kinds: str) -> tuple[LadderRow, ...]:
    """Rows of these kinds, in their order."""
    return tuple(row for row in ladder.rows if row.kind in kinds)


def baseline_of(ladder: Ladder) -> LadderRow | None:
    """As found."""
    return next(iter(rows_of(ladder, "baseline")), None)


def gain(row: LadderRow | None) -> Ratio:
    """The gain of a row; of one that is not there, None with that reason."""
    if row is None:
        return Ratio("tokens_per_s", None, None, None, 0, different=False, reason=NO_ROW)
    return row.gain


def measure(row: LadderRow, name: str) -> Measure:
    """A measure of a row; of one that it lacks, None with that reason."""
    return row.measures.get(name) or Measure(name, None, "", reason="not recorded in the runs of this row")


def cures(ladder: Ladder) -> tuple[Cure, ...]:
    """Every fix of the full set, in the order of the ladder."""
    rows = rows_of(ladder, "cumulative", "without", "alone")
    by_place = {(row.fix, row.kind): row for row in rows}
    firsts = {row.fix: row for row in reversed(rows)}
    names = dict.fromkeys(row.fix for row in rows)
    return tuple(
        Cure(
            name,
            firsts[name].removes,
            firsts[name].rule,
            *(by_place.get((name, kind)) for kind in ("alone", "cumulative", "without")),
        )
        for name in names
    )


def removes(cost: str) -> str:
    """The cost that a fix removes, said so that it is not taken for what the fix does."""
    return f"removes: {cost}" if cost else ""


def listed(names: Iterable[str]) -> str:
    """a, b and c."""
    *before, last = list(names) or [""]
    return f"{', '.join(before)} and {last}" if before else last
