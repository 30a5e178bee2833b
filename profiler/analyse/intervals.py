"""Computes with intervals of int64 nanoseconds: union, intersection, difference, overlaps, innermost attribution.

Every interval is half-open, [begin, end). `Intervals` are ascending, disjoint and not empty; plain pairs of arrays may
come in any order and overlap. Nothing here knows of runs, steps or regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Ascending, disjoint, none empty."""

    begin: Times
    end: Times

    def __len__(self) -> int:
        return len(self.begin)

    def measure(self) -> int:
        """Their summed length, ns."""
        return int((self.end - self.begin).sum())


@dataclass(frozen=True, eq=False, slots=True)
class Overlaps:
    """Every non-empty intersection of interval `left[i]` of one set with interval `right[i]` of another."""

    left: Indices
    right: Indices
    begin: Times
    end: Times


@dataclass(frozen=True, eq=False, slots=True)
class Segments:
    """Exclusive pieces of nested intervals, ascending and disjoint; `owner` is the innermost interval's index."""

    begin: Times
    end: Times
    owner: Indices
    crossings: int
    """Intervals that ended after one that they began in; they were cut at its end."""


def times(values: npt.ArrayLike) -> Times:
    """Return `values` as a contiguous int64 array: packed table columns are slow to compute on."""
    return np.ascontiguousarray(values, dtype=np.int64)


