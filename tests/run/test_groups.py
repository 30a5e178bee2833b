"""Rows by process and thread."""

from __future__ import annotations

import numpy as np

from profiler.run.groups import by_number, grouped
from tests.recorded.builders import dtype_of


def test_every_row_comes_once_in_its_order() -> None:
    rows = np.zeros(1000, dtype_of("stacks"))
    rows["pid"], rows["tid"], rows["begin"] = np.arange(1000) % 3, np.arange(1000) % 7, np.arange(1000)
    found = list(grouped(rows, "pid", "tid"))
    assert [(own["pid"][0], own["tid"][0]) for own in found] == [(pid, tid) for pid in range(3) for tid in range(7)]
    for own in found:
        same = (rows["pid"] == own["pid"][0]) & (rows["tid"] == own["tid"][0])
        assert (own == rows[same]).all()


def test_no_rows_and_one_group() -> None:
    rows = np.zeros(3, dtype_of("stacks"))
    assert list(grouped(rows[:0], "pid")) == []
    [whole] = grouped(rows, "pid")
    assert whole is rows
    assert list(by_number(rows, "tid")) == [0]
