"""The section about the quick fix, smaller chunks: how they change the time of a chunk and the tokens per second."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.analyse.model import Measure, Ratio
from profiler.core.units import count
from profiler.report.blocks import Block, Cell, Column, Curve, Group, Lines, NotMeasured, Panel, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import factor, measure_cell, phrase, quantity, ratio_cell, ratio_text
from profiler.report.text import NO_REASON, describe, listed
from reference_trainer.report.claims import is_language_model
from reference_trainer.report.ladder import Ladder, LadderRow, comparison_ladder

TITLE = "The quick fix: smaller chunks"
_COLUMNS = (
    Column("Tokens a chunk"),
    Column("Time of a chunk", number=True),
    Column("Tokens a second", number=True),
    Column("Tokens a second, ratio", number=True),
)
_NARROW = 1.1
"""An interval between this and its inverse is narrow enough to conclude that little changes."""
_PER_SECOND = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}


@dataclass(frozen=True, slots=True)
class Size:
    """The results of as-found with chunks of one size."""

    tokens: int
    row: LadderRow
    is_default: bool

    @property
    def time(self) -> Measure:
        """Time of a chunk."""
        return self.row.measure("step_time")

    @property
    def speed(self) -> Measure:
        """Tokens a second."""
        return self.row.measure("tokens_per_s")


def build(report_input: ReportInput) -> Section | None:
    """Build the sentence, two small plots and the table."""
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None or not is_language_model(report_input):
        return None
    all_sizes = sizes(ladder, report_input)
    if not any(not size.is_default for size in all_sizes):
        reason = "no round was complete" if ladder.interrupted else "the ladder has no row of another chunk size"
        return Section("quick-fix", TITLE, (NotMeasured("smaller chunks", reason),))
    sentence = Text(summary(all_sizes))
    plots = tuple((title, (plot,)) for title, plot in _plots(all_sizes))
    blocks: list[Block] = [sentence, *((Group(plots),) if plots else ()), _table(all_sizes, report_input.devices)]
    return Section("quick-fix", TITLE, tuple(blocks), brief=(sentence,))


def sizes(ladder: Ladder, report_input: ReportInput) -> tuple[Size, ...]:
    """Return the size of as-found and those of the sweep, the largest first."""
    all_sizes, base = {}, ladder.baseline
    default_tokens = base.tokens_per_chunk if base and base.tokens_per_chunk else _chunk_size_fact(report_input)
    for row in ladder.of_kind("chunk size"):
        if row.tokens_per_chunk:
            all_sizes[row.tokens_per_chunk] = Size(row.tokens_per_chunk, row, is_default=False)
    if base is not None and default_tokens:
        all_sizes[default_tokens] = Size(default_tokens, base, is_default=True)
    return tuple(sorted(all_sizes.values(), key=lambda size: -size.tokens))


def _chunk_size_fact(report_input: ReportInput) -> int | None:
    """The chunk size among the facts of as-found's program."""
    stated = report_input.sides[0].info.facts.get("tokens_per_chunk") if report_input.sides else None
    return stated if isinstance(stated, int) and stated > 0 else None


def summary(all_sizes: tuple[Size, ...]) -> str:
    """Summarize what the smallest chunk changes, and whether any size changes the tokens per second by its interval."""
    return f"{_time_sentence(all_sizes)} {_speed_sentence([size for size in all_sizes if not size.is_default])}"


def _time_sentence(all_sizes: tuple[Size, ...]) -> str:
    smallest, default = all_sizes[-1], next((size for size in all_sizes if size.is_default), None)
    if default is None or default is smallest or not default.time.value or not smallest.time.value:
        return f"Chunks of {listed_sizes(all_sizes)} tokens were tried."
    took, before = (phrase(size.time.value or 0.0, "s") for size in (smallest, default))
    part, share = (
        ratio_of(a, b) for a, b in ((smallest.tokens, default.tokens), (smallest.time.value, default.time.value))
    )
    return (
        f"A chunk of {smallest.tokens:,} tokens instead of {default.tokens:,} takes {took} instead of {before}: "
        f"{share} the time for {part} the tokens."
    )


def ratio_of(after: float, before: float) -> str:
    """Format a ratio: as a fraction such as 1/8.02 if it is less than 1, otherwise as 1.20×."""
    return f"1/{count(before / after)}" if after < before else ratio_text(after / before)


def listed_sizes(all_sizes: tuple[Size, ...]) -> str:
    """Join the sizes for a sentence."""
    return ", ".join(f"{size.tokens:,}" for size in all_sizes)


