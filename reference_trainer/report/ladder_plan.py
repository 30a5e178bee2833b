"""Plans a ladder: reads the trainer's list of its fixes (`--list-fixes`), and derives rows and programs from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from profiler.core.errors import ProfilerError
from reference_trainer.report.ladder import PlannedRow


class ListedFix(BaseModel, frozen=True):
    """One fix as the trainer describes it (`reference_trainer.fixes.Fix`)."""

    name: str
    removes: str
    rule: str
    rule_left_out: str
    requires: tuple[str, ...]
    excludes: tuple[str, ...]
    kind: Literal["cure", "on top", "instead", "work"]
    available: bool
    why_not: str


class ListedProgram(BaseModel, frozen=True):
    """A program that is measured beside the fixes."""

    label: str
    kind: Literal["precision", "beside"]
    """precision: the full set with narrower numbers | beside: another program of the same work"""
    what: str
    arguments: tuple[str, ...]
    why_not: str = ""
    """Why it cannot run here; empty: it can."""


class FixList(BaseModel, frozen=True):
    """All fixes, in the order of the ladder.

    The trainer has to list each fix after those that it requires; this is not checked.
    """

    device: str
    fixes: tuple[ListedFix, ...]
    fixed: Annotated[tuple[str, ...], Field(min_length=1)]
    """The full set, in order."""
    programs: tuple[ListedProgram, ...] = ()

    def fix(self, name: str) -> ListedFix:
        """The fix of that name."""
        return next(fix for fix in self.fixes if fix.name == name)

    def ordered(self, names: Collection[str]) -> tuple[str, ...]:
        """`names` in the order of the ladder."""
        return tuple(fix.name for fix in self.fixes if fix.name in names)

    def with_needs(self, name: str) -> tuple[str, ...]:
        """`name` and all that it requires, directly or indirectly."""
        chosen = {name}
        for fix in reversed(self.fixes):
            if fix.name in chosen:
                chosen.update(fix.requires)
        return self.ordered(chosen)

    def with_dependents(self, names: Iterable[str]) -> tuple[str, ...]:
        """`names` and all that require one of them, directly or indirectly."""
        chosen = set(names)
        for fix in self.fixes:
            if not chosen.isdisjoint(fix.requires):
                chosen.add(fix.name)
        return self.ordered(chosen)

    def excluded_by(self, name: str) -> tuple[str, ...]:
        """The fixes that exclude `name` or are excluded by it."""
        excluded = self.fix(name).excludes
        return tuple(fix.name for fix in self.fixes if fix.name in excluded or name in fix.excludes)

    def displaced_by(self, name: str) -> tuple[str, ...]:
        """The fixes that `name` and its needs exclude, and all that require those."""
        return self.with_dependents(other for needed in self.with_needs(name) for other in self.excluded_by(needed))


def read_fixes(text: str) -> FixList:
    """The list in `text`, the JSON that the trainer prints.

    :raises ProfilerError: it is no such list.
    """
    try:
        return FixList.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        reason = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise ProfilerError(f"the trainer's list of fixes (--list-fixes) is wrong: {reason}") from None


BASELINE, FIXED = "as-found", "fixed"
_LABELS: Final = {
    "cumulative": ("+ {}", ""),
    "without": ("without {}", " (and {})"),
    "alone": ("alone {}", " (with {})"),
}
"""Kind of a row -> its label, and what names the fixes that were left out or added together with the row's fix."""
_AGAINST: Final = {"alone": BASELINE, "work": "", "beside": ""}
"""Kind of a row -> what its gain is over; all others, but cumulative ones, are held against the full set."""


@dataclass(frozen=True, slots=True)
class Program:
    """The trainer with one set of fixes, or another program."""

    label: str
    folder: str
    """Name of the folder of its runs, after the number of the round."""
    fixes: tuple[str, ...] = ()
    warm: bool = False
    """It runs once before anything is measured."""
    optional: bool = False
    """It is no step of the ladder: if it cannot run, the others are measured nevertheless."""
    options: tuple[str, ...] = ()
    """Its arguments, where these are no set of fixes."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the trainer is started with."""
        return self.options or ("--fixes", ",".join(self.fixes))


@dataclass(frozen=True, slots=True)
class LadderPlan:
    """Rows to report and programs to record; rows with the same set of fixes share a program."""

    rows: tuple[PlannedRow, ...]
    programs: tuple[Program, ...]
    """The baseline first, then the full set."""
    unavailable: tuple[tuple[str, str], ...] = ()
    """Fixes and other programs that cannot run here, and why."""


def plan_ladder(listed: FixList) -> LadderPlan:
    """Plan the baseline, the rows of `_sets`, and the programs that are no set of fixes."""
    full = frozenset(listed.fixed)
    programs: dict[frozenset[str] | str, Program] = {
        frozenset(): Program(BASELINE, BASELINE, warm=True),
        full: Program(FIXED, FIXED, listed.ordered(full), warm=True),
    }
    rows = [PlannedRow(BASELINE, "baseline", BASELINE, BASELINE)]
    for kind, fix, chosen in _sets(listed):
        others = frozenset() if kind == "cumulative" else chosen if kind == "alone" else full - chosen
        also, fixes = listed.ordered(others - {fix.name}), listed.ordered(chosen)
        name, together = _LABELS.get(kind, ("{}", ""))
        label = name.format(fix.name) + (together.format(", ".join(also)) if also else "")
        extra = kind not in _LABELS
        folder = fix.name if extra else f"{kind}-{fix.name}"
        program = programs.setdefault(chosen, Program(label, folder, fixes, warm=extra, optional=extra))
        against = rows[-1].program if kind == "cumulative" else _AGAINST.get(kind, FIXED)
        rule = fix.rule_left_out if kind == "without" else fix.rule
        rows.append(PlannedRow(label, kind, program.label, against, fix.name, also, fixes, fix.removes, rule))
    for other in listed.programs:
        if not other.why_not:
            label = other.label
            programs[label] = Program(label, label, warm=True, optional=True, options=other.arguments)
            rows.append(PlannedRow(label, other.kind, label, _AGAINST.get(other.kind, FIXED), what=other.what))
    unavailable = [(fix.name, fix.why_not or "no reason given") for fix in listed.fixes if not fix.available]
    unavailable += [(other.label, other.why_not) for other in listed.programs if other.why_not]
    return LadderPlan(tuple(rows), tuple(programs.values()), tuple(unavailable))


def _sets(listed: FixList) -> Iterator[tuple[str, ListedFix, frozenset[str]]]:
    """Yield kind, fix and set of fixes of each row.

    A fix is left out together with all that require it, and comes with what it requires. One that is no part of the
    full set takes the place of all that it excludes and of all that require those.
    """
    full, cures = frozenset(listed.fixed), [listed.fix(name) for name in listed.fixed]
    for number, fix in enumerate(cures, start=1):
        yield "cumulative", fix, frozenset(listed.fixed[:number])
    for fix in cures:
        yield "without", fix, full - {*listed.with_dependents([fix.name])}
    for fix in cures:
        yield "alone", fix, frozenset(listed.with_needs(fix.name))
    for kind in ("on top", "instead", "work"):
        for fix in listed.fixes:
            if fix.kind == kind and fix.available:
                yield kind, fix, (full - {*listed.displaced_by(fix.name)}) | {*listed.with_needs(fix.name)}
