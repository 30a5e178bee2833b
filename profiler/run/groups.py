"""Reads the ranks of one job that were recorded apart as one run: a folder of traces, or several runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice
from profiler.run import tables
from profiler.run.model import Run, Site, Table

_TRACES: Final = (".json", ".json.gz")
_OURS: Final = ("report.json", "compare.json", "source_text.json", "trials.json")
"""Files that this package writes into the folder."""
_RANK_IN_NAME: Final = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)


def trace_files(folder: Path) -> list[Path]:
    """The files of a folder that may be traces, by name."""
    files = (file for file in folder.iterdir() if file.is_file())
    return sorted(file for file in files if file.name.endswith(_TRACES) and file.name not in _OURS)


def ranks_of_names(files: Sequence[Path]) -> list[int]:
    """A rank for each trace that states none: the number in its name, `rank-3.json`, or else its place in the list."""
    numbers = [int(match[1]) for file in files if (match := _RANK_IN_NAME.search(file.name))]
    return numbers if len(set(numbers)) == len(files) else [*range(len(files))]


def merge_ranks(runs: Sequence[Run], path: Path) -> Run:
    """One run of the ranks of one job.

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
    """Whether several recordings are of different ranks of one job, made at the same time."""
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
    """A number for each process that no process of another rank has: ranks in containers may have the same."""
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
