"""Shows the ranks of a program side by side: their own work, its parts, and how long they wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profiler.analyse.model import HOST_CATEGORIES, CollectiveWait, RankActivity, RankLedger
from profiler.core.units import seconds
from profiler.report.blocks import Bar, Block, Cell, Segment, StackedBars, Text
from profiler.report.build import section
from profiler.report.category_text import category_label, category_tone
from profiler.report.model import ReportInput
from profiler.report.rank_text import collective_name, function_of_program, rank_sentences
from profiler.report.table import Field, make_table, missing_cell, percent, seconds_cell
from profiler.report.text import at, describe

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
    """Sentences on the late ranks, a bar for each rank, and the numbers behind them."""
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
    note = "Own work: a step without waits for other ranks. Last: how often the other ranks waited for this one."
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
        Field("Longer than the others before it", _before),
    ]
    note = (
        "Seconds per step until the late rank arrives, and its line that takes longer than on the other ranks, "
        "between the collective before and this one."
    )
    return make_table("Collectives with a late rank", fields, ledger.collectives, note)


def _before(wait: CollectiveWait) -> Cell:
    if wait.before is None:
        return missing_cell(wait.reason)
    function = function_of_program(wait.before)
    if wait.at_line or not function:
        return Cell(at(wait.before).strip() + (f", in {function}" if function else ""))
    return Cell(f"in {function}")


def _largest(rank: RankActivity) -> str:
    largest = sorted(rank.categories, key=lambda name: -rank.categories[name])[:_CATEGORIES_NAMED]
    return ", ".join(f"{category_label(name)} {seconds(rank.categories[name])}" for name in largest)


PLUGIN = ranks
