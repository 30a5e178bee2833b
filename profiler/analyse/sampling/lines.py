"""The time of the stepping thread by line of the user's code: the innermost one of each stack sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from profiler.analyse.model import HOST_CATEGORIES, LineCost
from profiler.analyse.sampling.attribute import ClassifiedSamples
from profiler.analyse.sampling.batch_means import effective_sample_size
from profiler.analyse.sampling.code_origin import relative_site, working_folder
from profiler.analyse.sampling.strata import NUMBER, STRATA, WEIGHTED_TOGETHER, Floats, Numbers
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S
from profiler.run.model import Run, Site

MIN_SHARE: Final = 0.0005
"""Share of the time below which a line is left out: 1/2000, as in a flame graph."""


def line_costs(run: Run, samples: ClassifiedSamples | None) -> tuple[LineCost, ...]:
    """The lines, the most seconds first; none where nothing was sampled."""
    if samples is None or not len(samples.window):
        return ()
    ns = stack_ns(samples.stack, samples.weight, samples.shares)
    counts = np.bincount(samples.stack, samples.ns).astype(np.float64)
    lines: dict[Site, list[int]] = {}
    for stack in ns:
        lines.setdefault(samples.stacks[stack].site, []).append(stack)
    groups, batches = _weight_groups(samples), samples.batches.sum_by(samples.stack)
    scale, folder = 1 / len(samples.window) / NS_PER_S, working_folder(run)
    rows = []
    for site, stacks in lines.items():
        parts = np.sum([ns[stack] for stack in stacks], axis=0)
        share = min(1.0, float(parts.sum()) / samples.window.wall_ns)
        if share < MIN_SHARE or not site.file:  # a stack without a frame is of no line
            continue
        mix = {name: float(part) * scale for name, part in zip(HOST_CATEGORIES, parts, strict=True) if part > 0}
        count = max(1, round(float(counts[stacks].sum()) * samples.n / float(samples.ns.sum())))
        below, above = _share_error(samples, stacks, batches, groups)
        calls: dict[str, float] = {}
        for stack in stacks:
            name = samples.stacks[stack].calls
            calls[name] = calls.get(name, 0.0) + float(ns[stack].sum())
        rows.append(
            LineCost(
                relative_site(site, folder),
                max(calls, key=lambda name: (calls[name], name)),
                float(parts.sum()) * scale,
                share,
                max(0.0, share - below),
                min(1.0, share + above),
                count,
                mix,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site)))


def stack_ns(number: Numbers, weight: Floats, shares: Floats) -> Mapping[int, Floats]:
    """Stack -> ns in each host category."""
    sums = np.stack([np.bincount(number, weight * column) for column in shares.T], axis=1)
    return {stack: sums[stack] for stack in np.unique(number).tolist()}


def _weight_groups(samples: ClassifiedSamples) -> tuple[Numbers, Floats, Floats]:
    """The number of the strata group of each stack, and the ns of each group by batch of time and as weighted."""
    by_stratum = np.zeros(len(STRATA), np.int64)
    for number, names in enumerate(WEIGHTED_TOGETHER):
        by_stratum[[NUMBER[name] for name in names]] = number
    group = by_stratum[samples.stratum]
    by_stack = np.zeros(int(samples.stack.max()) + 1, np.int64)
    by_stack[samples.stack] = group  # all samples of a stack have its stratum
    weighted = np.bincount(group, samples.weight, minlength=len(WEIGHTED_TOGETHER)).astype(np.float64)
    return by_stack, samples.batches.sum_by(group), weighted


def _share_error(
    samples: ClassifiedSamples, stacks: list[int], batches: Floats, groups: tuple[Numbers, Floats, Floats]
) -> tuple[float, float]:
    """How far a line's share may be below and above, by the samples of each group that is weighted by itself.

    :param batches: ns of each stack in each batch of time.
    """
    by_stack, group_ns, weighted = groups
    ns, group = batches[stacks], by_stack[stacks]
    line_ns = np.bincount(group, ns.sum(axis=1), minlength=len(WEIGHTED_TOGETHER))
    below = above = 0.0
    for number in np.flatnonzero(line_ns).tolist():
        total = group_ns[number].sum()
        share = float(line_ns[number] / total)
        n = samples.n * float(total / group_ns.sum())
        part = ns[group == number].sum(axis=0)
        size = effective_sample_size(part, group_ns[number], n, samples.batches.unsampled)
        low, high = share_interval(share, size)
        scale = float(weighted[number]) / samples.window.wall_ns
        below, above = math.hypot(below, (share - low) * scale), math.hypot(above, (high - share) * scale)
    return below, above
