"""Loads run directories, archives and traces; the ranks of a job that were recorded apart are one run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.core.errors import Notice, ProfilerError
from profiler.run import store, tables
from profiler.run.ingest.kineto import outside_traces, with_trace
from profiler.run.ingest.kineto import read_run as read_trace_as_run
from profiler.run.model import Run, RunInfo, Site, StatedResult, Table
from profiler.run.source import Source, dtype_of, read_source, unpacked, unreadable
from profiler.run.source_text import read_source_text, with_source
from profiler.run.steps import add_steps
from profiler.run.tables import CallKind

_TRACES: Final = (".json", ".json.gz")
_OURS: Final = ("report.json", "compare.json", "source_text.json", "trials.json")
"""Files that this package writes into the folder."""
_RANK_IN_NAME: Final = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)


def trace_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be traces, by name."""
    files = (file for file in folder.iterdir() if file.is_file())
    return sorted(file for file in files if file.name.endswith(_TRACES) and file.name not in _OURS)


def ranks_of_names(files: Sequence[Path]) -> list[int]:
    """Return a rank for each trace that states none: the number in its name, `rank-3.json`, or else its place in the
    list."""
    numbers = [int(match[1]) for file in files if (match := _RANK_IN_NAME.search(file.name))]
    return numbers if len(set(numbers)) == len(files) else [*range(len(files))]


def merge_ranks(runs: Sequence[Run], path: Path) -> Run:
    """Return one run of the ranks of one job.

    :raises ProfilerError: two of them are of the same rank.
    """
    runs = sorted(runs, key=_rank)
    for first, second in pairwise(runs):
        if _rank(first) == _rank(second):
            raise ProfilerError(
                f"{first.path.name} and {second.path.name} are both of rank {_rank(first)}: "
                "put one trace of each rank of one job into a folder"
            )
    names, sites, stacks = dict[str, int](), dict[Site, int](), dict[tuple[Site, ...], int]()
    texts: dict[str, dict[Any, int]] = {"name": names, "site": sites, "stack": stacks}
    parts: dict[str, list[Table]] = {table: [] for table in tables.TABLES}
    taken: set[int] = set()
    for run in runs:
        numbers = {
            column: np.array([known.setdefault(text, len(known)) for text in values] or [0])
            for (column, known), values in zip(texts.items(), (run.names, run.sites, run.stack_frames), strict=True)
        }
        pids = _free_pids(run, taken)
        for name, rows in parts.items():
            rows.append(_renumbered(getattr(run, name), numbers, pids))
    merged: dict[str, Any] = {name: np.concatenate(rows) for name, rows in parts.items()}
    for table in merged.values():
        table.setflags(write=False)
    problems = (Notice("of-file", {"file": run.path.name, "problem": each}) for run in runs for each in run.problems)
    first = runs[0]
    facts = {"world_size": len(runs), **first.info.facts}
    facts.pop("rank_cores", None)  # of one recording; the others may be of other machines
    begin, ends = min(run.info.begin for run in runs), [run.info.end for run in runs if run.info.end is not None]
    info = replace(first.info, run_id=path.name, label=path.name, facts=facts, begin=begin, end=max(ends, default=None))
    return replace(
        first,
        path=path,
        info=info,
        names=tuple(names),
        sites=tuple(sites),
        stack_frames=tuple(stacks),
        problems=tuple(problems),
        **merged,
    )


def are_ranks_of_one_job(runs: Sequence[Run]) -> bool:
    """Return whether several recordings are of different ranks of one job, made at the same time."""
    sizes = {run.info.facts.get("world_size") for run in runs}
    size = next(iter(sizes))
    if len(runs) < 2 or len(sizes) > 1 or not isinstance(size, int) or size < len(runs):
        return False
    if not all(len(run.steps) and len(np.unique(run.steps["rank"])) == 1 for run in runs):
        return False
    begin, end = max(int(run.steps["begin"].min()) for run in runs), min(int(run.steps["end"].max()) for run in runs)
    return len({_rank(run) for run in runs}) == len(runs) and begin < end


def _rank(run: Run) -> int:
    return int(run.steps["rank"][0]) if len(run.steps) else 0


def _free_pids(run: Run, taken: set[int]) -> dict[int, int]:
    """Return a number for each process that no process of another rank has: ranks in containers may have the same."""
    used = [getattr(run, name) for name in tables.TABLES]
    pids = np.unique(np.concatenate([table["pid"] for table in used if "pid" in (table.dtype.names or ())]))
    numbers = {}
    for pid in pids.tolist():
        number = pid
        while pid and number in taken:
            number += 1 << 32  # beyond all pids of Linux
        numbers[pid] = number
    taken.update(numbers.values())
    return numbers


