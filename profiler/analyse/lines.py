"""Every millisecond of the stepping thread by line of the user's own code, the innermost of each stack sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from profiler.analyse.covers import Floats, Numbers
from profiler.analyse.evidence import Evidence
from profiler.analyse.frames import Stack
from profiler.analyse.gil import wilson
from profiler.analyse.window import NS_PER_S
from profiler.run.model import HOST_CATEGORIES, LineCost, Run, Site

LEAST: Final = 0.0005
"""Share of the time below which a line is left out: 1/2000, as in a flame graph."""


def line_costs(run: Run, seen: Evidence | None) -> tuple[LineCost, ...]:
    """The lines, the most seconds first; none where nothing was sampled."""
    if seen is None or not len(seen.window):
        return ()
    whole = float(seen.window.wall_ns)
    per_step = 1 / len(seen.window) / NS_PER_S
    tallied = tally(seen.stack, seen.weight, seen.shares)
    counts = np.bincount(seen.stack, seen.raw) * seen.n / seen.raw.sum()
    return _rows(tallied, (seen.stacks, counts), (whole, per_step, seen.n), folder_of(run))


def tally(number: Numbers, weight: Floats, shares: Floats) -> Mapping[int, Floats]:
    """Stack -> ns in each host category."""
    found = {}
    sums = np.stack([np.bincount(number, weight * column) for column in shares.T], axis=1)
    for one in np.unique(number).tolist():
        found[one] = sums[one]
    return found


def _rows(
    tallied: Mapping[int, Floats],
    known: tuple[Mapping[int, Stack], Floats],
    scale: tuple[float, float, float],
    folder: str,
) -> tuple[LineCost, ...]:
    """`scale`: the ns that shares are of, seconds for each ns, and how many samples there are in all."""  # fmt: skip
    stacks, counts = known
    whole, seconds, n = scale
    lines: dict[Site, list[int]] = {}
    for one in tallied:
        lines.setdefault(stacks[one].site, []).append(one)
    rows = []
    for site, own in lines.items():
        parts = np.sum([tallied[one] for one in own], axis=0)
        ns = float(parts.sum())
        share = min(1.0, ns / whole)
        if share < LEAST:
            continue
        low, high = wilson(share, n)
        mix = {name: float(part) * seconds for name, part in zip(HOST_CATEGORIES, parts, strict=True) if part > 0}
        count = max(1, round(float(counts[own].sum())))
        calls = _calls(own, tallied, stacks)
        rows.append(LineCost(shown(site, folder), calls, ns * seconds, share, low, high, count, mix))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site)))


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
