"""Keeps the history of checks: appends and reads results, finds changed levels, and shows them as text and a page.

A line is appended entirely or not at all; damaged lines are left out when the file is read, with a warning.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TextIO

import numpy as np
from pydantic import TypeAdapter

from profiler.analyse.statistics import ALPHA, MIN_RESULTS, Ends, Shift, level_shifts, range_shifts
from profiler.check.model import FAIL, PASS, STATES, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.outputs.text import sentence
from profiler.core import units
from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import append_line, read_bytes
from profiler.report import blocks as b
from profiler.report.render.drawing import spark
from profiler.report.table import Field, make_table
from profiler.report.text import capitalized, plural

SCHEMA: Final = 1
"""Version of a line. 1: the first."""
_BEGINNING: Final = b'{"schema": '
"""Every line begins so, by which a history is recognised."""
WORKERS: Final = " (workers)"
"""What follows the name of a counter of loader workers."""


@dataclass(frozen=True, slots=True)
class HistoryBounds:
    """A slow-down as it was measured."""

    slowdown: float
    """Share: 0.05 is 5% slower than the base of that check."""
    low: float | None
    high: float | None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One check. The order of the fields is that of the file."""

    time: str
    """ISO 8601, UTC."""
    state: str
    """PASS | FAIL | INCONCLUSIVE"""
    commit: str = ""
    """Commit of the candidate; empty: it was in no repository."""
    what: str = ""
    """The candidate, as people name it."""
    base_commit: str = ""
    base: str = ""
    mode: str = ""
    command: str = ""
    sentence: str = ""
    counters: Mapping[str, Ends] = field(default_factory=dict)
    """Counter -> lowest and highest of the candidate's processes, per step; '(workers)' after those of a loader's."""
    slowdowns: Mapping[str, HistoryBounds] = field(default_factory=dict)
    """Line of the verdict on speed -> what it measured."""
    step_time: float | None = None
    """s, median; on this machine; informational."""
    tokens_per_s: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint: cpu, cores, GPU, kernel, python, torch."""


_ENTRIES: Final = TypeAdapter(Entry)


@dataclass(frozen=True, slots=True)
class History:
    """A file of results, in the order in which they were appended."""

    path: str
    entries: tuple[Entry, ...]
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """One quantity over the checks that are comparable."""

    name: str
    """'syncs' | 'step time' | 'tokens/s' | 'slow-down, typical step'"""
    unit: str
    """1/step, s, tokens/s, share"""
    at: tuple[int, ...]
    """Indices in the history."""
    values: tuple[float, ...]
    changes: tuple[Shift, ...] = ()
    """Where its level changed, as positions in the series."""
    machine: str = ""
    """The only machine that the values hold for; empty: any machine."""
    command: str = ""


# ---------------------------------------------------------------- the file


def append(path: Path, result: GateResult) -> None:
    """Append `result` to the history in `path`, which is made where it does not exist.

    :raises ProfilerError: it cannot be written (it is then as it was), or the file is no history.
    """
    entry = entry_from(result)
    values = {"schema": SCHEMA, **asdict(entry), "counters": dict(sorted(entry.counters.items()))}
    append_line(path, json.dumps(values, ensure_ascii=False, allow_nan=False), what="history", is_ours=_is_history)


def entry_from(result: GateResult) -> Entry:
    """Return the part of a result that the history stores."""

    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    side, lines = result.candidate, result.throughput.lines if result.throughput else ()
    return Entry(
        result.created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        result.state,
        side.commit or "",
        side.what,
        result.base.commit or "",
        result.base.what,
        result.mode,
        side.command,
        result.sentence,
        counters={
            line.counter + (WORKERS if line.scope == "worker" else ""): line.after
            for line in result.counters
            if line.after is not None and all(map(math.isfinite, line.after))
        },
        slowdowns={
            line.name: HistoryBounds(line.slowdown, finite(line.low), finite(line.high), line.rounds)
            for line in lines
            if line.slowdown is not None and math.isfinite(line.slowdown)
        },
        step_time=finite(side.step_time),
        tokens_per_s=finite(side.tokens_per_s),
        machine=dict(result.machine),
    )


def read(path: Path) -> History:
    """Read the history in `path`.

    :raises ProfilerError: it cannot be read, is no history, or a newer version wrote a line of it.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise ProfilerError(f"cannot read the history {path}: {error.strerror}") from error
    if data and not _is_history(data):
        raise ProfilerError(f"{path} is no history of checks: its first line does not begin as one of those does")
    entries, damaged = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            value: Any = json.loads(line) if line else None
            schema = value.get("schema") if isinstance(value, dict) else None
            if isinstance(schema, int) and schema > SCHEMA:
                raise ProfilerError(
                    f"{path} line {number:,}: a newer version of the profiler wrote it (schema {schema}, this one "
                    f"reads {SCHEMA}): update the profiler"
                )
            entries += [_ENTRIES.validate_python(value)] if line else []
        except ValueError:  # pydantic's ValidationError is one
            damaged.append(number)
    warning = Notice("damaged-history", {"path": str(path), "lines": damaged, "total": len(damaged)})
    return History(str(path), tuple(entries), (warning,) if damaged else ())


