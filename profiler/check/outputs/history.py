"""A history of checks in the terminal and as Markdown: the last results, every series, where its level changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TextIO

from profiler.check.history import ChangePoint, Entry, Series, Trend
from profiler.check.model import FAIL, STATES
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text as sentences
from profiler.core import units
from profiler.report import blocks as b
from profiler.report.render import markdown
from profiler.report.render.drawing import spark

_LAST: Final = 10
"""Results that are listed; and series that none of them belongs to are counted only."""
_WIDTH: Final = 32
"""Characters of a curve."""
_WORKERS: Final = " (workers)"
_MINUTE: Final = 16
"""Characters of a time to the minute: 2026-05-01T12:30."""


def print_history(trend: Trend, *, stream: TextIO) -> None:
    """Draw `trend` on `stream`, as wide as it is."""
    from rich.console import Console

    from profiler.report.render.console import print_report

    console = Console(file=stream, highlight=False)
    unicode = (console.encoding or "").lower().startswith("utf")
    print_report(history_report(trend, unicode=unicode), full=True, console=console)


def render(trend: Trend) -> str:
    """The same as GitHub-flavoured Markdown."""
    return markdown.render(history_report(trend))


def history_report(trend: Trend, *, unicode: bool = True) -> b.Report:
    """What a history says, as blocks."""
    entries = trend.history.entries
    title = "History of performance checks"
    if not entries:
        text = b.Text("No check is in it yet.")
        return b.Report(title, trend.history.path, (b.Section("history", "Results", (*_warnings(trend), text)),))
    counts = Counter(entry.state for entry in entries)
    states = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    span = " to ".join(dict.fromkeys(_minute(entry.time) for entry in (entries[0], entries[-1])))
    recent = [series for series in trend.series if series.at[-1] >= len(entries) - _LAST]
    sections = (
        b.Section("changes", "Changes", (*_warnings(trend), _changes(recent, entries), *_method(trend))),
        b.Section("series", "Series", _series(recent, trend, unicode=unicode)),
        b.Section("results", "Last results", (_results(entries[-_LAST:]),)),
    )
    return b.Report(title, f"{trend.history.path}: {states}; {span}", sections)


def _warnings(trend: Trend) -> tuple[b.Callout, ...]:
    return tuple(b.Callout(sentences.sentence(warning), "warning", "Warning") for warning in trend.history.warnings)


def _method(trend: Trend) -> tuple[b.Text, ...]:
    return (b.Text(sentences.sentence(trend.method)),) if trend.method else ()


def _changes(series: Sequence[Series], entries: Sequence[Entry]) -> b.Block:
    found = [(change, one) for one in series for change in one.changes]
    if not found:
        return b.Text("No level changed.")
    found.sort(key=lambda pair: -pair[0].at)
    return b.Items(tuple(_sentence(change, one, entries) for change, one in found))


def _sentence(change: ChangePoint, series: Series, entries: Sequence[Entry]) -> str:
    """'Syncs: 12 -> 13 per step since 3f2a9c1 (2026-05-01 12:30); the result before is of 9ab01cd'."""
    first, last = entries[change.at], entries[change.last]
    per = " per step" if series.unit == "1/step" else ""
    chance = "" if change.p is None else f", p = {change.p:.2g}"
    before, after = (_shown(value, series) for value in (change.before, change.after))
    share = ""
    if series.unit != "share" and change.before:
        share = f" ({100 * (change.after / change.before - 1):+.3g}%)"
    return (
        f"{_name(series)}: {before} → {after}{per}{share} since {_commit(first)} ({_minute(first.time)}); "
        f"the result before is of {_commit(last)}{chance}"
    )


def _series(series: Sequence[Series], trend: Trend, *, unicode: bool) -> tuple[b.Block, ...]:
    others = len(trend.series) - len(series)
    moved = [one for one in series if one.unit != "1/step" or len(set(one.values)) > 1]
    numbers = tuple(b.Column(title, number=True) for title in ("Results", "Least", "Most", "Last", "Changes"))
    rows = tuple(_row(one, unicode=unicode) for one in moved)
    drawn: list[b.Block] = []
    if rows:
        drawn.append(
            b.Table(
                f"Over all {len(trend.history.entries):,} results, the oldest on the left",
                (b.Column("Series"), *numbers, b.Column("Over time")),
                rows,
            )
        )
    if constant := len(series) - len(moved):
        drawn.append(b.Text(f"{constant:,} counter{'s' * (constant != 1)} never changed."))
    if others:
        drawn.append(b.Text(f"{others:,} series of other programs or machines: none of the last results is of them."))
    return tuple(drawn) or (b.Text("Nothing was measured."),)


def _row(series: Series, *, unicode: bool) -> tuple[b.Cell, ...]:
    low, high = min(series.values), max(series.values)
    # from the least to the most: from 0 on, a change of 5% is nothing to see
    curve = spark([value - low for value in series.values], high - low, _WIDTH, unicode=unicode)
    numbers = (b.Cell(_shown(value, series), sort=value) for value in (low, high, series.values[-1]))
    name = b.Cell(_name(series), note=series.machine)
    return (name, b.Cell(f"{len(series.values):,}"), *numbers, b.Cell(f"{len(series.changes):,}"), b.Cell(curve))


def _results(entries: Sequence[Entry]) -> b.Table:
    columns = (b.Column("When"), b.Column("Candidate"), b.Column("State"), b.Column("Slow-down", number=True))
    rows = tuple(_result(entry) for entry in reversed(entries))
    return b.Table(f"The last {len(entries):,}, the newest first", (*columns, b.Column("Step time", number=True)), rows)


def _result(entry: Entry) -> tuple[b.Cell, ...]:
    slow = b.Cell(b.NOTHING)
    if name := _shown_line(entry):
        known = entry.slowdowns[name]
        ends = filter(None, (fmt.interval(known.low, known.high), name))
        slow = b.Cell(fmt.slower_or_faster(known.slowdown), sort=known.slowdown, note=", ".join(ends))
    step = b.Cell(b.NOTHING if entry.step_time is None else units.seconds(entry.step_time))
    state = b.Cell(entry.state, strong=entry.state != STATES[0])
    return (b.Cell(_minute(entry.time)), b.Cell(_candidate(entry)), state, slow, step)


def _shown_line(entry: Entry) -> str:
    """The line of the verdict on speed to show: of a FAIL the one that is slower for sure, else the first one."""
    names = list(entry.slowdowns)
    slower = [name for name in names if (entry.slowdowns[name].low or 0.0) > 0] if entry.state == FAIL else []
    return next(iter([*slower, *names]), "")


def _candidate(entry: Entry) -> str:
    """'working tree (3f2a9c1)' tells its commit; a command does not."""
    commit = fmt.short_commit(entry.commit, entry.what)
    return entry.what if not commit or commit in entry.what else ": ".join(filter(None, (commit, entry.what)))


def _name(series: Series) -> str:
    """As the tables of a check have it."""
    if series.unit != "1/step":
        return series.name[:1].upper() + series.name[1:]
    counter = series.name.removesuffix(_WORKERS)
    noun = fmt.counter_noun(counter)
    where = f", {fmt.WORKERS}" if counter != series.name else ""
    return noun[:1].upper() + noun[1:] + where


def _shown(value: float, series: Series) -> str:
    if series.unit == "1/step":
        return fmt.amount(value, series.name.removesuffix(_WORKERS))
    return fmt.percent(value) if series.unit == "share" else units.value(value, series.unit)


def _commit(entry: Entry) -> str:
    return fmt.short_commit(entry.commit, entry.what) or entry.what or "no commit"


def _minute(time: str) -> str:
    return time[:_MINUTE].replace("T", " ")
