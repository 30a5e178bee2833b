"""Computes how fast a run that is being recorded steps, from the ends of its growing tables."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from profiler.core.live import StepUse
from profiler.run import tables
from profiler.run.model import StepDefinition, StepKind, Table
from profiler.run.source import dtype_of
from profiler.run.step_detection import detect_steps
from profiler.run.tables import BoundaryKind

WINDOW_S: Final = 10.0
_FIRST_BYTES: Final = 1 << 20
"""Read of a table that was long when watching began: 10 s of steps of 1 ms are 0.7 MB."""
_MAX_ROWS: Final = 1 << 16
"""Records of a table that are kept."""
_NO_STEP: Final = "no step has ended yet"
_PARTS: Final = ("data", "loader start", "tokenize", "checkpoint")
"""Regions in which the thread that closes the steps waits, or does what others could do for it."""


class GrowingTable:
    """The last records of a table that another process appends to. A torn last record waits until it is complete."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._dtype = dtype_of(table, loaded=False)
        self._offset: int | None = None
        self.rows: Table = np.empty(0, self._dtype)

    def read(self) -> Table:
        """Return the records since the last call, and add them to `rows`; the first call reads the end of the file."""
        size = self._dtype.itemsize
        data = b""
        # the file appears with its first record
        with suppress(OSError), open(self._path, "rb") as file:
            complete = file.seek(0, os.SEEK_END) // size * size
            if self._offset is None:
                self._offset = max(0, complete - _FIRST_BYTES // size * size)
            file.seek(self._offset)
            data = file.read(max(0, complete - self._offset))
            data = data[: len(data) // size * size]
            self._offset += len(data)
        new: Table = np.frombuffer(data, self._dtype)
        self.rows = np.concatenate([self.rows, new])[-_MAX_ROWS:]
        return new


class _Source:
    """The last seconds of one process of the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = tables.pid_of(folder.name) or 0
        self._tables = {name: GrowingTable(folder / f"{name}.bin", name) for name in ("steps", "boundaries", "regions")}
        self._boundaries = {kind: np.empty(0, dtype_of("boundaries")) for kind in BoundaryKind}
        """Boundaries by kind: a long evaluation, which asks only loaders, must not push out the optimizer's steps."""
        self._names = _Names(folder / tables.NAMES)

    @property
    def marked(self) -> Table:
        """Steps that the program marked itself."""
        return self._tables["steps"].rows

    def refresh(self) -> None:
        for name, table in self._tables.items():
            new = table.read()
            if name != "boundaries" or not len(new):
                continue
            rows = np.zeros(len(new), dtype_of("boundaries"))
            for column in new.dtype.names or ():
                rows[column] = new[column]
            rows["pid"] = self.pid
            for kind, earlier in self._boundaries.items():
                self._boundaries[kind] = np.concatenate([earlier, rows[rows["kind"] == kind]])[-_MAX_ROWS:]

    def step_ends(self) -> tuple[StepDefinition | None, list[int], int]:
        """Return the definition of a step, when steps ended (ascending ns), and the thread that closed the last one."""
        if len(self.marked):
            times = [int(self.marked["begin"][0]), *self.marked["end"].tolist()]
            return StepDefinition(StepKind.MARKED), times, int(self.marked["tid"][-1])
        definition, threads = detect_steps(np.concatenate(list(self._boundaries.values())), self._names)
        if definition is None:
            return None, [], 0
        ends = threads[0].ends
        return definition, ends["time"].tolist(), int(ends["tid"][-1])

    def tokens(self, first: int, last: int) -> int:
        """Count the tokens of the marked steps that ended in (first, last]."""
        return int(self.marked["tokens"][(self.marked["end"] > first) & (self.marked["end"] <= last)].sum())

    def parts(self, tid: int, first: int, last: int) -> dict[str, float]:
        """Return the share of [first, last] in each of _PARTS on one thread; where one lies in another both have it."""
        rows = self._tables["regions"].rows
        rows = rows[(rows["tid"] == tid) & (rows["end"] > first) & (rows["begin"] < last)]
        spent: defaultdict[str, int] = defaultdict(int)
        for row in rows:
            name = self._names[int(row["name"])]
            if name in _PARTS:
                spent[name] += min(int(row["end"]), last) - max(int(row["begin"]), first)
        return {name: min(1.0, spent[name] / (last - first)) for name in _PARTS if spent[name]}


class _Names(dict[int, str]):
    """Texts of a process by number, read when one is missing; empty where it is not written yet."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, number: int) -> str:
        with suppress(OSError):
            for line in self._path.read_bytes().split(b"\n"):
                with suppress(ValueError, KeyError, TypeError):  # the last line may be torn
                    record = json.loads(line)
                    self[int(record["id"])] = str(record["text"])
        return self.get(number, "")


class StepRate:
    """Reads the sources of the run in `run`; `read` is called once a look."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._sources: dict[str, _Source] = {}

    def read(self, now: int) -> tuple[StepUse | None, str]:
        """Return the steps of the last seconds before `now` (ns, CLOCK_MONOTONIC), or why they are not known."""
        try:
            return self._read(now)
        except Exception as error:  # noqa: BLE001 - the edge to tables that are being written; who looks is told
            return None, f"the tables cannot be read: {type(error).__name__}: {error}"

    def _read(self, now: int) -> tuple[StepUse | None, str]:
        with suppress(OSError):
            for folder in sorted(self._run.iterdir()):
                if tables.pid_of(folder.name) is not None and folder.name not in self._sources:
                    self._sources[folder.name] = _Source(folder)
        stepping = []
        for source in self._sources.values():
            source.refresh()
            definition, times, tid = source.step_ends()
            if definition is not None:
                stepping.append((source, definition, times, tid))
        if not stepping:
            return None, _NO_STEP if self._sources else "the program has not come to Python code yet"
        largest = max(len(times) for _, _, times, _ in stepping)
        ranks = [entry for entry in stepping if 2 * len(entry[2]) >= largest]  # a worker that steps rarely is no rank
        source, definition, times, tid = min(ranks, key=lambda entry: (_rank(entry[0].folder), entry[0].pid))
        return _step_use(source, definition, times, now=now, tid=tid, ranks=len(ranks)), ""


def _step_use(
    source: _Source, definition: StepDefinition, times: list[int], *, now: int, tid: int, ranks: int
) -> StepUse:
    """Measure from the first to the last boundary within the window; where it holds fewer, over the last step."""
    within = [time for time in times if time >= now - round(WINDOW_S * 1e9)]
    spanned = within if len(within) > 1 else times[-2:]
    first, last, steps = spanned[0], spanned[-1], len(spanned) - 1
    seconds = (last - first) / 1e9
    measured = steps > 0 and seconds > 0
    tokens = source.tokens(first, last)
    return StepUse(
        step=definition,
        window=WINDOW_S,
        step_time=seconds / steps if measured else None,
        since_last=max(0, now - times[-1]) / 1e9,
        tokens_per_s=tokens / seconds if measured and tokens else None,
        parts=source.parts(tid, first, last) if measured else {},
        pid=source.pid,
        tid=tid,
        ranks=ranks,
    )


def _rank(folder: Path) -> int:
    try:
        return int(json.loads((folder / tables.SOURCE_META).read_text(encoding="utf-8"))["rank"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
