"""Any path -> Run: the one door through which a recording enters, whatever recorded it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice
from profiler.run import store, tables
from profiler.run.ingest.kineto import read_run as read_trace_as_run
from profiler.run.ingest.run_trace import outside_traces, with_trace
from profiler.run.model import Run, RunInfo, Site, Table
from profiler.run.source import Source, dtype_of, read_source, unpacked
from profiler.run.steps import add_steps

H = TypeVar("H", bound=Hashable)
LOST_NAME = "(lost)"
"""Stands for a name whose text was torn off."""
_LOST_SITE = Site("(lost)", 0, "")
_CHUNK: Final = 1 << 18
"""Rows that are looked at together: what the work on them takes is small beside a table."""


def load(path: Path | str) -> Run:
    """The run at `path`: a run directory, its run.json, a .zip of one, or a trace of torch's profiler.

    The rows of a table are in the order in which each process wrote them; the process with the most steps, or moments
    at which one may end, comes first. Its are the facts.

    :raises ProfilerError: no such path, not a run, a damaged manifest, or one that a newer version wrote.
    """
    path = Path(path)
    if path.name == tables.MANIFEST:
        path = path.parent
    if not path.exists():
        raise ProfilerError(f"there is no run at {path}")
    if path.suffix == ".zip" and path.is_file():
        with unpacked(path) as folder:
            return replace(load(folder), path=path)
    if not path.is_dir():
        return read_trace_as_run(path)
    info = store.read_manifest(path)
    try:
        folders = sorted(entry for entry in path.iterdir() if _is_source(entry))
    except OSError as error:
        raise ProfilerError(f"cannot read {path}: {error.strerror}") from error
    sources = [with_trace(read_source(folder), folder) for folder in folders]
    sources.sort(key=lambda source: (-len(source.tables["steps"]), -len(source.tables["boundaries"])))
    return _with_facts(outside_traces(add_steps(_merge(path, info, sources)), sources), sources)


def _is_source(folder: Path) -> bool:
    return folder.is_dir() and (folder.name == store.RECORDER or tables.pid_of(folder.name) is not None)


class _Interned(Generic[H]):
    """One numbering for the texts of all sources."""

    def __init__(self, lost: H) -> None:
        self._ids: dict[H, int] = {}
        self._lost = lost

    @property
    def values(self) -> tuple[H, ...]:
        return tuple(self._ids)

    def remap(self, column: npt.NDArray[np.int32], texts: Mapping[int, H]) -> int:
        """Bring the ids of one source, in place, into the common numbering; -1 (unknown) stays.

        :returns: how many had lost their text.
        """
        olds = np.array(sorted(texts), np.int64)
        lost, unknown = len(olds), len(olds) + 1  # the last places of the lookup table
        table = np.full(len(olds) + 2, -1, np.int32)
        counted = 0
        for start in range(0, len(column), _CHUNK):
            part = column[start : start + _CHUNK]
            places = np.searchsorted(olds, part)
            places[~np.isin(part, olds)] = lost
            places[part == -1] = unknown
            met = np.bincount(places, minlength=len(table))
            counted += int(met[lost])
            for place in np.flatnonzero((met > 0) & (table == -1)).tolist():
                if place != unknown:
                    table[place] = self._number(texts[int(olds[place])] if place != lost else self._lost)
            part[:] = table[places]
        return counted

    def _number(self, value: H) -> int:
        return self._ids.setdefault(value, len(self._ids))


def _merge(path: Path, info: RunInfo, sources: list[Source]) -> Run:
    names = _Interned[str](LOST_NAME)
    sites = _Interned[Site](_LOST_SITE)
    stacks = _Interned[tuple[Site, ...]]((_LOST_SITE,))

    def id_columns(source: Source) -> tuple[tuple[str, _Interned[Any], dict[int, Any]], ...]:
        return ("name", names, source.names), ("site", sites, source.sites), ("stack", stacks, source.stacks)

    problems = list(_manifest_problems(info))
    for source in sources:
        problems += source.problems

    def together(table: str) -> Table:
        """The rows of all sources in one table; those of a source are given up as soon as they are in it."""
        whole = np.empty(sum(len(source.tables[table]) for source in sources), dtype_of(table))
        filled = 0
        for source in sources:
            rows = source.tables.pop(table)
            part = whole[filled : filled + len(rows)]
            filled += len(rows)
            _copy(rows, part, source)
            for column, interned, texts in id_columns(source):
                if column in (part.dtype.names or ()):
                    lost = interned.remap(part[column], texts)
                    if lost:
                        values = {"file": f"{source.name}/{table}.bin", "records": lost, "column": column}
                        problems.append(Notice("lost-texts", values))
        whole.setflags(write=False)
        return whole

    whole = {table: together(table) for table in tables.TABLES}
    return Run(
        path=path,
        info=info,
        names=names.values,
        sites=sites.values,
        stack_frames=stacks.values,
        problems=tuple(problems),
        steps=whole["steps"],
        regions=whole["regions"],
        calls=whole["calls"],
        activities=whole["activities"],
        values=whole["values"],
        samples=whole["samples"],
        stacks=whole["stacks"],
        boundaries=whole["boundaries"],
        gil_stacks=whole["gil_stacks"],
    )


def _copy(rows: Table, into: Table, source: Source) -> None:
    """`rows` into the loaded layout: with the process and rank that wrote them."""
    columns = rows.dtype.names or ()
    for start in range(0, len(rows), _CHUNK):  # column by column: of a chunk that stays in the cache
        part, target = rows[start : start + _CHUNK], into[start : start + _CHUNK]
        for name in columns:
            target[name] = part[name]
    if "rank" in (into.dtype.names or ()):
        into["pid"], into["rank"] = source.pid, source.rank


def _with_facts(run: Run, sources: Iterable[Source]) -> Run:
    """What the process with the most steps to measure said of itself, over what the manifest says."""
    steps = run.steps[run.steps["warmup"] == 0] if (run.steps["warmup"] == 0).any() else run.steps
    pids, first, counts = np.unique(steps["pid"], return_index=True, return_counts=True)
    order = sorted(zip((-counts).tolist(), steps["end"][first].tolist(), pids.tolist(), strict=True))
    place = {pid: number for number, (_, _, pid) in enumerate(order)}
    speaking = sorted(sources, key=lambda source: place.get(source.pid, len(place)))
    said = next((source.facts for source in speaking if source.facts), {})
    return replace(run, info=replace(run.info, facts={**run.info.facts, **said}))


def _manifest_problems(info: RunInfo) -> Iterable[Notice]:
    if info.state == "running":
        yield Notice("run-not-ended")
    for status in info.collectors:
        if status.state == "failed":
            yield Notice("collector-failed", {"name": status.name, "reason": status.reason})
