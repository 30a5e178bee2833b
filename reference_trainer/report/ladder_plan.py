"""Plans a ladder: reads the trainer's list of its fixes (`--list-fixes`), and derives rows and programs from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from profiler.core.errors import ProfilerError
from reference_trainer.report.ladder import PlannedRow


class ListedFix(BaseModel):
    """One fix as the trainer describes it (`reference_trainer.fixes.Fix`)."""

    model_config = ConfigDict(frozen=True)

    name: str
    removes: str
    rule: str
    rule_left_out: str
    requires: tuple[str, ...]
    excludes: tuple[str, ...]
    kind: Literal["cure", "on top", "instead", "work"]
    available: bool
    why_not: str


class ListedProgram(BaseModel):
    """A program that is measured beside the fixes."""

    model_config = ConfigDict(frozen=True)

    label: str
    kind: Literal["precision", "beside"]
    """precision: the full set with narrower numbers | beside: another program of the same work"""
    what: str
    arguments: tuple[str, ...]
    why_not: str = ""
    """Why it cannot run here; empty: it can."""


class FixList(BaseModel):
    """All fixes, in the order of the ladder.

    The trainer has to list each fix after those that it requires; this is not checked.
    """

    model_config = ConfigDict(frozen=True)

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


BASELINE = "as-found"
FIXED = "fixed"
_LABELS: Final = {"cumulative": "+ {}", "without": "without {}", "alone": "alone {}"}
_ALSO: Final = {"without": "and", "alone": "with"}
"""Kinds whose labels name the fixes that are left out or added together with the row's fix."""


@dataclass(frozen=True, slots=True)
class Program:
    """The trainer with one set of fixes."""

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
    """Fixes that cannot run here, and why."""


def plan_ladder(listed: FixList) -> LadderPlan:
    """Rows and programs, in this order: the baseline, cumulative, without, alone, on top, instead, work; others."""
    plan = _Planner(listed)
    plan.baseline()
    plan.cumulative()
    for name in listed.fixed:
        plan.without(name)
    for name in listed.fixed:
        plan.alone(name)
    for kind in ("on top", "instead", "work"):
        for fix in listed.fixes:
            if fix.kind == kind and fix.available:
                plan.in_place(fix.name)
    for program in listed.programs:
        if not program.why_not:
            plan.beside(program)
    unavailable = [(fix.name, fix.why_not or "no reason given") for fix in listed.fixes if not fix.available]
    unavailable += [(program.label, program.why_not) for program in listed.programs if program.why_not]
    return LadderPlan(tuple(plan.rows), tuple(plan.programs.values()), tuple(unavailable))


@dataclass(slots=True)
class _Planner:
    """Collects rows, and one program for each set of fixes that they need."""

    listed: FixList
    rows: list[PlannedRow] = field(default_factory=list)
    programs: dict[frozenset[str] | str, Program] = field(default_factory=dict)

    def baseline(self) -> None:
        listed = self.listed
        self.programs[frozenset()] = Program(BASELINE, BASELINE, warm=True)
        self.programs[frozenset(listed.fixed)] = Program(FIXED, FIXED, listed.ordered(listed.fixed), warm=True)
        self.rows.append(PlannedRow(BASELINE, "baseline", BASELINE, BASELINE))

    def cumulative(self) -> None:
        before = BASELINE
        for number, name in enumerate(self.listed.fixed):
            self._row("cumulative", name, {*self.listed.fixed[: number + 1]}, before)
            before = self.rows[-1].program

    def without(self, name: str) -> None:
        """Leave the fix out together with all that require it; their gain is `fixed` over this row."""
        gone = {*self.listed.with_dependents([name])} & {*self.listed.fixed}
        self._row("without", name, {*self.listed.fixed} - gone, FIXED, also=gone - {name})

    def alone(self, name: str) -> None:
        """Add this fix and what it requires to as-found."""
        chosen = {*self.listed.with_needs(name)}
        self._row("alone", name, chosen, BASELINE, also=chosen - {name})

    def in_place(self, name: str) -> None:
        """Put this fix in place of all that it excludes and all that require those."""
        gone = {*self.listed.displaced_by(name)} & {*self.listed.fixed}
        chosen = ({*self.listed.fixed} - gone) | {*self.listed.with_needs(name)}
        kind = self.listed.fix(name).kind
        self._row(kind, name, chosen, "" if kind == "work" else FIXED, also=gone)

    def beside(self, listed: ListedProgram) -> None:
        """Add a program that is no set of fixes."""
        label, against = listed.label, FIXED if listed.kind == "precision" else ""
        self.programs[label] = Program(label, label, warm=True, optional=True, options=listed.arguments)
        self.rows.append(PlannedRow(label, listed.kind, label, against, what=listed.what))

    def _row(
        self, kind: str, name: str, chosen: AbstractSet[str], against: str, *, also: AbstractSet[str] = frozenset()
    ) -> None:
        fix, others = self.listed.fix(name), self.listed.ordered(also)
        label = _LABELS.get(kind, "{}").format(name)
        if others and kind in _ALSO:
            label += f" ({_ALSO[kind]} {', '.join(others)})"
        replaces = kind not in _LABELS
        folder = name if replaces else f"{kind}-{name}"
        program = self._program(label, folder, chosen, warm=replaces)
        fixes = self.listed.ordered(chosen)
        rule = fix.rule_left_out if kind == "without" else fix.rule
        self.rows.append(PlannedRow(label, kind, program.label, against, name, others, fixes, fix.removes, rule))

    def _program(self, label: str, folder: str, chosen: AbstractSet[str], *, warm: bool) -> Program:
        """Return the program that runs this set; create it with that label if there is none yet."""
        fresh = Program(label, folder, self.listed.ordered(chosen), warm, optional=warm)
        return self.programs.setdefault(frozenset(chosen), fresh)
