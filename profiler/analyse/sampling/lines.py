"""The time of the stepping thread by line of the user's code: the innermost one of each stack sample."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from profiler.analyse.model import HOST_CATEGORIES, LineCost
from profiler.analyse.sampling.batch_means import effective_sample_size
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.sampling.strata import NUMBER, STRATA, WEIGHTED_TOGETHER
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S
from profiler.run.model import Site

MIN_SHARE: Final = 0.0005
"""Share of the time below which a line is left out: 1/2000, as in a flame graph."""


def line_costs(stacks: Stacks, samples: ClassifiedSamples | None) -> tuple[LineCost, ...]:
    """The lines, the most seconds first; none where nothing was sampled."""
    if samples is None:
        return ()
    ns = np.stack([np.bincount(samples.stack, samples.weight * column) for column in samples.shares.T], axis=1)
    counts = np.bincount(samples.stack, samples.ns)
    lines: defaultdict[Site, list[int]] = defaultdict(list)
    for number, stack in samples.stacks.items():
        lines[stack.site].append(number)
    error = _ShareError(samples)
    scale, rows = 1 / len(samples.window) / NS_PER_S, []
    for site, numbers in lines.items():
        parts = np.sum([ns[number] for number in numbers], axis=0)
        share = min(1.0, float(parts.sum()) / samples.window.wall_ns)
        if share < MIN_SHARE or not site.file:  # a stack without a frame is of no line
            continue
        mix = {name: float(part) * scale for name, part in zip(HOST_CATEGORIES, parts, strict=True) if part > 0}
        count = max(1, round(float(counts[numbers].sum()) * samples.n / float(samples.ns.sum())))
        below, above = error.of_stacks(numbers)
        calls = Counter[str]()
        for number in numbers:
            calls[samples.stacks[number].calls] += ns[number].sum()
        rows.append(
            LineCost(
                stacks.relative(site),
                most_frequent(calls),
                float(parts.sum()) * scale,
                share,
                max(0.0, share - below),
                min(1.0, share + above),
                count,
                mix,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site)))


def most_frequent(calls: Mapping[str, float]) -> str:
    """The function with the most time; of equal ones the last by name."""
    return max(calls, key=lambda name: (calls[name], name))


class _ShareError:
    """The error of a line's share, by the samples of each group of strata that is weighted by itself."""

    def __init__(self, samples: ClassifiedSamples) -> None:
        groups = np.zeros(len(STRATA), np.int64)
        for number, names in enumerate(WEIGHTED_TOGETHER):
            groups[[NUMBER[name] for name in names]] = number
        group = groups[samples.stratum]
        self._samples = samples
        self._group = np.zeros(int(samples.stack.max()) + 1, np.int64)
        self._group[samples.stack] = group  # all samples of a stack have its stratum
        self._stack_ns, self._group_ns = samples.batches.sum_by(samples.stack), samples.batches.sum_by(group)
        self._weight = np.bincount(group, samples.weight)

    def of_stacks(self, stacks: list[int]) -> tuple[float, float]:
        """How far the share of these stacks may be below and above."""
        samples, below, above = self._samples, 0.0, 0.0
        groups = self._group[stacks]
        for number in np.unique(groups).tolist():
            part = self._stack_ns[stacks][groups == number].sum(axis=0)
            total = self._group_ns[number].sum()
            share, n = float(part.sum() / total), samples.n * float(total / self._group_ns.sum())
            size = effective_sample_size(part, self._group_ns[number], n, samples.batches.unsampled)
            low, high = share_interval(share, size)
            scale = float(self._weight[number]) / samples.window.wall_ns
            below, above = math.hypot(below, (share - low) * scale), math.hypot(above, (high - share) * scale)
        return below, above