def _renumbered(table: Table, numbers: dict[str, Any], pids: dict[int, int]) -> Table:
    """`table` with the numbers of the merged run; -1 (unknown) stays."""
    rows = table.copy()
    for column, new in numbers.items():
        if column in (rows.dtype.names or ()) and len(rows):
            old = rows[column]
            rows[column] = np.where(old >= 0, new[np.maximum(old, 0)], old)
    for pid, number in pids.items():
        if number != pid and "pid" in (rows.dtype.names or ()):
            rows["pid"][table["pid"] == pid] = number
    return rows


# ---------------------------------------------------------------- one run

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")
LOST_NAME = "(lost)"
"""Name of records whose text was lost."""
_LOST_SITE = Site("(lost)", 0, "")
_CHUNK: Final = 1 << 18
"""Rows that are converted at a time, so that temporary arrays stay small."""


def load(path: Path | str) -> Run:
    """Return the run at `path`: a run directory, its run.json, a .zip of one, a trace of torch's profiler, or a folder
    with such traces of the ranks of one job.

    Rows of a table are in the order in which each process wrote them. The process with the most steps, or boundaries,
    comes first, and its facts count.

    :raises ProfilerError: no such path, not a run, a damaged manifest, or one that a newer version wrote.
    """
    try:
        return _load(Path(path))
    except OSError as error:  # the folder is another user's, for example
        raise ProfilerError(f"cannot read {error.filename or path}: {error.strerror}") from error


def _load(path: Path) -> Run:
    if path.name == tables.MANIFEST:
        path = path.parent
    if not path.exists():
        raise ProfilerError(f"there is no run at {path}")
    if path.suffix == ".zip" and path.is_file():
        with unpacked(path) as folder:
            return replace(_load(folder), path=path)
    if not path.is_dir():
        return read_trace_as_run(path)
    if not os.path.lexists(path / tables.MANIFEST) and (files := trace_files(path)):
        return _read_traces(files, path)
    problems: list[Notice] = []
    info = store.read_manifest(path, problems)
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir())
    folders = [each for each in folders if each.name == store.RECORDER or tables.pid_of(each.name) is not None]
    lines, made, damaged = read_source_text(path)
    problems += damaged
    read = _readable(folders, lambda folder: with_trace(read_source(folder, lines), folder), problems)
    sources = list(read.values())
    for source in sources:
        source.facts = with_source(source.facts, lines)
        problems += source.problems
    sources.sort(key=lambda source: (-len(source.tables["steps"]), -len(source.tables["boundaries"])))
    run = replace(_merge(path, info, sources, problems), made=made)
    return _with_facts(outside_traces(add_steps(run), sources), sources)


def _readable(paths: Iterable[Path], read: Callable[[Path], T], problems: list[Notice]) -> dict[Path, T]:
    """Read each of `paths`. One that cannot be read becomes a problem, unless nothing else is left.

    :raises ProfilerError: none of those that there are can be read.
    """
    values: dict[Path, T] = {}
    refused = None
    for path in paths:
        try:
            values[path] = read(path)
        except ProfilerError as error:
            refused = error
            problems.append(unreadable(path, error))
    if refused is not None and not any(path.name != store.RECORDER for path in values):
        raise refused
    return values


def _read_traces(files: Sequence[Path], folder: Path) -> Run:
    """Return the traces of a folder as one run: each is of one rank of a job."""
    problems: list[Notice] = []
    read = _readable(files, read_trace_as_run, problems)
    runs = list(read.values())
    if len(runs) == 1:
        return replace(runs[0], problems=(*runs[0].problems, *problems))
    sizes = {run.info.facts.get("world_size") for run in runs}
    if len(sizes) > 1:
        raise ProfilerError(f"{folder} has traces of jobs of different sizes: put the traces of one job into a folder")
    if sizes == {None}:  # old traces, and those of programs without a process group
        for run, rank in zip(runs, ranks_of_names(list(read)), strict=True):
            for table in tables.TABLES:
                rows = getattr(run, table)
                if "rank" in (rows.dtype.names or ()):
                    rows.setflags(write=True)
                    rows["rank"] = rank
    merged = merge_ranks(runs, folder)
    return replace(merged, problems=(*merged.problems, *problems))


class _Interned(Generic[H]):
    """A common numbering for the texts of all sources."""

    def __init__(self, lost: H, *, may_be_unknown: bool = False) -> None:
        self._numbers: dict[H, int] = {}
        self._lost = lost
        self._may_be_unknown = may_be_unknown

    @property
    def values(self) -> tuple[H, ...]:
        return tuple(self._numbers)

    def remap(self, column: npt.NDArray[np.int32], texts: Mapping[int, H]) -> int:
        """Replace the numbers of one source, in place, by common ones; -1 stays where a text may be unknown.

        :returns: how many records have lost their text.
        """
        olds = np.array(sorted(texts), np.int64)
        lost, unknown = len(olds), len(olds) + 1  # the last entries of the lookup table
        table = np.full(len(olds) + 2, -1, np.int32)
        lost_count = 0
        for start in range(0, len(column), _CHUNK):
            part = column[start : start + _CHUNK]
            entries = np.searchsorted(olds, part)
            entries[~np.isin(part, olds)] = lost
            if self._may_be_unknown:
                entries[part == -1] = unknown
            counts = np.bincount(entries, minlength=len(table))
            lost_count += int(counts[lost])
            for entry in np.flatnonzero((counts > 0) & (table == -1)).tolist():
                if entry != unknown:
                    text = texts[int(olds[entry])] if entry != lost else self._lost
                    table[entry] = self._numbers.setdefault(text, len(self._numbers))
            part[:] = table[entries]
        return lost_count


