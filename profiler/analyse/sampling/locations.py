"""Finds the place in the user's code that holds most of the time of a host category: a line, else a function, else a
path of calls.

A sentence may name a line as the place of a category only if it holds more than half of the category's time. Where one
line of the user holds more than half of the whole step, a library drives the steps (`trainer.fit()`), so the functions
of that library are named too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from profiler.analyse.intervals import Floats
from profiler.analyse.model import HOST_CATEGORIES, Location, LocationKind
from profiler.analyse.sampling.batch_means import effective_sample_size
from profiler.analyse.sampling.frames import callee_name
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import Function, Stacks, function_of
from profiler.analyse.statistics import share_interval
from profiler.run.model import Site

MOST: Final = 0.5
"""Share of a category's time that a line, a function or a call must exceed to be named as its place."""
MIN_SAMPLES: Final = 5.0
"""With fewer samples of a category nothing is named: even if all are at one line, that line may hold less than half of
the category's time (95% interval)."""
WHOLE_LOOP: Final = 0.9
"""Share of all samples from which a function contains the training loop: calls outside of it tell nothing."""
SAME: Final = 0.95
"""If the shares of two nested functions differ by less than this factor, only the inner one is named."""
MIN_SHARE: Final = 0.1
"""Share of a step from which a further function or line is named."""
_MAX_PLACES: Final = 3
WHOLE_STEP: Final = ""

_Place = tuple[LocationKind, tuple[Site, ...], set[int]]
"""The kind of a place, its sites, and the stacks whose time it holds; no sites: no place."""
T = TypeVar("T")


def locations(stacks: Stacks, samples: ClassifiedSamples | None) -> Mapping[str, tuple[Location, ...]]:
    """The places of each category, and of the whole step (WHOLE_STEP): see `_Finder.places`."""
    if samples is None:
        return {}
    finder = _Finder(stacks, samples)
    columns = {WHOLE_STEP: np.ones(len(samples.stack)), **dict(zip(HOST_CATEGORIES, samples.shares.T, strict=True))}
    return {name: places for name, column in columns.items() if (places := finder.places(column))}


