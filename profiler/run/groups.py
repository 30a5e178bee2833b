"""Rows of a table by what they belong to: a process, a thread. Sorted once, where a mask for each would not end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler.run.model import Table


def grouped(rows: Table, *columns: str) -> Iterator[Table]:
    """The rows of each combination of values of `columns`, which ascend; within one in their order in the table."""
    if not len(rows):
        return
    # packed columns are slow to compute on
    keys = [np.ascontiguousarray(rows[name]) for name in columns]
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(rows), np.bool_)
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    for own in np.split(order, np.flatnonzero(new)):
        yield rows[own] if len(own) < len(rows) else rows


def by_number(rows: Table, column: str) -> dict[int, Table]:
    """Value of `column` -> its rows."""
    return {int(own[column][0]): own for own in grouped(rows, column)}
