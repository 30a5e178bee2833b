"""What the writers of traces share: rows in order, names of processes and threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.core.errors import ProfilerError
from profiler.core.samples import THREAD_NAME
from profiler.run.model import Run, Site, Table

EXPORTER: Final = "python -m profiler export"
_BLOCK: Final = 1 << 15  # rows that are Python objects at a time: what memory a writer takes, whatever the run's size
_TEXTS: Final = 1 << 11  # events that are joined before they are written


def rows(table: Table, columns: Sequence[str], order: npt.NDArray[np.int64] | None = None) -> Iterator[tuple[Any, ...]]:
    """The values of `columns`, a tuple a row, in `order`; never more than a block of them at once."""
    count = len(table) if order is None else len(order)
    for start in range(0, count, _BLOCK):
        part = table[start : start + _BLOCK] if order is None else table[order[start : start + _BLOCK]]
        yield from zip(*(part[name].tolist() for name in columns), strict=True)


def outer_first(table: Table) -> npt.NDArray[np.int64]:
    """Rows by begin; of those that begin together the longest first, which holds the others."""
    order: npt.NDArray[np.int64] = np.lexsort((-table["end"], table["begin"])).astype(np.int64)
    return order


def joined(texts: Iterable[str], between: str) -> Iterator[str]:
    """`texts` with `between` between them, in pieces worth a write."""
    waiting: list[str] = []
    first = True
    for text in texts:
        waiting.append(text)
        if len(waiting) >= _TEXTS:
            yield ("" if first else between) + between.join(waiting)
            first = False
            waiting.clear()
    if waiting:
        yield ("" if first else between) + between.join(waiting)


class Names:
    """What processes and threads of a run are called."""

    def __init__(self, run: Run) -> None:
        self._label = run.info.label or "program"
        self.main_pid = int(run.steps["pid"][0]) if len(run.steps) else 0
        if not self.main_pid:
            written = next((table for table in (run.regions, run.calls, run.stacks) if len(table)), None)
            self.main_pid = int(written["pid"][0]) if written is not None else 0
        ranks = np.unique(run.steps["rank"])
        self._ranks = (
            dict(zip(run.steps["pid"].tolist(), run.steps["rank"].tolist(), strict=True)) if len(ranks) > 1 else {}
        )
        self._threads = {}
        said = {
            number: text.removeprefix(THREAD_NAME)
            for number, text in enumerate(run.names)
            if text.startswith(THREAD_NAME)
        }
        named = run.samples[np.isin(run.samples["name"], list(said))]
        for pid, tid, name in rows(named, ("pid", "tid", "name")):
            self._threads[pid, tid] = said[name]

    def process(self, pid: int) -> str:
        if pid in self._ranks:
            return f"{self._label} rank {self._ranks[pid]}"
        return self._label if pid == self.main_pid else f"process {pid}"

    def thread(self, pid: int, tid: int) -> str:
        return "main" if pid == tid else self._threads.get((pid, tid), f"thread {tid}")

    def first(self, pid: int) -> tuple[bool, int]:
        """What processes are sorted by: the one with the steps first."""
        return pid != self.main_pid, pid


def described(site: Site) -> str:
    """A frame as people read it: its function, with its file and line."""
    where = f"{site.file}:{site.line}" if site.line else site.file
    return f"{site.function} ({where})" if site.function else where


def need_stacks(run: Run) -> Table:
    """The stack samples of `run`.

    :raises ProfilerError: it has none; the reason is in the line.
    """
    if len(run.stacks):
        return run.stacks
    reason = next((one.reason for one in run.info.collectors if one.name == "stacks" and one.reason), "")
    if run.info.level == "light":
        reason = "level light takes none: record again with --level standard"
    raise ProfilerError(f"there is nothing to export: this run has no stack samples ({reason or 'none were recorded'})")
