"""How fast a run that is being recorded steps: the tails of its tables, read as they grow."""

from __future__ import annotations

import json
import struct
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from profiler.core.live import StepUse
from profiler.run import tables
from profiler.run.tables import BoundaryKind, ValueKind

WINDOW_S: Final = 10.0
_FIRST_BYTES: Final = 1 << 20
"""Read of a table that was long before we came: 10 s of steps of 1 ms are 0.7 MB."""
SELDOM: Final = 10
"""as at load (profiler.run.cycles): what steps less than once in so many steps of the most frequent ends no step."""
MARKED: Final = "steps as the program marks them"
_NONE: Final = "no step has ended yet"
_PARTS: Final = ("data", "loader start", "tokenize", "checkpoint")
"""Regions in which the thread that closes the steps waits, or does what others could do for it."""
_KEPT: Final = 1 << 16
"""Records of a table that are remembered at most."""


class Tail:
    """Whole records of one growing table, each read once. A torn last record waits until it is whole."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._struct: struct.Struct = tables.packer(table)
        self._fields = tuple(name for name, _ in tables.TABLES[table])
        self._offset: int | None = None

    def read(self) -> list[dict[str, Any]]:
        """Records since the last call; at the first those at the end of the file. No file: none."""
        size = self._struct.size
        try:
            whole = self._path.stat().st_size // size * size
            if self._offset is None:
                self._offset = max(0, whole - _FIRST_BYTES // size * size)
            if whole <= self._offset:
                return []
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(whole - self._offset)
        except OSError:
            return []
        data = data[: len(data) // size * size]
        self._offset += len(data)
        return [dict(zip(self._fields, row, strict=True)) for row in self._struct.iter_unpack(data)]


class _Source:
    """The last seconds of one process of the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = tables.pid_of(folder.name) or 0
        self.marked: deque[tuple[int, int, int, int]] = deque(maxlen=_KEPT)
        """Steps that the program marked itself: begin, end, tokens, tid."""
        self.found: defaultdict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=_KEPT))
        """Boundaries of each (kind, name): time, tid."""
        self.values: deque[tuple[int, int, float]] = deque(maxlen=_KEPT)
        """Counters: time, name, amount."""
        self.regions: deque[tuple[int, int, int, int]] = deque(maxlen=_KEPT)
        """Begin, end, tid, name."""
        self._steps = Tail(folder / "steps.bin", "steps")
        self._boundaries = Tail(folder / "boundaries.bin", "boundaries")
        self._values = Tail(folder / "values.bin", "values")
        self._regions = Tail(folder / "regions.bin", "regions")
        self._names: dict[int, str] = {}

    def refresh(self) -> None:
        for row in self._steps.read():
            self.marked.append((row["begin"], row["end"], row["tokens"], row["tid"]))
        for row in self._boundaries.read():
            if row["kind"] == BoundaryKind.OPTIMIZER or not row["flag"]:  # a loader's end ends no step
                self.found[row["kind"], row["name"]].append((row["time"], row["tid"]))
        for row in self._values.read():
            if row["kind"] == ValueKind.COUNTER:
                self.values.append((row["time"], row["name"], row["value"]))
        for row in self._regions.read():
            self.regions.append((row["begin"], row["end"], row["tid"], row["name"]))

    def name(self, number: int) -> str:
        if number not in self._names:
            with suppress(OSError):
                self._names.update(_texts(self.folder / tables.NAMES))
        return self._names.get(number, "")

    def moments(self) -> tuple[str, list[int], int]:
        """What a step is here, in words, when steps ended (ascending ns), and the thread that closed the last.

        The program's own marks; else the optimizer that steps most seldom of those still at work (in a GAN a step of
        one holds several of another), else the loader that does.
        """
        if self.marked:
            return MARKED, [self.marked[0][0], *(row[1] for row in self.marked)], self.marked[-1][3]
        for kind in (BoundaryKind.OPTIMIZER, BoundaryKind.LOADER):
            lines = {name: line for (of, name), line in self.found.items() if of == kind}
            if lines:
                name = _leader(lines)
                words = f"steps of {self.name(name)}" if kind == BoundaryKind.OPTIMIZER else ""
                words = words or f"batches of {self.name(name)}: no optimizer stepped"
                return words, [time for time, _ in lines[name]], lines[name][-1][1]
        return "", [], 0


