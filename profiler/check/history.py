"""Reads and writes the history of checks, one line of JSON each, and finds where the levels of its series changed.

A line is appended entirely or not at all; damaged lines are left out when the file is read, with a warning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from profiler.analyse.changepoints import Shift, level_shifts
from profiler.check.model import GateResult
from profiler.core.atomic_file import append_line
from profiler.core.checked import read_bytes
from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice

if TYPE_CHECKING:
    from pydantic import TypeAdapter

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
    counters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Counter -> lowest and highest of the candidate's processes, per step; '(workers)' after those of a loader's."""
    slowdowns: Mapping[str, HistoryBounds] = field(default_factory=dict)
    """Line of the verdict on speed -> what it measured."""
    step_time: float | None = None
    """s, median; on this machine; informational."""
    tokens_per_s: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint: cpu, cores, GPU, kernel, python, torch."""


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
    return _entries().validate_python(value)


@cache
def _entries() -> TypeAdapter[Entry]:
    from pydantic import TypeAdapter

    return TypeAdapter(Entry)


# ---------------------------------------------------------------- series and their changes

MIN_SHARE: Final = 0.01
"""A smaller change of a time or a slow-down is not shown: no check could have seen it."""
_UNSTEADY: Final = 5
"""A counter that changes more often than at every fifth result, and more than twice, is noise and tested as such."""
_SEEN_TWICE: Final = 2
_HARDWARE: Final = ("cpu", "cores", "GPU")
"""Parts of a fingerprint that make times comparable; installed software may change them, and that is to be seen."""


def all_series(entries: Sequence[Entry]) -> tuple[HistorySeries, ...]:
    """Every series of a history with its changes; those of the last result's program and machine come first, counters
    before times."""
    series = [*_counter_series(entries), *_time_series(entries)]
    return tuple(sorted(series, key=lambda one: one.at[-1] != len(entries) - 1))


def _counter_series(entries: Sequence[Entry]) -> Iterator[HistorySeries]:
    """Counters by program and GPU: what a program does for a device depends on the device alone."""
    for (command, device), at in _groups(entries, lambda entry: entry.machine.get("GPU", "")).items():
        for name in dict.fromkeys(name for index in at for name in sorted(entries[index].counters)):
            indices = tuple(index for index in at if name in entries[index].counters)
            ranges = [entries[index].counters[name] for index in indices]
            middles = tuple((low + high) / 2 for low, high in ranges)
            series = HistorySeries(name, "1/step", indices, middles, machine=device, command=command)
            exact = _range_changes(ranges)
            steady = len(exact) <= max(2, len(indices) // _UNSTEADY)
            yield replace(series, changes=exact if steady else _level_changes(series, relative=True))


def _time_series(entries: Sequence[Entry]) -> Iterator[HistorySeries]:
    """Slow-downs of any machine, since both sides were measured in one job; times by machine."""

    def slowdown(line: str) -> Callable[[Entry], float | None]:
        return lambda entry: entry.slowdowns[line].slowdown if line in entry.slowdowns else None

    lines = dict.fromkeys(name for entry in entries for name in entry.slowdowns)
    quantities: list[tuple[str, str, Callable[[Entry], float | None]]] = [
        *((f"slow-down, {name}", "share", slowdown(name)) for name in lines),
        ("step time", "s", lambda entry: entry.step_time),
        ("tokens/s", "tokens/s", lambda entry: entry.tokens_per_s),
    ]
    for name, unit, quantity in quantities:
        is_share = unit == "share"
        for (command, machine), at in _groups(entries, (lambda _: "") if is_share else _hardware).items():
            pairs = [(index, value) for index in at if (value := quantity(entries[index])) is not None]
            if pairs:
                indices, values = zip(*pairs, strict=True)
                series = HistorySeries(name, unit, indices, values, machine=machine, command=command)
                yield replace(series, changes=_level_changes(series, relative=not is_share))


def _range_changes(ranges: Sequence[tuple[float, float]]) -> tuple[Shift, ...]:
    """The points at which a counter left its range, if one of the two ranges holds more than one result."""
    starts, low, high = [0], *ranges[0]
    for index, (lowest, highest) in enumerate(ranges):
        if highest < low or lowest > high:
            starts.append(index)
            low, high = lowest, highest
        low, high = min(low, lowest), max(high, highest)
    lengths = [end - start for start, end in pairwise([*starts, len(ranges)])]
    return tuple(
        Shift(start, sum(ranges[start - 1]) / 2, sum(ranges[start]) / 2, None)
        for start, before, after in zip(starts[1:], lengths, lengths[1:], strict=False)
        if max(before, after) >= _SEEN_TWICE
    )


def _level_changes(series: HistorySeries, *, relative: bool) -> tuple[Shift, ...]:
    """:param relative: whether changes are compared to the level, rather than to 1."""
    values = np.array(series.values)
    smallest = MIN_SHARE * (abs(float(np.median(values))) if relative else 1.0)
    return level_shifts(values, smallest=smallest)


def _groups(entries: Sequence[Entry], machine: Callable[[Entry], str]) -> dict[tuple[str, str], list[int]]:
    """Indices of the entries, by command and machine."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, entry in enumerate(entries):
        groups.setdefault((entry.command, machine(entry)), []).append(index)
    return groups


def _hardware(entry: Entry) -> str:
    parts = {name: value for name in _HARDWARE if (value := entry.machine.get(name, ""))}
    if cores := parts.get("cores"):
        parts["cores"] = f"{cores} core{'s' * (cores != '1')}"
    return ", ".join(parts.values())