def _merge(path: Path, info: RunInfo, sources: list[Source], damaged: Sequence[Notice]) -> Run:
    names = _Interned[str](LOST_NAME)
    sites = _Interned[Site](_LOST_SITE, may_be_unknown=True)
    stacks = _Interned[tuple[Site, ...]]((_LOST_SITE,))

    def id_columns(source: Source) -> tuple[tuple[str, _Interned[Any], dict[int, Any]], ...]:
        return ("name", names, source.names), ("site", sites, source.sites), ("stack", stacks, source.stacks)

    problems = [*_manifest_problems(info), *damaged]

    def together(table: str) -> Table:
        """Return the rows of all sources; those of a source are freed as soon as they are copied."""
        merged = np.empty(sum(len(source.tables[table]) for source in sources), dtype_of(table))
        filled = 0
        for source in sources:
            rows = source.tables.pop(table)
            part = merged[filled : filled + len(rows)]
            filled += len(rows)
            _copy(rows, part, source)
            if table == "calls":
                part["kind"][part["kind"] == CallKind.WOULD_SYNC] = CallKind.MIGHT_SYNC
            for column, interned, texts in id_columns(source):
                if column in (part.dtype.names or ()):
                    lost = interned.remap(part[column], texts)
                    if lost:
                        values = {"file": f"{source.name}/{table}.bin", "records": lost, "column": column}
                        problems.append(Notice("lost-texts", values))
        merged.setflags(write=False)
        return merged

    loaded: dict[str, Any] = {table: together(table) for table in tables.TABLES}
    return Run(
        path=path,
        info=info,
        names=names.values,
        sites=sites.values,
        stack_frames=stacks.values,
        problems=tuple(problems),
        results=tuple(_results(sources)),
        **loaded,
    )


def _results(sources: Sequence[Source]) -> Iterable[StatedResult]:
    """Yield the results of each name from one process: the one of the lowest rank, of these the one with the most
    steps."""
    taken: set[str] = set()
    for source in sorted(sources, key=lambda source: source.rank):
        yield from (result for result in source.results if result.name not in taken)
        taken.update(result.name for result in source.results)


def _copy(rows: Table, into: Table, source: Source) -> None:
    """Copy `rows` into the loaded layout, with the process and rank that wrote them."""
    columns = rows.dtype.names or ()
    for start in range(0, len(rows), _CHUNK):  # column by column, in chunks that stay in the cache
        part, target = rows[start : start + _CHUNK], into[start : start + _CHUNK]
        for name in columns:
            target[name] = part[name]
    if "rank" in (into.dtype.names or ()):
        into["pid"], into["rank"] = source.pid, source.rank


def _with_facts(run: Run, sources: Iterable[Source]) -> Run:
    """Add the facts of the process with the most measured steps to those of the manifest, and on how many cores the
    processes with steps may run (`rank_cores`)."""
    steps = run.steps[run.steps["warmup"] == 0] if (run.steps["warmup"] == 0).any() else run.steps
    pids, first, counts = np.unique(steps["pid"], return_index=True, return_counts=True)
    order = sorted(zip((-counts).tolist(), steps["end"][first].tolist(), pids.tolist(), strict=True))
    position = {pid: number for number, (_, _, pid) in enumerate(order)}
    ranked = sorted(sources, key=lambda source: position.get(source.pid, len(position)))
    facts = dict(next((source.facts for source in ranked if source.facts), {}))
    # a process is started by another one, which knows the line
    starting = (source.facts.get(tables.SETTINGS, {}).get("processes") for source in ranked)
    if starts := next(filter(None, starting), None):
        facts[tables.SETTINGS] = {"processes": starts, **facts.get(tables.SETTINGS, {})}
    masks = [source.facts["affinity"] for source in ranked if source.pid in position and "affinity" in source.facts]
    if cores := reduce(or_, (int(mask, 16) for mask in masks), 0):
        facts["rank_cores"] = cores.bit_count()
    return replace(run, info=replace(run.info, facts={**run.info.facts, **facts}))


def _manifest_problems(info: RunInfo) -> Iterable[Notice]:
    if info.state == "running":
        yield Notice("run-not-ended")
    for status in info.collectors:
        if status.state == "failed":
            yield Notice("collector-failed", {"name": status.name, "reason": status.reason})
