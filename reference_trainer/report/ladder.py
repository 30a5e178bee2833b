"""The ladder: the gain of each fix alone, on top of those before it, and on top of all others, from recorded rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from profiler.analyse.comparability import SideRuns, find_mismatches, over_runs, paired_ratio
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Ratio
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice
from profiler.core.units import ratio, significant
from profiler.report.notices import describe
from profiler.report.text import plural

NAME: Final = "ladder"
"""Name of this extension in a comparison and in its JSON report."""
SPEED: Final = "tokens_per_s"


def _none(reason: str) -> Ratio:
    """The ratio of what has none."""
    return Ratio(SPEED, None, None, None, 0, different=False, reason=Notice("text", {"text": reason}))


NO_RATIO: Final = {
    "work": _none("does other work: no like-for-like ratio"),
    "beside": _none("another program: no like-for-like ratio"),
}
"""Kind of a row that has no ratio -> that with the reason."""
ITSELF: Final = Notice("text", {"text": "the baseline itself"})
NO_PREDICTION: Final = _none("predictions are for fixes that are added")
NO_ROW: Final = Notice("text", {"text": "the ladder has no such row"})
NOT_RECORDED: Final = Notice("text", {"text": "not recorded in the runs of this row"})
_NAMED_GAINS: Final = 3
"""Fixes that the verdict names with their gains."""


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One set of fixes of the ladder, before it is measured."""

    label: str
    """as-found, + batch-tokenize, without async (and pooled), alone pooled (with async), pretokenize, learn, tf32"""
    kind: str
    """baseline | cumulative | without | alone | on top | instead | work | precision | beside"""
    program: str = ""
    """Label of the recorded program: rows with the same set of fixes share one."""
    against: str = ""
    """What `gain` compares with: as-found, fixed or the label of the row before; empty where there is no gain."""
    fix: str = ""
    """The fix that the row is about; empty in the baseline and in rows of other programs."""
    also: tuple[str, ...] = ()
    """Fixes that are left out, or added, together with it."""
    fixes: tuple[str, ...] = ()
    """All fixes that were on, in the order of the ladder."""
    removes: str = ""
    """The cost that `fix` removes, as text."""
    rule: str = ""
    """Name of the rule that detects this cost."""
    what: str = ""
    """What the program is, where it is no set of fixes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRow(PlannedRow):
    """A row with the ratios of its speed to that of another set and to that of as-found."""

    measures: Mapping[str, Measure]
    """Over its runs: geometric mean, with the lowest and highest run as low and high."""
    gain: Ratio
    """tokens_per_s, paired by round. cumulative: over the row before it; without: fixed over this row, which is what
    the fix gives on top of all others; alone: over as-found; on top, instead, precision: over fixed; others: None."""
    total: Ratio
    """tokens_per_s over as-found; None with its reason where `gain` is."""
    predicted: Ratio = NO_PREDICTION
    """What the finding of `rule` in the breakdown pass of the program without the fix predicts, if that removed all of
    its cost: the most certain prediction, and the range of all of them, such as bound and replay."""
    is_lower_bound: bool = False
    """Whether the fix makes the rest of a step faster too, by how much no prediction knows."""
    analysis: Analysis | None = None
    """Its last run, for series such as the loss."""

    def measure(self, name: str) -> Measure:
        """A measure of this row; one that it lacks is None with the reason."""
        return self.measures.get(name) or Measure(name, None, "", reason=NOT_RECORDED)

    @property
    def cpu_time(self) -> float | None:
        """CPU seconds of a step, of the process and its children; the threads of a host device are among its own."""
        step, used = self.measure("step_time").value, self.measure("host_cpu").value
        if step is None or used is None:
            return None
        return step * (used + sum(self.measure(name).value or 0.0 for name in ("device_cpu", "children_cpu")))

    @property
    def fix_with_companions(self) -> str:
        """The fix, with the fixes that are left out together with it."""
        return self.fix + (f" (and {', '.join(self.also)})" if self.also else "")


@dataclass(frozen=True, slots=True)
class Ladder:
    """The measured rows of a trainer's fixes: each alone, on top of the others and left out, in interleaved rounds."""

    rows: tuple[LadderRow, ...]
    """The baseline first; then by kind, in the order of the ladder."""
    unavailable: tuple[tuple[str, str], ...] = ()
    """Fixes that cannot run here, each with the reason."""
    rounds: int = 0
    """Complete rounds: each of them ran every program once, and the full set twice."""
    interrupted: bool = False
    """True: fewer rounds than requested."""

    @property
    def baseline(self) -> LadderRow | None:
        """The row of as-found."""
        return next(iter(self.of_kind("baseline")), None)

    def of_kind(self, *kinds: str) -> tuple[LadderRow, ...]:
        """Rows of these kinds, in their order."""
        return tuple(row for row in self.rows if row.kind in kinds)

    def by_fix(self) -> dict[str, dict[str, LadderRow]]:
        """The rows about each fix of the full set, by kind; a fix's first row is the one on top of those before it."""
        fixes: dict[str, dict[str, LadderRow]] = {}
        for row in self.of_kind("cumulative", "without", "alone"):
            fixes.setdefault(row.fix, {})[row.kind] = row
        return fixes

    def method_sentences(self) -> Iterator[str]:
        """Describe how the ladder was measured."""
        yield (
            f"{plural(self.rounds, 'round')} of the ladder: in each, every program ran once and the full set twice, in "
            "an order of its own. A gain is over pairs of the same round; two runs count by their geometric mean."
        )
        yield (
            "Gains of fixes that were left out share the runs of the full set, and gains over as-found share its runs: "
            "such gains are correlated, and a hiccup of the shared runs moves all of them."
        )
        rows = (row for row in self.rows if row.gain.low is not None and row.gain.reason != ITSELF)
        if pairs := {frozenset({row.program, row.against}) for row in rows}:
            yield (
                f"One in twenty of the {len(pairs)} intervals, each of two different programs, excludes 1 by chance, "
                "where a fix does nothing."
            )

    def next_command(self) -> str:
        """Nothing: the ladder has measured each fix."""
        return ""

    def verdict_sentence(self) -> str:
        """Name the fixes that matter on top of all others, and those without a measurable effect here."""
        rows = self.of_kind("without")
        if alone := [row for row in rows if row.gain.value is not None and row.gain.low is None]:
            parts = [f"no fix can be told from no effect: {describe(alone[0].gain.reason)}"]
        else:
            parts = list(_effects([row for row in rows if row.gain.low is not None]))
        if unmeasured := [row for row in rows if row.gain.value is None]:
            parts.append(f"not known of {_names(unmeasured)}: {describe(unmeasured[0].gain.reason)}")
        return f"Of the fixes, each left out of the full set: {'; '.join(parts)}." if parts else ""