def _is_history(beginning: bytes) -> bool:
    """Return whether a file with this beginning is a history: its first line may be incomplete too."""
    first = beginning.lstrip(b"\0\n").partition(b"\n")[0]
    return first.startswith(_BEGINNING) or _BEGINNING.startswith(first)


# ---------------------------------------------------------------- series and their changes

MIN_SHARE: Final = 0.01
"""A smaller change of a time or a slow-down is not shown: no check could have seen it."""
_UNSTEADY: Final = 5
"""A counter that changes more often than at every fifth result, and more than twice, is noise and tested as such."""
_HARDWARE: Final = ("cpu", "cores", "GPU")
"""Parts of a fingerprint that make times comparable; installed software may change them, and that is to be seen."""


def all_series(entries: Sequence[Entry]) -> tuple[HistorySeries, ...]:
    """Return every series of a history with its changes; those of the last result's program and machine come first,
    counters before times.

    What a program does for a device depends on the device alone. Slow-downs are of any machine, since one job measured
    both sides.
    """
    groups: dict[tuple[str, str, str, str], dict[int, Ends]] = {}
    for index, entry in enumerate(entries):
        found = [
            ((name, "1/step", entry.machine.get("GPU", "")), ends) for name, ends in sorted(entry.counters.items())
        ]
        for line, bounds in entry.slowdowns.items():
            found.append(((f"slow-down, {line}", "share", ""), (bounds.slowdown, bounds.slowdown)))
        parts = [part for name in _HARDWARE if (part := entry.machine.get(name, ""))]
        if cores := entry.machine.get("cores"):
            parts[parts.index(cores)] = f"{cores} core{'s' * (cores != '1')}"
        for name, unit, value in (("step time", "s", entry.step_time), ("tokens/s", "tokens/s", entry.tokens_per_s)):
            found += [((name, unit, ", ".join(parts)), (value, value))] if value is not None else []
        for quantity, ends in found:
            groups.setdefault((*quantity, entry.command), {})[index] = ends
    series = []
    for (name, unit, machine, command), results in groups.items():
        ranges = tuple(results.values())
        values = tuple(fmean(ends) for ends in ranges)
        changes = range_shifts(ranges) if unit == "1/step" else None
        if changes is None or len(changes) > max(2, len(ranges) // _UNSTEADY):
            least = MIN_SHARE * (1.0 if unit == "share" else abs(float(np.median(values))))
            changes = level_shifts(np.array(values), smallest=least)
        series.append(HistorySeries(name, unit, tuple(results), values, changes, machine, command))
    return tuple(sorted(series, key=lambda one: (one.at[-1] != len(entries) - 1, one.unit != "1/step")))


# ---------------------------------------------------------------- as text and as a page

_LISTED: Final = 10
"""Results that are listed; series that none of them belongs to are only counted."""
_CURVE_WIDTH: Final = 32
_MINUTE: Final = 16
"""Characters of a time to the minute: 2026-05-01T12:30."""


def print_history(history: History, *, stream: TextIO) -> None:
    """Print a history on `stream`, as wide as it is."""
    from rich.console import Console

    from profiler.report.render.console import print_report
    from profiler.report.render.drawing import is_unicode

    console = Console(file=stream, highlight=False)
    print_report(history_report(history, unicode=is_unicode(console)), full=True, console=console)


def write_page(history: History, folder: Path) -> Path:
    """Write a history as `history.html` into a folder; returns its path.

    :raises ProfilerError: it cannot be written.
    """
    from profiler.report.render import html
    from profiler.report.write import write_text

    report, panels = history_report(history), []
    for series in all_series(history.entries):
        if series.unit == "share" or len(set(series.values)) == 1:
            continue
        numbers = [float(at + 1) for at in series.at]
        curves = [b.Curve("results", b.side_tone(0), tuple(numbers), series.values)]
        if changes := series.changes:
            ends = pairwise([0, *(shift.at for shift in changes), len(numbers)])
            x = [numbers[at] for begin, end in ends for at in (begin, end - 1)]
            levels = [level for level in (changes[0].before, *(shift.after for shift in changes)) for _ in range(2)]
            curves.append(b.Curve("level", b.side_tone(1), tuple(x), tuple(levels)))
        title = ", ".join(filter(None, (_series_title(series), series.machine)))
        panels.append(b.Panel(title, tuple(curves), y_label="per step" if series.unit == "1/step" else series.unit))
    caption, note = "All series that vary, with the levels between their changes", "Numbers are those of the results."
    chart = b.Lines(caption, "result", "", tuple(panels), note=note, numbered=True, separate_y=True)
    charts = [b.Section("chart", "Over time", (chart,))] if panels else []
    path = folder / "history.html"
    write_text(path, html.render(replace(report, sections=(*charts, *report.sections))))
    return path


def history_report(history: History, *, unicode: bool = True) -> b.Report:
    """Return a history as blocks."""
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
    """Tell the changes of all series, the last one first.

    'Syncs: 12 -> 13 per step since 3f2a9c1 (2026-05-01 12:30); the result before is of 9ab01cd'
    """
    lines = []
    changes = [(series.at[shift.at], series, shift) for series in recent for shift in series.changes]
    for at, series, shift in sorted(changes, key=lambda change: -change[0]):
        after = _amount(shift.after, series) + " per step" * (series.unit == "1/step")
        if series.unit != "share" and shift.before:
            after += f" ({100 * (shift.after / shift.before - 1):+.3g}%)"
        first, last = (
            fmt.short_commit(entry.commit, entry.what) or entry.what or "no commit"
            for entry in (entries[at], entries[series.at[shift.at - 1]])
        )
        lines.append(
            f"{_series_title(series)}: {_amount(shift.before, series)} → {after} since {first} "
            f"({_minute(entries[at].time)}); the result before is of {last}"
            f"{'' if shift.p is None else f', p = {shift.p:.2g}'}"
        )
    return b.Items(tuple(lines)) if lines else b.Text("No level changed.")


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
    """Return the slow-down of a FAIL's first line that is certainly slower, else that of the typical step."""
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
    """Return the name that the tables of a check use."""
    if series.unit != "1/step":
        return capitalized(series.name)
    counter = series.name.removesuffix(WORKERS)
    return capitalized(fmt.counter_noun(counter)) + (f", {fmt.WORKERS}" if counter != series.name else "")


def _amount(value: float, series: HistorySeries) -> str:
    if series.unit == "1/step":
        return fmt.amount(value, series.name.removesuffix(WORKERS))
    return fmt.percent(value) if series.unit == "share" else units.value(value, series.unit)


def _minute(time: str) -> str:
    return time[:_MINUTE].replace("T", " ")
