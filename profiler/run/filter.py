"""Selects and groups records: rows by process or thread, and parts of a run as runs of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.run import tables
from profiler.run.model import Run, Table, Traced


def group_rows(rows: Table, *columns: str) -> Iterator[Table]:
    """Yield the rows of each combination of values in `columns`, in ascending order of the values.

    Within a group the rows keep their order in the table. One sort serves all groups; a mask for each would take
    quadratic time in runs with thousands of threads.
    """
    if not len(rows):
        return
    # packed columns are slow to compute on
    keys = [np.ascontiguousarray(rows[name]) for name in columns]
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(rows), np.bool_)
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    for group in np.split(order, np.flatnonzero(new)):
        yield rows[group] if len(group) < len(rows) else rows


def rows_by(rows: Table, column: str) -> dict[int, Table]:
    """Map each value of `column` to its rows."""
    return {int(group[column][0]): group for group in group_rows(rows, column)}


def filter_run(
    run: Run, *, pids: Collection[int] | None = None, tids: Collection[int] | None = None, traced: Traced | None = None
) -> Run:
    """Keep the records of these processes and threads, and those that belong to no thread or to the machine.

    :param traced: operators that are shown together with the run: their processes and threads are valid choices too.
    :raises ProfilerError: the run has no record of one of them.
    """
    for what, column, wanted in (("process", "pid", pids), ("thread", "tid", tids)):
        if wanted is not None:
            also = () if traced is None else np.unique(traced.operators[column]).tolist()
            run = _filter_column(run, what, column, wanted, also)
    return run


def _filter_column(run: Run, what: str, column: str, wanted: Collection[int], also: Collection[int]) -> Run:
    available: set[int] = set(also)
    parts: dict[str, Any] = {}
    gpu_names = [number for number, text in enumerate(run.names) if text.startswith("gpu.")]
    for name in tables.TABLES:
        rows: Table = getattr(run, name)
        if column in (rows.dtype.names or ()):
            # 0 stands for the machine, or for a process as a whole; the tid of a GPU's sample is its index
            common = rows[column] == 0
            if name == "samples":
                common |= np.isin(rows["name"], gpu_names)
            available.update(np.unique(rows[column][~common]).tolist())
            parts[name] = rows[common | np.isin(rows[column], list(wanted))]
    if unknown := sorted(set(wanted) - available):
        choices = ", ".join(map(str, sorted(available))) or "none"
        raise ProfilerError(f"this run has no {what} {', '.join(map(str, unknown))}; it has {choices}")
    return replace(run, **parts)


def filter_trace(traced: Traced, *, pids: Collection[int] | None = None, tids: Collection[int] | None = None) -> Traced:
    """Keep the operators of these processes and threads."""
    rows = traced.operators
    for column, wanted in (("pid", pids), ("tid", tids)):
        if wanted is not None:
            rows = rows[np.isin(rows[column], list(wanted))]
    return replace(traced, operators=rows)