class _Finder:
    """Finds the place of any part of the samples."""

    def __init__(self, stacks: Stacks, samples: ClassifiedSamples) -> None:
        self._stacks, self._samples = stacks, samples
        # without the frames of the profiler's hooks, and of code that libraries generate
        self._user = {number: stacks.user_frames(number) for number in samples.stacks}
        total = np.bincount(samples.stack, samples.weight)
        weights = {number: float(total[number]) for number in samples.stacks}
        self._loop_depth = max(
            1, len(_descend(weights, lambda number: map(function_of, self._user[number]), WHOLE_LOOP))
        )
        lines = _totals(weights, lambda number: self._user[number][-1:])
        line, ns = max(lines.items(), key=_largest, default=(None, 0.0))
        self._driver = line if ns > MOST * sum(weights.values()) else None
        """The user's line below which a library drives the steps."""

    def places(self, part: Floats) -> tuple[Location, ...]:
        """The place that holds most of the time of `part`, the share of each row of samples that belongs to it; then
        further functions, and lines of them, that hold at least MIN_SHARE of the whole step."""
        samples = self._samples
        n = samples.n * float(part @ samples.ns / samples.ns.sum())
        if n < MIN_SAMPLES:
            return ()
        ns = np.bincount(samples.stack, samples.weight * part)
        weights = {number: float(ns[number]) for number in samples.stacks if ns[number] > 0}
        main = self._place(weights, MOST * sum(weights.values()))
        found = [main] if main[1] else []
        remaining = {number: weight for number, weight in weights.items() if number not in main[2]}
        while remaining and len(found) < _MAX_PLACES:
            found.append(self._largest_function(remaining))
            numbers = found[-1][2]
            if sum(remaining[number] for number in numbers) < MIN_SHARE * samples.window.wall_ns:
                found.pop()
                break
            remaining = {number: weight for number, weight in remaining.items() if number not in numbers}
        return tuple(self._location(kind, path, numbers, part, weights) for kind, path, numbers in found if path)

    def _location(
        self, kind: LocationKind, path: tuple[Site, ...], numbers: set[int], part: Floats, weights: Mapping[int, float]
    ) -> Location:
        samples = self._samples
        share = sum(weights[number] for number in numbers) / sum(weights.values())
        by_batch = samples.batches.ns * part[:, None]
        chosen = by_batch[np.isin(samples.stack, list(numbers))].sum(axis=0)
        n = samples.n * float(part @ samples.ns / samples.ns.sum())
        low, high = share_interval(
            share, effective_sample_size(chosen, by_batch.sum(axis=0), n, samples.batches.unsampled)
        )
        library = self._library(weights, numbers) if path == (self._driver,) else ()
        return Location(kind, tuple(map(self._stacks.relative, path)), min(1.0, share), low, high, n, library=library)

    def _largest_function(self, weights: Mapping[int, float], *, may_be_line: bool = True) -> _Place:
        """The function with most time, or its line where that may be named and holds most of the function's time."""
        leaf = {number: self._user[number][-1:] for number in weights}
        functions = _totals(weights, lambda number: map(function_of, leaf[number]))
        function, _ = max(functions.items(), key=_largest, default=(None, 0))
        if function is None:
            return LocationKind.FUNCTION, (), set(weights)
        below = {
            number: weights[number] for number, sites in leaf.items() if sites and function_of(sites[0]) == function
        }
        line, ns = max(_totals(below, leaf.__getitem__).items(), key=_largest)
        if may_be_line and (ns > MOST * sum(below.values()) or function[1] == "<module>"):
            return LocationKind.LINE, (line,), {number for number in below if leaf[number] == (line,)}
        return LocationKind.FUNCTION, (line,), set(below)

    def _place(self, weights: Mapping[int, float], most: float) -> _Place:
        """What holds more than `most` ns: a line, else a function, else a path of calls, else nothing."""
        lines = _totals(weights, lambda number: self._user[number][-1:])
        line, ns = max(lines.items(), key=_largest, default=(None, 0))
        if line is not None and ns > most:
            return LocationKind.LINE, (line,), {number for number in weights if self._user[number][-1:] == (line,)}
        leaves = _totals(weights, lambda number: map(function_of, self._user[number][-1:]))
        function, ns = max(leaves.items(), key=_largest, default=(None, 0))
        if function is not None and ns > most and function[1] != "<module>":
            return self._largest_function(weights, may_be_line=False)
        path = _descend(weights, lambda number: map(function_of, self._user[number]), MOST)
        if len(path) <= self._loop_depth:
            return LocationKind.CALL_PATH, (), set()
        below = {number for number in weights if tuple(map(function_of, self._user[number][: len(path)])) == path}
        depths = range(self._loop_depth - 1, len(path))
        return LocationKind.CALL_PATH, tuple(_main_line(weights, below, self._user, depth) for depth in depths), below

    def _library(self, weights: Mapping[int, float], numbers: Iterable[int]) -> tuple[tuple[str, float], ...]:
        """The library's functions below the driver's line that hold most of the time, from the outside inward."""
        total = sum(weights.values())
        below = {number: tuple(map(function_of, self._stacks.library_frames(number))) for number in numbers}
        path = _descend({number: weights[number] for number in below}, below.__getitem__, MOST, total)
        names = list[tuple[str, float]]()
        for depth in range(1, len(path) + 1):
            ns = sum(weights[number] for number, frames in below.items() if frames[:depth] == path[:depth])
            name = callee_name(Site(path[depth - 1][0], 0, path[depth - 1][1]), self._stacks.folders)
            if names and ns / total >= SAME * names[-1][1]:
                names.pop()
            names.append((name, ns / total))
        return tuple(names)


def _largest(item: tuple[T, float]) -> tuple[float, T]:
    return item[1], item[0]


def _totals(weights: Mapping[int, float], keys: Callable[[int], Iterable[T]]) -> dict[T, float]:
    """ns by key, of which a stack has one or none."""
    totals = defaultdict[T, float](float)
    for number, ns in weights.items():
        for key in keys(number):
            totals[key] += ns
    return totals


def _main_line(
    weights: Mapping[int, float], numbers: Iterable[int], frames: Mapping[int, Sequence[Site]], at: int
) -> Site:
    """The frame at one depth of these stacks that has most ns."""
    totals = defaultdict[Site, float](float)
    for number in numbers:
        totals[frames[number][at]] += weights[number]
    return max(totals.items(), key=_largest)[0]


def _descend(
    weights: Mapping[int, float],
    functions: Callable[[int], Iterable[Function]],
    part: float,
    total: float | None = None,
) -> tuple[Function, ...]:
    """The functions that a chain of calls from the outside inward has in common, as long as it holds more than `part`
    of the total."""
    most = part * (sum(weights.values()) if total is None else total)
    paths = {number: tuple(functions(number)) for number in weights}
    path: tuple[Function, ...] = ()
    while True:
        children = defaultdict[Function, float](float)
        for number, frames in paths.items():
            if len(frames) > len(path) and frames[: len(path)] == path:
                children[frames[len(path)]] += weights[number]
        child, ns = max(children.items(), key=_largest, default=(None, 0.0))
        if child is None or ns <= most:
            return path
        path = (*path, child)
