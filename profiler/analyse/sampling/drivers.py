"""Finds the line of the program below which a library runs the steps, and the functions of that library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from profiler.analyse.model import Driver
from profiler.analyse.sampling.frames import callee_name
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import Function, Stacks, function_of
from profiler.run.model import Site

MOST: Final = 0.5
"""Share of all samples that a line, and each function below it, must exceed."""
MIN_SAMPLES: Final = 5.0
"""Samples below which nothing is named: even if all are at one line, less than half of the time may be there."""
SAME: Final = 0.95
"""If the shares of two nested functions differ by less than this factor, only the inner one is named."""


def find_driver(stacks: Stacks, samples: ClassifiedSamples | None) -> Driver | None:
    """The line that holds most of the measured time, where that is in functions of a library; None: there is none."""
    if samples is None or samples.n < MIN_SAMPLES:
        return None
    total = np.bincount(samples.stack, samples.weight)
    weights = {number: float(total[number]) for number in samples.stacks if total[number] > 0}
    whole, lines = sum(weights.values()), defaultdict[Site, list[int]](list)
    for number in weights:
        for site in stacks.user_frames(number)[-1:]:
            lines[site].append(number)
    for site, numbers in lines.items():
        below = sum(weights[number] for number in numbers)
        if below > MOST * whole and (functions := _functions(stacks, weights, numbers)):
            return Driver(stacks.relative(site), min(1.0, below / whole), functions)
    return None


def _functions(stacks: Stacks, weights: Mapping[int, float], numbers: Iterable[int]) -> tuple[tuple[str, float], ...]:
    """The library's functions in these stacks that hold most of the time, from the outside inward."""
    total = sum(weights.values())
    below = {number: tuple(map(function_of, stacks.library_frames(number))) for number in numbers}
    path = _descend({number: weights[number] for number in below}, below.__getitem__, MOST * total)
    names = list[tuple[str, float]]()
    for depth in range(1, len(path) + 1):
        ns = sum(weights[number] for number, frames in below.items() if frames[:depth] == path[:depth])
        name = callee_name(Site(path[depth - 1][0], 0, path[depth - 1][1]), stacks.folders)
        if names and ns / total >= SAME * names[-1][1]:
            names.pop()
        names.append((name, ns / total))
    return tuple(names)


def _descend(
    weights: Mapping[int, float], functions: Callable[[int], Iterable[Function]], most: float
) -> tuple[Function, ...]:
    """The functions that a chain of calls from the outside inward has in common, as long as it holds more than `most`
    ns."""
    paths = {number: tuple(functions(number)) for number in weights}
    path: tuple[Function, ...] = ()
    while True:
        children = defaultdict[Function, float](float)
        for number, frames in paths.items():
            if len(frames) > len(path) and frames[: len(path)] == path:
                children[frames[len(path)]] += weights[number]
        child, ns = max(children.items(), key=lambda item: item[1], default=(None, 0.0))
        if child is None or ns <= most:
            return path
        path = (*path, child)
