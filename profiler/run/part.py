"""A part of a run, as a run: some processes, some threads, a stretch of time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.run import tables
from profiler.run.model import Run, Table, Traced


def of(
    run: Run,
    *,
    pids: Collection[int] | None = None,
    tids: Collection[int] | None = None,
    traced: Traced | None = None,
) -> Run:
    """`run` with the records of these processes and threads; those of no thread, and of the machine, stay.

    :param traced: operators that are shown with it: their processes and threads are known too.
    :raises ProfilerError: it has no record of one of them.
    """
    for what, column, wanted in (("process", "pid", pids), ("thread", "tid", tids)):
        if wanted is not None:
            also = () if traced is None else np.unique(traced.operators[column]).tolist()
            run = _only(run, what, column, wanted, also)
    return run


def _only(run: Run, what: str, column: str, wanted: Collection[int], also: Collection[int]) -> Run:
    there: set[int] = set(also)
    parts: dict[str, Any] = {}
    for name in tables.TABLES:
        rows: Table = getattr(run, name)
        gpu = [number for number, text in enumerate(run.names) if text.startswith("gpu.")]
        if column in (rows.dtype.names or ()):
            # 0: the machine, or a process as a whole; the tid of a GPU's sample is its index
            common = rows[column] == 0
            if name == "samples":
                common |= np.isin(rows["name"], gpu)
            there.update(np.unique(rows[column][~common]).tolist())
            parts[name] = rows[common | np.isin(rows[column], list(wanted))]
    if unknown := sorted(set(wanted) - there):
        known = ", ".join(map(str, sorted(there))) or "none"
        raise ProfilerError(f"this run has no {what} {', '.join(map(str, unknown))}; it has {known}")
    return replace(run, **parts)


def of_traced(traced: Traced, *, pids: Collection[int] | None = None, tids: Collection[int] | None = None) -> Traced:
    """`traced` with the operators of these processes and threads."""
    rows = traced.operators
    for column, wanted in (("pid", pids), ("tid", tids)):
        if wanted is not None:
            rows = rows[np.isin(rows[column], list(wanted))]
    return replace(traced, operators=rows)


def between(run: Run, begin: int, end: int) -> Run:
    """`run` with the records that touch [begin, end): whole, not cut at its ends."""
    parts: dict[str, Any] = {}
    for name in tables.TABLES:
        rows: Table = getattr(run, name)
        first, last = ("time", "time") if "time" in (rows.dtype.names or ()) else ("begin", "end")
        parts[name] = rows[(rows[last] > begin) & (rows[first] < end)]
    return replace(run, **parts)
