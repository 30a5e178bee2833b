"""Reads and writes the history of checks, one line of JSON each, and finds where the levels of its series changed.

A line is appended entirely or not at all; damaged lines are left out when the file is read, with a warning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from pydantic import TypeAdapter

from profiler.analyse.statistics import Ends, Shift, level_shifts, range_shifts
from profiler.check.model import GateResult
from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import append_line, read_bytes

SCHEMA: Final = 1
"""Version of a line. 1: the first."""
_BEGINNING: Final = b'{"schema": '
"""Every line begins so, by which a history is recognised."""
WORKERS: Final = " (workers)"
"""What follows the name of a counter of loader workers."""
_MAX_LISTED: Final = 3
"""Damaged lines that the warning lists."""


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
    """The part of a result that the history stores."""
    lines = result.throughput.lines if result.throughput else ()
    return Entry(
        time=result.created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        state=result.state,
        commit=result.candidate.commit or "",
        what=result.candidate.what,
        base_commit=result.base.commit or "",
        base=result.base.what,
        mode=result.mode,
        command=result.candidate.command,
        sentence=result.sentence,
        counters={
            line.counter + (WORKERS if line.scope == "worker" else ""): line.after
            for line in result.counters
            if line.after is not None and all(map(math.isfinite, line.after))
        },
        slowdowns={
            line.name: HistoryBounds(line.slowdown, _finite(line.low), _finite(line.high), line.rounds)
            for line in lines
            if line.slowdown is not None and math.isfinite(line.slowdown)
        },
        step_time=_finite(result.candidate.step_time),
        tokens_per_s=_finite(result.candidate.tokens_per_s),
        machine=dict(result.machine),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read(path: Path) -> History:
    """The history in `path`.

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
        if not line:
            continue
        try:
            entries.append(_entry(line, f"{path} line {number:,}"))
        except ValueError:  # pydantic's ValidationError is one
            damaged.append(number)
    warning = Notice("damaged-history", {"path": str(path), "lines": damaged[:_MAX_LISTED], "total": len(damaged)})
    return History(str(path), tuple(entries), (warning,) if damaged else ())


def _is_history(beginning: bytes) -> bool:
    """Whether a file with this beginning is a history: its first line may be incomplete too."""
    first = beginning.lstrip(b"\0\n").partition(b"\n")[0]
    return first.startswith(_BEGINNING) or _BEGINNING.startswith(first)


def _entry(line: bytes, location: str) -> Entry:
    """:raises ValueError: it is damaged."""
    value: Any = json.loads(line)
    schema = value.get("schema") if isinstance(value, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise ProfilerError(
            f"{location}: a newer version of the profiler wrote it (schema {schema}, this one reads {SCHEMA}): update "
            f"the profiler"
        )
    return _ENTRIES.validate_python(value)


# ---------------------------------------------------------------- series and their changes

MIN_SHARE: Final = 0.01
"""A smaller change of a time or a slow-down is not shown: no check could have seen it."""
_UNSTEADY: Final = 5
"""A counter that changes more often than at every fifth result, and more than twice, is noise and tested as such."""
_HARDWARE: Final = ("cpu", "cores", "GPU")
"""Parts of a fingerprint that make times comparable; installed software may change them, and that is to be seen."""


def all_series(entries: Sequence[Entry]) -> tuple[HistorySeries, ...]:
    """Every series of a history with its changes; those of the last result's program and machine come first, counters
    before times."""
    groups: dict[tuple[str, str, str, str], dict[int, Ends]] = {}
    for index, entry in enumerate(entries):
        for quantity, ends in _values(entry):
            groups.setdefault((*quantity, entry.command), {})[index] = ends
    series = []
    for (name, unit, machine, command), results in groups.items():
        ranges = tuple(results.values())
        values = tuple(fmean(ends) for ends in ranges)
        series.append(HistorySeries(name, unit, tuple(results), values, _changes(unit, ranges), machine, command))
    return tuple(sorted(series, key=lambda one: (one.at[-1] != len(entries) - 1, one.unit != "1/step")))


def _values(entry: Entry) -> Iterator[tuple[tuple[str, str, str], Ends]]:
    """Name, unit and machine of each quantity of a result, with its lowest and highest value.

    What a program does for a device depends on the device alone. Slow-downs are of any machine, since one job measured
    both sides.
    """
    for name, ends in sorted(entry.counters.items()):
        yield (name, "1/step", entry.machine.get("GPU", "")), ends
    for line, bounds in entry.slowdowns.items():
        yield (f"slow-down, {line}", "share", ""), (bounds.slowdown, bounds.slowdown)
    parts = {name: part for name in _HARDWARE if (part := entry.machine.get(name, ""))}
    if cores := parts.get("cores"):
        parts["cores"] = f"{cores} core{'s' * (cores != '1')}"
    for name, unit, value in (("step time", "s", entry.step_time), ("tokens/s", "tokens/s", entry.tokens_per_s)):
        if value is not None:
            yield (name, unit, ", ".join(parts.values())), (value, value)


def _changes(unit: str, ranges: Sequence[Ends]) -> tuple[Shift, ...]:
    """Where the level of a series changed."""
    if unit == "1/step":
        exact = range_shifts(ranges)
        if len(exact) <= max(2, len(ranges) // _UNSTEADY):
            return exact
    values = np.mean(ranges, axis=1)
    return level_shifts(values, smallest=MIN_SHARE * (1.0 if unit == "share" else abs(float(np.median(values)))))