def union(begin: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """Return the time that any of the intervals covers; touching intervals are merged, empty ones are left out."""
    begins, ends = times(begin), times(end)
    keep = ends > begins
    begins, ends = begins[keep], ends[keep]
    if not len(begins):
        return Intervals(begins, ends)
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    reached = np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], begins[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(begins[first], reached[last])


def complement(intervals: Intervals, low: int, high: int) -> Intervals:
    """Return the parts of [low, high) that the intervals do not cover."""
    begin = np.clip(np.concatenate([[low], intervals.end]), low, high).astype(np.int64)
    end = np.clip(np.concatenate([intervals.begin, [high]]), low, high).astype(np.int64)
    keep = end > begin
    return Intervals(begin[keep], end[keep])


def overlaps(begin: npt.ArrayLike, end: npt.ArrayLike, windows: Intervals) -> Overlaps:
    """Cut intervals of any kind at `windows`: one row per pair that overlaps, ordered as the intervals came."""
    begins, ends = times(begin), times(end)
    low = np.searchsorted(windows.end, begins, "right")
    high = np.searchsorted(windows.begin, ends, "left")
    counts = np.where(ends > begins, np.maximum(high - low, 0), 0)
    left = np.repeat(np.arange(len(begins), dtype=np.int64), counts)
    offset = np.arange(len(left), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    right = low[left] + offset
    return Overlaps(
        left, right, np.maximum(begins[left], windows.begin[right]), np.minimum(ends[left], windows.end[right])
    )


def intersect(first: Intervals, second: Intervals) -> Intervals:
    """Return the time that both cover."""
    common = overlaps(first.begin, first.end, second)
    return Intervals(common.begin, common.end)


def subtract(first: Intervals, second: Intervals) -> Intervals:
    """Return the time that `first` covers and `second` does not."""
    if not len(first):
        return first
    return intersect(first, complement(second, int(first.begin[0]), int(first.end[-1])))


def covered_before(intervals: Intervals, moments: npt.ArrayLike) -> Times:
    """For each moment, how many ns the intervals cover before it."""
    at = times(moments)
    if not len(intervals):
        return np.zeros(len(at), np.int64)
    total = np.concatenate([[0], np.cumsum(intervals.end - intervals.begin)])
    begun = np.searchsorted(intervals.begin, at, "right")
    # of the last interval that has begun, what lies after the moment was counted too much
    too_much = np.where(begun > 0, np.maximum(intervals.end[begun - 1] - at, 0), 0)
    return times(total[begun] - too_much)


def covered_within(intervals: Intervals, begin: npt.ArrayLike, end: npt.ArrayLike) -> Times:
    """For each [begin, end), how many of its ns the intervals cover."""
    return covered_before(intervals, end) - covered_before(intervals, begin)


def innermost(begin: npt.ArrayLike, end: npt.ArrayLike, rank: npt.ArrayLike | None = None) -> Segments:
    """Give every moment that intervals cover to the innermost of them: the one that began last.

    Of intervals that begin together the shorter is inside; of equal ones that of higher `rank`. An interval that ends
    after one that it began in is cut at that end and counted. O(n log n), and linear Python only over the connected
    stretches that hold a crossing.
    """
    begins, ends = times(begin), times(end)
    nonempty = np.flatnonzero(ends > begins)
    ranks = np.zeros(len(begins), np.int64) if rank is None else times(rank)
    order = nonempty[np.lexsort((ranks[nonempty], -ends[nonempty], begins[nonempty]))]
    begins, ends = begins[order], ends[order]
    segments, crossing = _innermost_of_nested(begins, ends)
    crossings = 0
    if crossing.any():
        ends, crossings = _cut_at_parents(begins, ends, crossing)
        segments, _ = _innermost_of_nested(begins, ends)
    return Segments(segments.begin, segments.end, times(order[segments.owner]), crossings)


def _innermost_of_nested(begins: Times, ends: Times) -> tuple[Segments, npt.NDArray[np.bool_]]:
    """Segments of intervals sorted by (begin, -end), and which of them end after their parent.

    The top of the stack after an event at depth d is the last interval that opened to depth d: a forward fill over the
    events of one depth, so no stack is walked.
    """
    count = len(begins)
    closes = np.sort(ends)
    open_at = np.arange(count) + np.searchsorted(closes, begins, "right")  # at one time, ends come before begins
    close_at = np.arange(count) + np.searchsorted(begins, closes, "left")
    moments = np.empty(2 * count, np.int64)
    moments[open_at], moments[close_at] = begins, closes
    del closes, close_at
    small: type[np.signedinteger[Any]] = (
        np.int32 if count < 1 << 30 else np.int64
    )  # of ten million regions every array of events is large
    change = np.full(2 * count, -1, np.int8)
    change[open_at] = 1
    depth = np.cumsum(change, dtype=small)
    del change
    opened = np.full(2 * count, -1, small)
    opened[open_at] = np.arange(count, dtype=small)
    # a narrow type sorts in linear time (radix)
    narrow = depth.astype(np.int16) if count and depth.max() < np.iinfo(np.int16).max else depth
    by_depth = np.argsort(narrow, kind="stable")
    opened = opened[by_depth]
    latest = np.where(opened >= 0, np.arange(2 * count, dtype=small), small(0))
    latest = np.maximum.accumulate(latest, out=latest)
    owner = np.empty(2 * count, small)
    owner[by_depth] = opened[latest]
    owner[depth == 0] = -1
    del depth, narrow, by_depth, opened, latest
    parent = np.where(open_at > 0, owner[open_at - 1], -1)
    crossing = (parent >= 0) & (ends > ends[parent])
    keep = (owner[:-1] >= 0) & (moments[1:] > moments[:-1])
    segments = Segments(moments[:-1][keep], moments[1:][keep], owner[:-1][keep], 0)
    return segments, crossing


def _cut_at_parents(begins: Times, ends: Times, crossing: npt.NDArray[np.bool_]) -> tuple[Times, int]:
    """Return new ends, with every interval cut at the end of the one that it began in, and how many were cut."""
    reached = np.maximum.accumulate(ends)
    stretch = np.cumsum(np.concatenate([[False], begins[1:] >= reached[:-1]]))
    affected = np.flatnonzero(np.isin(stretch, stretch[crossing]))
    cut, crossings = ends.copy(), 0
    stack: list[int] = []
    for index, begin, end in zip(affected.tolist(), begins[affected].tolist(), ends[affected].tolist(), strict=True):
        while stack and stack[-1] <= begin:
            stack.pop()
        if stack and end > stack[-1]:
            end = cut[index] = stack[-1]
            crossings += 1
        stack.append(end)
    return cut, crossings