def _speed_sentence(tried: list[Size]) -> str:
    measured = [(size, value) for size in tried if (value := size.row.gain.value) is not None]
    if not measured:
        reason = next((describe(size.row.gain.reason) for size in tried if size.row.gain.reason), NO_REASON)
        return f"What becomes of tokens a second was not measured: {reason}."
    moved = [(size, value) for size, value in measured if size.row.gain.different]
    still = [(size, value) for size, value in measured if not size.row.gain.different]
    if not moved and any(size.row.gain.low is None for size, _ in still):
        chance = "one round has no interval that could tell a change from chance"
        return f"Tokens a second come to {_span(measured)}; {chance}."
    narrow = [(size, value) for size, value in still if _narrow(size.row.gain)]
    wide = [(size, value) for size, value in still if not _narrow(size.row.gain)]
    parts = []
    if moved:
        at = ", ".join(f"{ratio_text(value)} at {size.tokens:,}" for size, value in moved)
        parts.append(f"Tokens a second do change: {at} tokens a chunk")
    if narrow:
        parts.append(_unchanged_phrase(narrow, every=len(narrow) == len(measured), first=not moved))
    if wide:
        parts.append(_undecided_phrase(wide, every=len(wide) == len(measured)))
    return "; ".join(parts) + "."


def _narrow(gain: Ratio) -> bool:
    """Whether an interval leaves room for small changes only."""
    return gain.low is not None and gain.high is not None and gain.low >= 1 / _NARROW and gain.high <= _NARROW


def _unchanged_phrase(narrow: list[tuple[Size, float]], *, every: bool, first: bool) -> str:
    where = "any size" if every else listed(f"{size.tokens:,}" for size, _ in narrow)
    unchanged = f"no difference was seen at {where} ({_span(narrow)}, intervals within 10%)"
    if not first:
        return unchanged
    return f"In tokens a second {unchanged}: progress shows sooner, training is no faster{'' if every else ' there'}"


def _undecided_phrase(wide: list[tuple[Size, float]], *, every: bool) -> str:
    if every:
        undecided = "the runs of every size spread too widely to say whether they change"
        return f"Tokens a second come to {_span(wide)}; {undecided}"
    ends = "; ".join(f"{ratio_text(value)}, {_ends(size.row.gain)}" for size, value in wide)
    where = listed(f"{size.tokens:,}" for size, _ in wide)
    return f"at {where} the runs spread too widely to say ({ends})"


def _ends(gain: Ratio) -> str:
    if gain.low is None:
        return describe(gain.reason) or "no interval"
    return "95% " + " to ".join(factor(end)[0] for end in (gain.low, gain.high) if end is not None)


def _span(several: list[tuple[Size, float]]) -> str:
    """Format the smallest and the largest ratio, or the only one if both have the same text."""
    values = [value for _, value in several]
    smallest, largest = ratio_text(min(values)), ratio_text(max(values))
    return smallest if smallest == largest else f"{smallest} to {largest}"


def _plots(all_sizes: tuple[Size, ...]) -> list[tuple[str, Lines]]:
    plots = []
    for title, unit, name in (("Time of a chunk", "s", "step_time"), ("Tokens a second", "tokens/s", "tokens_per_s")):
        measures = [
            (size.tokens, measure) for size in all_sizes if (measure := size.row.measure(name)).value is not None
        ]
        if len(measures) > 1:
            scale, displayed = _scale(max(m.value or 0.0 for _, m in measures), unit)
            x, y, low, high = zip(*sorted(_point(tokens, m, scale) for tokens, m in measures), strict=True)
            curve = Curve(title, "s1", x, y, low, high)
            caption = "Mean, with the lowest and the highest run"
            plots.append((title, Lines(caption, "tokens a chunk", displayed, (Panel("", (curve,)),))))
    return plots


def _point(tokens: int, measure: Measure, scale: float) -> tuple[float, float, float, float]:
    """Return the size, the mean and both ends of its range; without a range, these are the mean."""
    value = measure.value or 0.0
    low, high = (value if end is None else end for end in (measure.low, measure.high))
    return float(tokens), scale * value, scale * low, scale * high


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """Return the factor and the unit of the scaled values; axes of tokens/s shorten their numbers themselves."""
    if unit != "s" or not 0 < largest < 60:
        return 1.0, unit
    displayed = quantity(largest, unit)[1]
    return _PER_SECOND[displayed], displayed


def _table(all_sizes: tuple[Size, ...], device: str) -> Table:
    rows = tuple(
        (
            Cell(f"{size.tokens:,}", sort=size.tokens, note="as found" if size.is_default else ""),
            measure_cell(size.time, spread=True),
            measure_cell(size.speed, spread=True, bare=True),
            Cell("baseline", sort=1.0) if size.is_default else ratio_cell(size.row.gain),
        )
        for size in all_sizes
    )
    note = "Geometric means with the lowest and the highest run; ratios over as-found with 95% intervals."
    return Table(f"As-found with other chunk sizes, {device}", _COLUMNS, rows, note)


PLUGIN = SectionPlugin("quick-fix", TITLE, 24, build, group="time")