def measure_ladder(
    rows: Sequence[PlannedRow],
    programs: Mapping[str, SideRuns],
    *,
    unavailable: tuple[tuple[str, str], ...] = (),
    interrupted: bool = False,
    anyway: bool = False,
) -> Ladder:
    """Compute the measures and ratios of the rows.

    :param rows: the first is the baseline.
    :param programs: by label; run i of every program belongs to round i.
    :param anyway: give ratios of rows that are not comparable too.
    """
    base = programs[rows[0].program]
    return Ladder(
        rows=tuple(_measure_row(row, programs, base, anyway=anyway) for row in rows),
        unavailable=unavailable,
        rounds=min(len(program.light) for program in programs.values()),
        interrupted=interrupted,
    )


def _measure_row(row: PlannedRow, programs: Mapping[str, SideRuns], base: SideRuns, *, anyway: bool) -> LadderRow:
    side = programs[row.program]
    before, after = programs.get(row.against, base), side
    if row.kind == "without":
        before, after = after, before
    predicted, is_lower_bound = _prediction(row.rule, before.detail)
    return LadderRow(
        **{field.name: getattr(row, field.name) for field in fields(row)},
        measures=over_runs(side),
        gain=_speed_ratio(row, before, after, anyway=anyway),
        total=_speed_ratio(row, base, side, anyway=anyway),
        predicted=predicted,
        is_lower_bound=is_lower_bound,
        analysis=side.detail or (side.light[-1] if side.light else None),
    )


def _prediction(rule: str, before: Analysis | None) -> tuple[Ratio, bool]:
    """The gain that the finding of a rule predicts, or why there is none, and whether it is a lower bound."""
    if not rule:
        return _none("no rule recognizes its cost"), False
    if before is None:
        return _none("no breakdown pass of the program before it"), False
    gains = next((finding.gains for finding in before.findings if finding.rule.name == rule), None)
    if not gains:
        silent = "its rule names nothing in the program before it" if gains is None else "the finding predicts no gain"
        return _none(silent), False
    low, high = min(gain.low for gain in gains), max(gain.high for gain in gains)
    return Ratio(SPEED, gains[0].factor, low, high, 1, different=low > 1), gains[0].is_least


def _speed_ratio(row: PlannedRow, before: SideRuns, after: SideRuns, *, anyway: bool) -> Ratio:
    """Ratio of the tokens per second, or why there is none."""
    if row.kind in NO_RATIO:
        return NO_RATIO[row.kind]
    mismatches = find_mismatches((before, after), ignored=("dtype",) if row.kind == "precision" else ())
    if mismatches and not anyway:
        return replace(_none(""), reason=Notice("not-comparable", {"mismatches": mismatches}))
    paired = paired_ratio(SPEED, before, after)
    if before is after and paired.value is not None:
        return replace(paired, low=1.0, high=1.0, reason=ITSELF)
    return paired


def comparison_ladder(comparison: Comparison | None) -> Ladder | None:
    """The ladder of a comparison that has one."""
    ladder = comparison.extensions.get(NAME) if comparison is not None else None
    return ladder if isinstance(ladder, Ladder) else None


def _effects(rows: Sequence[LadderRow]) -> Iterator[str]:
    """Yield the gains, the losses and the fixes without a measurable effect; the largest come first."""
    ordered = sorted(rows, key=lambda row: -(row.gain.value or 0.0))
    gains = [row for row in ordered if row.gain.different and (row.gain.value or 0.0) > 1]
    if gains:
        yield ", ".join(f"{row.fix_with_companions} gives {_amount(row.gain)}" for row in gains[:_NAMED_GAINS])
    if len(gains) > _NAMED_GAINS:
        yield f"less, but more than none: {_names(gains[_NAMED_GAINS:])}"
    if losses := [row for row in reversed(ordered) if row.gain.different and (row.gain.value or 0.0) < 1]:
        yield "slower with: " + ", ".join(f"{row.fix_with_companions} {_amount(row.gain)}" for row in losses)
    alike = [row for row in rows if not row.gain.different]
    if alike and len(alike) == len(rows):
        yield "none can be told from no effect here"
    elif alike:
        yield f"indistinguishable from no effect here: {_names(alike)}"


def _names(rows: Iterable[LadderRow]) -> str:
    return ", ".join(row.fix_with_companions for row in rows)


def _amount(gain: Ratio) -> str:
    return f"{ratio(gain.value or 0.0)} (95% {' to '.join(significant(end or 0.0) for end in (gain.low, gain.high))})"
