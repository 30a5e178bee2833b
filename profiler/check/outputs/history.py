"""Shows a history of checks in the terminal and as a page: last results, all series, where levels changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TextIO

from profiler.analyse.statistics import ALPHA, MIN_RESULTS, Shift
from profiler.check.history import WORKERS, Entry, History, HistorySeries, all_series
from profiler.check.model import FAIL, PASS, STATES
from profiler.check.outputs import format as fmt
from profiler.check.outputs.text import sentence
from profiler.core import units
from profiler.core.errors import Notice
from profiler.report import blocks as b
from profiler.report.render.drawing import spark
from profiler.report.table import Field, make_table
from profiler.report.text import capitalized, plural

_LISTED: Final = 10
"""Results that are listed; series that none of them belongs to are only counted."""
_CURVE_WIDTH: Final = 32
_MINUTE: Final = 16
"""Characters of a time to the minute: 2026-05-01T12:30."""


def print_history(history: History, *, stream: TextIO) -> None:
    """Print a history on `stream`, as wide as it is."""
    from rich.console import Console

    from profiler.report.render.console import print_report
    from profiler.report.render.terminal import is_unicode

    console = Console(file=stream, highlight=False)
    print_report(history_report(history, unicode=is_unicode(console)), full=True, console=console)


def write_page(history: History, folder: Path) -> Path:
    """Write a history as `history.html` into a folder; returns its path.

    :raises ProfilerError: it cannot be written.
    """
    from profiler.report.render import html
    from profiler.report.write import write_text

    report, every = history_report(history), all_series(history.entries)
    panels = tuple(_panel(series) for series in every if series.unit != "share" and len(set(series.values)) > 1)
    caption, note = "All series that vary, with the levels between their changes", "Numbers are those of the results."
    chart = b.Lines(caption, "result", "", panels, note=note, numbered=True, separate_y=True)
    charts = [b.Section("chart", "Over time", (chart,))] if panels else []
    path = folder / "history.html"
    write_text(path, html.render(replace(report, sections=(*charts, *report.sections))))
    return path


def _panel(series: HistorySeries) -> b.Panel:
    """The values of a series by the number of the result, and its levels."""
    numbers = [float(at + 1) for at in series.at]
    curves = [b.Curve("results", b.side_tone(0), tuple(numbers), series.values)]
    if changes := series.changes:
        ends = pairwise([0, *(shift.at for shift in changes), len(numbers)])
        x = [numbers[at] for begin, end in ends for at in (begin, end - 1)]
        levels = [level for level in (changes[0].before, *(shift.after for shift in changes)) for _ in range(2)]
        curves.append(b.Curve("level", b.side_tone(1), tuple(x), tuple(levels)))
    title = ", ".join(filter(None, (_series_title(series), series.machine)))
    return b.Panel(title, tuple(curves), y_label="per step" if series.unit == "1/step" else series.unit)


def history_report(history: History, *, unicode: bool = True) -> b.Report:
    """A history as blocks."""
    entries = history.entries
    title = "History of performance checks"
    warnings = tuple(b.Callout(sentence(warning), "warning", "Warning") for warning in history.warnings)
    if not entries:
        section = b.Section("history", "Results", (*warnings, b.Text("No check is in it yet.")))
        return b.Report(title, history.path, (section,))
    counts = Counter(entry.state for entry in entries)
    states = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    period = " to ".join(dict.fromkeys(_minute(entry.time) for entry in (entries[0], entries[-1])))
    every = all_series(entries)
    recent = [series for series in every if series.at[-1] >= len(entries) - _LISTED]
    method = b.Text(sentence(Notice("history-method", {"results": MIN_RESULTS, "alpha": ALPHA})))
    newest = entries[: -_LISTED - 1 : -1]
    last = make_table(f"The last {len(newest):,}, the newest first", _RESULT_FIELDS, newest)
    sections = (
        b.Section("changes", "Changes", (*warnings, _changes(recent, entries), method)),
        b.Section("series", "Series", _series(recent, len(every), len(entries), unicode=unicode)),
        b.Section("results", "Last results", (last,)),
    )
    return b.Report(title, f"{history.path}: {states}; {period}", sections)


def _changes(recent: Sequence[HistorySeries], entries: Sequence[Entry]) -> b.Block:
    """The changes of all series, the last one first."""
    changes = [(series.at[shift.at], series, shift) for series in recent for shift in series.changes]
    changes.sort(key=lambda change: -change[0])
    lines = tuple(_change_sentence(series, shift, entries) for _, series, shift in changes)
    return b.Items(lines) if lines else b.Text("No level changed.")


def _change_sentence(series: HistorySeries, shift: Shift, entries: Sequence[Entry]) -> str:
    """'Syncs: 12 -> 13 per step since 3f2a9c1 (2026-05-01 12:30); the result before is of 9ab01cd'."""
    first, last = entries[series.at[shift.at]], entries[series.at[shift.at - 1]]
    after = _amount(shift.after, series) + " per step" * (series.unit == "1/step")
    if series.unit != "share" and shift.before:
        after += f" ({100 * (shift.after / shift.before - 1):+.3g}%)"
    return (
        f"{_series_title(series)}: {_amount(shift.before, series)} → {after} since {_commit(first)} "
        f"({_minute(first.time)}); the result before is of {_commit(last)}"
        f"{'' if shift.p is None else f', p = {shift.p:.2g}'}"
    )


def _series(recent: Sequence[HistorySeries], total: int, results: int, *, unicode: bool) -> tuple[b.Block, ...]:
    def curve(series: HistorySeries) -> b.Cell:
        low, high = min(series.values), max(series.values)
        # from the least to the most: a change of 5% would be invisible on an axis from 0
        return b.Cell(spark([value - low for value in series.values], high - low, _CURVE_WIDTH, unicode=unicode))

    varying = [series for series in recent if series.unit != "1/step" or len(set(series.values)) > 1]
    blocks: list[b.Block] = []
    if varying:
        caption = f"Over all {results:,} results, the oldest on the left"
        blocks.append(make_table(caption, (*_SERIES_FIELDS, Field("Over time", curve)), varying))
    if constant := len(recent) - len(varying):
        blocks.append(b.Text(f"{plural(constant, 'counter')} never changed."))
    if old := total - len(recent):
        blocks.append(b.Text(f"{old:,} series of other programs or machines: none of the last results is of them."))
    return tuple(blocks) or (b.Text("Nothing was measured."),)


def _value_field(title: str, value: Callable[[HistorySeries], float]) -> Field[HistorySeries]:
    return Field(title, lambda series: b.Cell(_amount(value(series), series), sort=value(series)), number=True)


_SERIES_FIELDS: Final = (
    Field[HistorySeries]("Series", lambda series: b.Cell(_series_title(series), note=series.machine)),
    Field[HistorySeries]("Results", lambda series: b.Cell(f"{len(series.values):,}"), number=True),
    _value_field("Least", lambda series: min(series.values)),
    _value_field("Most", lambda series: max(series.values)),
    _value_field("Last", lambda series: series.values[-1]),
    Field[HistorySeries]("Changes", lambda series: b.Cell(f"{len(series.changes):,}"), number=True),
)


def _candidate_cell(entry: Entry) -> b.Cell:
    commit = fmt.short_commit(entry.commit, entry.what)
    # 'working tree (3f2a9c1)' contains its commit; a command does not
    return b.Cell(entry.what if commit in entry.what else ": ".join(filter(None, (commit, entry.what))))


def _slowdown_cell(entry: Entry) -> b.Cell:
    """The slow-down of a FAIL's first line that is certainly slower, else that of the typical step."""
    if not entry.slowdowns:
        return b.Cell(b.NOTHING)
    lines = list(entry.slowdowns.items())
    slower = [line for line in lines if entry.state == FAIL and (line[1].low or 0.0) > 0]
    name, bounds = (slower or lines)[0]
    note = ", ".join(filter(None, (fmt.interval(bounds.low, bounds.high), name)))
    return b.Cell(fmt.slower_or_faster(bounds.slowdown), sort=bounds.slowdown, note=note)


