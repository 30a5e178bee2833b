"""A history of checks in the terminal and as Markdown: the last results, every series, where its level changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TextIO

from profiler.check.history import ChangePoint, Entry, HistorySeries, Trend
from profiler.check.model import FAIL, STATES
from profiler.check.outputs import format as fmt
from profiler.check.outputs.text import sentence
from profiler.core import units
from profiler.report import blocks as b
from profiler.report.render import markdown
from profiler.report.render.drawing import spark

_LISTED: Final = 10
"""Results that are listed; series that none of them belongs to are only counted."""
_CURVE_WIDTH: Final = 32
_WORKERS: Final = " (workers)"
_MINUTE: Final = 16
"""Characters of a time to the minute: 2026-05-01T12:30."""


def print_history(trend: Trend, *, stream: TextIO) -> None:
    """Print `trend` on `stream`, as wide as it is."""
    from rich.console import Console

    from profiler.report.render.console import print_report
    from profiler.report.render.terminal import is_unicode

    console = Console(file=stream, highlight=False)
    print_report(history_report(trend, unicode=is_unicode(console)), full=True, console=console)


def render(trend: Trend) -> str:
    """The same as GitHub-flavoured Markdown."""
    return markdown.render(history_report(trend))


def history_report(trend: Trend, *, unicode: bool = True) -> b.Report:
    """A history as blocks."""
    entries = trend.history.entries
    title = "History of performance checks"
    warnings = tuple(b.Callout(sentence(warning), "warning", "Warning") for warning in trend.history.warnings)
    if not entries:
        section = b.Section("history", "Results", (*warnings, b.Text("No check is in it yet.")))
        return b.Report(title, trend.history.path, (section,))
    counts = Counter(entry.state for entry in entries)
    states = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    period = " to ".join(dict.fromkeys(_minute(entry.time) for entry in (entries[0], entries[-1])))
    recent = [series for series in trend.series if series.at[-1] >= len(entries) - _LISTED]
    method = (b.Text(sentence(trend.method)),) if trend.method else ()
    sections = (
        b.Section("changes", "Changes", (*warnings, _changes(recent, entries), *method)),
        b.Section("series", "Series", _series(recent, trend, unicode=unicode)),
        b.Section("results", "Last results", (_results(entries[-_LISTED:]),)),
    )
    return b.Report(title, f"{trend.history.path}: {states}; {period}", sections)


def _changes(recent: Sequence[HistorySeries], entries: Sequence[Entry]) -> b.Block:
    changes = [(change, series) for series in recent for change in series.changes]
    if not changes:
        return b.Text("No level changed.")
    changes.sort(key=lambda pair: -pair[0].at)
    return b.Items(tuple(_change_sentence(change, series, entries) for change, series in changes))


def _change_sentence(change: ChangePoint, series: HistorySeries, entries: Sequence[Entry]) -> str:
    """'Syncs: 12 -> 13 per step since 3f2a9c1 (2026-05-01 12:30); the result before is of 9ab01cd'."""
    first, last = entries[change.at], entries[change.last]
    per_step = " per step" if series.unit == "1/step" else ""
    p_value = "" if change.p is None else f", p = {change.p:.2g}"
    before, after = (_amount(value, series) for value in (change.before, change.after))
    ratio = ""
    if series.unit != "share" and change.before:
        ratio = f" ({100 * (change.after / change.before - 1):+.3g}%)"
    return (
        f"{_series_title(series)}: {before} → {after}{per_step}{ratio} since {_commit(first)} ({_minute(first.time)}); "
        f"the result before is of {_commit(last)}{p_value}"
    )


def _series(recent: Sequence[HistorySeries], trend: Trend, *, unicode: bool) -> tuple[b.Block, ...]:
    varying = [series for series in recent if series.unit != "1/step" or len(set(series.values)) > 1]
    blocks: list[b.Block] = []
    if varying:
        numbers = tuple(b.Column(title, number=True) for title in ("Results", "Least", "Most", "Last", "Changes"))
        caption = f"Over all {len(trend.history.entries):,} results, the oldest on the left"
        rows = tuple(_series_row(series, unicode=unicode) for series in varying)
        blocks.append(b.Table(caption, (b.Column("Series"), *numbers, b.Column("Over time")), rows))
    if constant := len(recent) - len(varying):
        blocks.append(b.Text(f"{constant:,} counter{'s' * (constant != 1)} never changed."))
    if old := len(trend.series) - len(recent):
        blocks.append(b.Text(f"{old:,} series of other programs or machines: none of the last results is of them."))
    return tuple(blocks) or (b.Text("Nothing was measured."),)


def _series_row(series: HistorySeries, *, unicode: bool) -> tuple[b.Cell, ...]:
    low, high = min(series.values), max(series.values)
    # from the least to the most: a change of 5% would be invisible on an axis from 0
    curve = spark([value - low for value in series.values], high - low, _CURVE_WIDTH, unicode=unicode)
    return (
        b.Cell(_series_title(series), note=series.machine),
        b.Cell(f"{len(series.values):,}"),
        *(b.Cell(_amount(value, series), sort=value) for value in (low, high, series.values[-1])),
        b.Cell(f"{len(series.changes):,}"),
        b.Cell(curve),
    )


def _results(entries: Sequence[Entry]) -> b.Table:
    columns = (
        *(b.Column(title) for title in ("When", "Candidate", "State")),
        *(b.Column(title, number=True) for title in ("Slow-down", "Step time")),
    )
    return b.Table(
        f"The last {len(entries):,}, the newest first",
        columns,
        tuple(_result_row(entry) for entry in reversed(entries)),
    )


def _result_row(entry: Entry) -> tuple[b.Cell, ...]:
    commit = fmt.short_commit(entry.commit, entry.what)
    # 'working tree (3f2a9c1)' contains its commit; a command does not
    candidate = entry.what if not commit or commit in entry.what else ": ".join(filter(None, (commit, entry.what)))
    slowdown = b.Cell(b.NOTHING)
    if entry.slowdowns:
        # of a FAIL the first line that is certainly slower, else the typical step's
        names = list(entry.slowdowns)
        slower = (name for name in names if (entry.slowdowns[name].low or 0.0) > 0)
        name = next(slower, names[0]) if entry.state == FAIL else names[0]
        bounds = entry.slowdowns[name]
        note = ", ".join(filter(None, (fmt.interval(bounds.low, bounds.high), name)))
        slowdown = b.Cell(fmt.slower_or_faster(bounds.slowdown), sort=bounds.slowdown, note=note)
    return (
        b.Cell(_minute(entry.time)),
        b.Cell(candidate),
        b.Cell(entry.state, strong=entry.state != STATES[0]),
        slowdown,
        b.Cell(b.NOTHING if entry.step_time is None else units.seconds(entry.step_time)),
    )


def _series_title(series: HistorySeries) -> str:
    """The name that the tables of a check use."""
    if series.unit != "1/step":
        return series.name[:1].upper() + series.name[1:]
    counter = series.name.removesuffix(_WORKERS)
    noun = fmt.counter_noun(counter)
    return noun[:1].upper() + noun[1:] + (f", {fmt.WORKERS}" if counter != series.name else "")


def _amount(value: float, series: HistorySeries) -> str:
    if series.unit == "1/step":
        return fmt.amount(value, series.name.removesuffix(_WORKERS))
    return fmt.percent(value) if series.unit == "share" else units.value(value, series.unit)


def _commit(entry: Entry) -> str:
    return fmt.short_commit(entry.commit, entry.what) or entry.what or "no commit"


def _minute(time: str) -> str:
    return time[:_MINUTE].replace("T", " ")
