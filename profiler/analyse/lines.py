"""Every millisecond of the stepping thread by line of the user's own code, the innermost of each stack sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from profiler.analyse.blocks import effective
from profiler.analyse.covers import COVERS, NUMBER, STRATA, Floats, Numbers
from profiler.analyse.evidence import Evidence
from profiler.analyse.frames import Stack
from profiler.analyse.gil import wilson
from profiler.analyse.model import HOST_CATEGORIES, LineCost
from profiler.analyse.window import NS_PER_S
from profiler.run.model import Run, Site

LEAST: Final = 0.0005
"""Share of the time below which a line is left out: 1/2000, as in a flame graph."""


def line_costs(run: Run, seen: Evidence | None) -> tuple[LineCost, ...]:
    """The lines, the most seconds first; none where nothing was sampled."""
    if seen is None or not len(seen.window):
        return ()
    tallied, counts = tally(seen.stack, seen.weight, seen.shares), np.bincount(seen.stack, seen.raw).astype(np.float64)
    lines: dict[Site, list[int]] = {}
    for one in tallied:
        lines.setdefault(seen.stacks[one].site, []).append(one)
    strata, in_time = _parts(seen), seen.blocks.by(seen.stack)
    seconds, folder = 1 / len(seen.window) / NS_PER_S, folder_of(run)
    rows = []
    for site, own in lines.items():
        parts = np.sum([tallied[one] for one in own], axis=0)
        share = min(1.0, float(parts.sum()) / seen.window.wall_ns)
        if share < LEAST or not site.file:  # a stack without a frame is of no line
            continue
        mix = {name: float(part) * seconds for name, part in zip(HOST_CATEGORIES, parts, strict=True) if part > 0}
        count = max(1, round(float(counts[own].sum()) * seen.n / float(seen.raw.sum())))
        below, above = _errors(seen, own, in_time, strata)
        ends = max(0.0, share - below), min(1.0, share + above)
        calls = _calls(own, tallied, seen.stacks)
        rows.append(LineCost(shown(site, folder), calls, float(parts.sum()) * seconds, share, *ends, count, mix))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site)))


def tally(number: Numbers, weight: Floats, shares: Floats) -> Mapping[int, Floats]:
    """Stack -> ns in each host category."""
    sums = np.stack([np.bincount(number, weight * column) for column in shares.T], axis=1)
    return {one: sums[one] for one in np.unique(number).tolist()}


def _parts(seen: Evidence) -> tuple[Numbers, Floats, Floats]:
    """Of each stack the number of its stratum; of each stratum its ns as sampled by block of time, and as weighed."""
    of_cover = np.zeros(len(COVERS), np.int64)
    for number, names in enumerate(STRATA):
        of_cover[[NUMBER[name] for name in names]] = number
    stratum = of_cover[seen.cover]
    of_stack = np.zeros(int(seen.stack.max()) + 1, np.int64)
    of_stack[seen.stack] = stratum  # all samples of a stack have its cover
    weighed = np.bincount(stratum, seen.weight, minlength=len(STRATA)).astype(np.float64)
    return of_stack, seen.blocks.by(stratum), weighed


def _errors(
    seen: Evidence, own: list[int], in_time: Floats, parts: tuple[Numbers, Floats, Floats]
) -> tuple[float, float]:
    """How far a line's share may be below and above, by the samples of each stretch that is weighed by itself.

    :param in_time: ns of each stack in each block of time; of those of `parts` all.
    """
    of_stack, raw, weighed = parts
    stacks, stratum = in_time[own], of_stack[own]
    mine = np.bincount(stratum, stacks.sum(axis=1), minlength=len(STRATA))
    below = above = 0.0
    for number in np.flatnonzero(mine).tolist():
        whole = raw[number].sum()
        share = float(mine[number] / whole)
        n = seen.n * float(whole / raw.sum())
        low, high = wilson(share, effective(stacks[stratum == number].sum(axis=0), raw[number], n, seen.blocks.unseen))
        scale = float(weighed[number]) / seen.window.wall_ns
        below, above = math.hypot(below, (share - low) * scale), math.hypot(above, (high - share) * scale)
    return below, above


def _calls(own: Iterable[int], tallied: Mapping[int, Floats], stacks: Mapping[int, Stack]) -> str:
    """What most of a line's time was in below it."""
    totals: dict[str, float] = {}
    for one in own:
        totals[stacks[one].calls] = totals.get(stacks[one].calls, 0.0) + float(tallied[one].sum())
    return max(totals, key=lambda name: (totals[name], name))


def folder_of(run: Run) -> str:
    """The working directory of the program, where it is known; else the folder of its script."""
    said: Any = run.info.facts.get("cwd") or run.info.host.get("cwd")
    if said:
        return str(said)
    script = next((word for word in run.info.argv if word.endswith(".py") and word.startswith("/")), "")
    return str(PurePath(script).parent) if script else ""


def shown(site: Site, folder: str) -> Site:
    """The site with its file relative to `folder` where it lies below."""
    file = PurePath(site.file)
    if folder and file.is_relative_to(folder) and str(file) != folder:
        return Site(str(file.relative_to(folder)), site.line, site.function)
    return site