def _leader(lines: Mapping[int, Sequence[tuple[int, int]]]) -> int:
    """Of those at work in the last seconds the one that comes most seldom, rare extras left out."""
    since = max(line[-1][0] for line in lines.values()) - round(WINDOW_S * 1e9)
    counts = {name: sum(time >= since for time, _ in line) for name, line in lines.items()}
    frequent = [name for name, count in counts.items() if count * SELDOM >= max(counts.values())]
    return min(frequent, key=lambda name: counts[name])


class StepRate:
    """Reads the sources of the run in `run`; `read` is called once a refresh."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._sources: dict[str, _Source] = {}

    def read(self, now: int) -> tuple[StepUse | None, str]:
        """The steps of the last seconds before `now` (ns, CLOCK_MONOTONIC), or why they are not known."""
        for folder in _source_folders(self._run):
            self._sources.setdefault(folder.name, _Source(folder))
        for source in self._sources.values():
            source.refresh()
        stepping = [(source, *source.moments()) for source in self._sources.values()]
        stepping = [entry for entry in stepping if len(entry[2]) > 1 or entry[0].marked]
        if not stepping:
            return None, _NONE if self._sources else "the program has not come to Python code yet"
        most = max(len(entry[2]) for entry in stepping)
        ranks = [
            entry for entry in stepping if 2 * len(entry[2]) >= most
        ]  # a worker that steps now and then is no rank
        source, words, moments, tid = min(ranks, key=lambda entry: (_rank(entry[0].folder), entry[0].pid))
        return _use(source, words, moments, now=now, tid=tid, ranks=len(ranks)), ""


def _use(source: _Source, words: str, moments: list[int], *, now: int, tid: int, ranks: int) -> StepUse:
    """Rates from the first to the last boundary within the window; where it holds fewer, over the last step."""
    since = now - round(WINDOW_S * 1e9)
    within = [moment for moment in moments if moment >= since]
    spanned = within if len(within) > 1 else moments[-2:]
    first, last, steps = spanned[0], spanned[-1], len(spanned) - 1
    seconds = (last - first) / 1e9
    known = steps > 0 and seconds > 0
    tokens = sum(row[2] for row in source.marked if first < row[1] <= last)
    counters: defaultdict[str, float] = defaultdict(float)
    for time, name, amount in source.values:
        if first < time <= last:
            counters[source.name(name)] += amount
    return StepUse(
        source=words,
        count=len(within),
        window=WINDOW_S,
        rate=steps / seconds if known else None,
        step_time=seconds / steps if known else None,
        since_last=max(0, now - moments[-1]) / 1e9,
        tokens_per_s=tokens / seconds if known and tokens else None,
        counters={name: amount / steps for name, amount in sorted(counters.items()) if name} if known else {},
        parts=_parts(source, tid, first, last) if known else {},
        pid=source.pid,
        tid=tid,
        ranks=ranks,
    )


def _parts(source: _Source, tid: int, first: int, last: int) -> dict[str, float]:
    """Share of [first, last] in each of _PARTS; where one lies in another both have it."""
    spent: defaultdict[str, int] = defaultdict(int)
    for begin, end, of, name in source.regions:
        if of == tid and end > first and begin < last and source.name(name) in _PARTS:
            spent[source.name(name)] += min(end, last) - max(begin, first)
    return {name: min(1.0, spent[name] / (last - first)) for name in _PARTS if spent[name]}


def _source_folders(run: Path) -> Iterator[Path]:
    try:
        entries = sorted(run.iterdir())
    except OSError:
        return
    for entry in entries:
        if tables.pid_of(entry.name) is not None:
            yield entry


def _rank(folder: Path) -> int:
    try:
        return int(json.loads((folder / tables.SOURCE_META).read_text(encoding="utf-8"))["rank"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The whole lines of a file of names; a torn last line waits."""
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
            yield int(record["id"]), str(record["text"])
        except (ValueError, KeyError, TypeError):
            continue
