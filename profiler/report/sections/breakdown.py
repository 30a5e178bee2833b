"""Shows where the time of a step goes: on the host, in data loading, and in each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from profiler.analyse.model.input import InputPart
from profiler.analyse.model.measures import DEVICE_CATEGORIES, HOST_CATEGORIES, WAIT_CATEGORIES, Measure
from profiler.analyse.model.ranks import CollectiveWait, RankActivity, RankLedger
from profiler.core.units import seconds
from profiler.report.blocks import NOTHING, Bar, Block, Cell, NotMeasured, Segment, StackedBars, Table, Text
from profiler.report.build import section
from profiler.report.category_text import category_label, category_meaning, category_tone
from profiler.report.model import ReportInput, ReportSide
from profiler.report.notices import NO_REASON, describe
from profiler.report.rank_text import before_text, collective_name, rank_sentences
from profiler.report.table import (
    Field,
    RowKey,
    in_one_table,
    make_table,
    missing_cell,
    percent,
    phrase,
    row_key,
    seconds_cell,
    share_cell,
    short_site,
    sides_table,
)
from profiler.report.text import at, capitalized, function_name, input_part, listed
from profiler.report.timeline import main_timeline
from profiler.run.model import Site

# ---------------------------------------------------------------- the host's time

_DEVICE_CALLS: Final = ("sync", "copy", "launch")
_CORE: Final = "core"
_HOST_SHARES: Final = "Shares of a step's host time"


@section(
    "breakdown",
    "Where the host's time goes",
    30,
    "time",
    brief=lambda report_input: share_bars(report_input.sides, _HOST_SHARES),
)
def breakdown(report_input: ReportInput) -> Iterator[Block]:
    """Show the numbers; of a comparison without a timeline, whose colours show them, bars as shares too."""
    sides = report_input.sides
    absent = [side for side in sides if not side.detailed.breakdown]
    if len(absent) < len(sides):
        if len(sides) > 1 and main_timeline(report_input) is None:
            yield from share_bars(sides, _HOST_SHARES)
        yield _breakdown_table(report_input)
    for side in absent:
        yield NotMeasured(f"breakdown of {side.label}", side.why_no_breakdown())


def _measures(side: ReportSide, device: bool) -> Mapping[str, Measure]:
    return side.detailed.device_breakdown if device else side.detailed.breakdown


def _category_names(sides: Iterable[ReportSide], *, device: bool = False) -> tuple[str, ...]:
    """Return the categories that any side has, in their standard order."""
    standard = DEVICE_CATEGORIES if device else HOST_CATEGORIES
    present = {name for side in sides for name in _measures(side, device)}
    return (*(name for name in standard if name in present), *sorted(present.difference(standard)))


def share_bars(sides: tuple[ReportSide, ...], caption: str, *, device: bool = False) -> Iterator[StackedBars]:
    """Yield the breakdown of the host's or the device's time as shares, or nothing where no side has one."""
    bars = []
    for side in sides:
        measured = _measures(side, device)
        names = (name for name in _category_names(sides, device=device) if name in measured)
        values = {name: value for name in names if (value := measured[name].value or 0.0) > 0}
        total = sum(values.values())
        if total > 0:
            segments = tuple(
                Segment(category_label(name), value, percent(value / total), category_tone(name))
                for name, value in values.items()
            )
            bars.append(Bar(side.label, segments, phrase(total, "s")))
    if bars:
        yield StackedBars(caption, tuple(bars), share=True)


def slowdown_note(sides: tuple[ReportSide, ...]) -> str:
    """Tell how much slower the breakdown pass was, per side; empty for a single run."""
    slow, unknown = [], dict[str, list[str]]()
    for side in sides:
        if side.slowdown is None:
            continue
        if side.slowdown.value is None:
            unknown.setdefault(describe(side.slowdown.reason) or NO_REASON, []).append(side.label)
        else:
            slow.append(f"{side.slowdown.value:.2f}× as long in {side.label}")
    sentences = [f"In the breakdown pass, a step takes {listed(slow)}."] if slow else []
    sentences += [
        f"How much recording slowed the breakdown pass of {listed(labels)} was not measured: {reason}."
        for reason, labels in unknown.items()
    ]
    return " ".join(sentences)


def _breakdown_table(report_input: ReportInput) -> Table:
    sides = report_input.sides
    names = [name for name in _category_names(sides) if any(_seconds(side, name) for side in sides)]
    meaning = Field[str]("Category", lambda name: Cell(category_label(name), note=category_meaning(name)))
    fields = (meaning, *(field for side in sides for field in _side_fields(side)))
    caption = "Seconds per step; the categories sum to the step"
    # without a queue there is nothing of a device to wait for
    known = [name for name in _category_names(sides) if not (report_input.has_no_queue and name in _DEVICE_CALLS)]
    notes = [_empty_categories(sides, [name for name in known if name not in names])]
    if _CORE in names:  # the parts of a step have their waits for a core, so that both have other figures
        notes.append("Waits for a core are no part of the other categories.")
    return make_table(caption, fields, names, " ".join(filter(None, notes)))


def _seconds(side: ReportSide, name: str) -> float | None:
    measured = side.detailed.breakdown.get(name)
    return measured.value if measured is not None else None


def _empty_categories(sides: tuple[ReportSide, ...], none: Sequence[str]) -> str:
    """`No time in log and checkpoint; framework was not measured.`: the categories that the table leaves out."""
    zero = [name for name in none if any(_seconds(side, name) is not None for side in sides)]
    unknown = [category_label(name) for name in none if name not in zero]
    texts = [f"no time in {listed([category_label(name) for name in zero])}"] if zero else []
    texts += [f"{listed(unknown)} {'was' if len(unknown) == 1 else 'were'} not measured"] if unknown else []
    text = "; ".join(texts)
    return f"{capitalized(text)}." if text else ""


def _side_fields(side: ReportSide) -> tuple[Field[str], Field[str]]:
    measured = side.detailed.breakdown
    values = {name: measure.value for name, measure in measured.items() if measure.value is not None}
    total = sum(values.values())

    def missing(name: str) -> Cell:
        if name in measured:
            return missing_cell(measured[name].reason)
        return Cell(NOTHING) if measured and name in WAIT_CATEGORIES else missing_cell(side.why_no_breakdown())

    def seconds(name: str) -> Cell:
        return seconds_cell(values[name]) if name in values else missing(name)

    def share(name: str) -> Cell:
        if name not in values:
            return missing(name)
        return share_cell(values[name] / total) if total else Cell("0", "%", 0.0)

    return Field(side.label, seconds, number=True, tone=side.tone), Field("Share", share, number=True, bar=True)


# ---------------------------------------------------------------- data loading


def _function_cell(site: Site | None) -> Cell:
    """Name a function, and where it begins: its hook knows no other line, and the slow one may be another."""
    if site is None:
        return Cell(NOTHING)
    begin = f"begins at {short_site(site)}"
    return Cell(function_name(site), note=begin, title=f"{site.file}:{site.line}", code=True)


_INPUT_NAMES = (
    Field[InputPart]("Part", lambda part: Cell(input_part(part))),
    Field[InputPart]("In", lambda part: Cell("workers" if part.where == "worker" else part.where)),
    Field[InputPart]("Function", lambda part: _function_cell(part.site)),
)
_INPUT_FIELDS = (
    Field[InputPart]("Time", lambda part: seconds_cell(part.seconds_per_step), number=True),
    Field[InputPart]("Share", lambda part: share_cell(part.share), number=True, bar=True),
)
_INPUT_NOTE = (
    "For workers: seconds of all workers for each step, and the share of their own time. "
    "For the main process: the share of the step."
)
_MAIN_INPUT_NOTE = "Shares of the step."


@section("input", "Where the time of data loading goes", 35, "time")
def input_time(report_input: ReportInput) -> Iterator[Block]:
    """Show the parts of data loading; what would make it faster is among the findings."""
    known = [side for side in report_input.sides if side.detailed.input]
    for sides in in_one_table(known, lambda side: side.detailed.input, _input_key):
        caption = "parts of data loading, per step"
        rows = [(side, side.detailed.input) for side in sides]
        has_workers = any(part.where == "worker" for _, parts in rows for part in parts)
        note = _INPUT_NOTE if has_workers else _MAIN_INPUT_NOTE
        yield sides_table(caption, rows, _input_key, _INPUT_NAMES, _INPUT_FIELDS, note=note)


def _input_key(part: InputPart) -> RowKey:
    return row_key(part.site, input_part(part), part.where)


MAX_BARS: Final = 16
"""Ranks that are drawn; of more, the ones with most own work."""
_CATEGORIES_NAMED: Final = 2


def _ledger(report_input: ReportInput) -> RankLedger | None:
    return report_input.analysis.ranks if report_input.analysis else None


def _brief(report_input: ReportInput) -> Iterator[Block]:
    ledger = _ledger(report_input)
    if ledger is not None:
        yield _table(ledger)


@section("ranks", "Ranks", 25, "time", brief=_brief)
def ranks(report_input: ReportInput) -> Iterator[Block]:
    """Show sentences on the late ranks, a bar for each rank, and the numbers behind them."""
    ledger = _ledger(report_input)
    if ledger is None:
        return
    yield Text(" ".join(rank_sentences(ledger)))
    bars = tuple(_bar(rank) for rank in _shown(ledger.ranks) if rank.categories)
    if bars:
        yield StackedBars("Seconds per step of each rank, on one scale", bars)
    yield _table(ledger)
    if ledger.collectives:
        yield _collectives(ledger)


def _shown(ranks_: Sequence[RankActivity]) -> list[RankActivity]:
    latest = sorted(ranks_, key=lambda each: (-(each.own_work or 0.0), each.rank))[:MAX_BARS]
    return sorted(latest, key=lambda each: each.rank)


def _bar(rank: RankActivity) -> Bar:
    names = [name for name in HOST_CATEGORIES if rank.categories.get(name)]
    segments = tuple(
        Segment(category_label(name), rank.categories[name], seconds(rank.categories[name]), category_tone(name))
        for name in names
    )
    return Bar(f"rank {rank.rank}", segments, seconds(sum(rank.categories.values())))


def _table(ledger: RankLedger) -> Block:
    why = describe(ledger.reason)
    fields: list[Field[RankActivity]] = [
        Field("Rank", lambda rank: Cell(str(rank.rank))),
        Field("Step", lambda rank: seconds_cell(rank.step_time), number=True),
        Field("Own work", lambda rank: seconds_cell(rank.own_work, missing=why), number=True),
        Field("Last", lambda rank: missing_cell(why) if rank.last is None else Cell(percent(rank.last)), number=True),
        Field("Most of its time", lambda rank: Cell(_largest(rank))),
    ]
    note = "Own work is a step without its waits for other ranks. Last tells how often the rank arrived last."
    left_out = sum(rank.excluded for rank in ledger.ranks)
    if left_out:
        note += f" {left_out:,} steps that not all ranks measured are left out."
    return make_table("Each rank, per step", fields, _shown(ledger.ranks), note)


def _collectives(ledger: RankLedger) -> Block:
    fields: list[Field[CollectiveWait]] = [
        Field("Collective", lambda wait: Cell(collective_name(wait) + at(wait.site))),
        Field("Late rank", lambda wait: Cell(str(wait.rank)), number=True),
        Field("Last", lambda wait: Cell(percent(wait.last)), number=True),
        Field("Others wait", lambda wait: seconds_cell(wait.seconds), number=True),
        Field(
            "Longer than the others before it",
            lambda wait: Cell(before_text(wait)) if wait.before else missing_cell(wait.reason),
        ),
    ]
    note = (
        "In each step, the others wait so long until the late rank arrives. The last column shows where the late rank "
        "spends more time than they do, after the collective before."
    )
    return make_table("Collectives with a late rank", fields, ledger.collectives, note)


def _largest(rank: RankActivity) -> str:
    largest = sorted(rank.categories, key=lambda name: -rank.categories[name])[:_CATEGORIES_NAMED]
    return ", ".join(f"{category_label(name)} {seconds(rank.categories[name])}" for name in largest)


PLUGINS = (breakdown, input_time, ranks)