_RESULT_FIELDS: Final = (
    Field[Entry]("When", lambda entry: b.Cell(_minute(entry.time))),
    Field("Candidate", _candidate_cell),
    Field[Entry]("State", lambda entry: b.Cell(entry.state, strong=entry.state != PASS)),
    Field("Slow-down", _slowdown_cell, number=True),
    Field[Entry](
        "Step time",
        lambda entry: b.Cell(b.NOTHING if entry.step_time is None else units.seconds(entry.step_time)),
        number=True,
    ),
)


def _series_title(series: HistorySeries) -> str:
    """The name that the tables of a check use."""
    if series.unit != "1/step":
        return capitalized(series.name)
    counter = series.name.removesuffix(WORKERS)
    return capitalized(fmt.counter_noun(counter)) + (f", {fmt.WORKERS}" if counter != series.name else "")


def _amount(value: float, series: HistorySeries) -> str:
    if series.unit == "1/step":
        return fmt.amount(value, series.name.removesuffix(WORKERS))
    return fmt.percent(value) if series.unit == "share" else units.value(value, series.unit)


def _commit(entry: Entry) -> str:
    return fmt.short_commit(entry.commit, entry.what) or entry.what or "no commit"


def _minute(time: str) -> str:
    return time[:_MINUTE].replace("T", " ")
