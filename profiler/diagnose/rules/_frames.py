"""What a function of a library costs, by the stack samples in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from profiler.analyse.model import FlameNode
from profiler.diagnose.rule import MAX_SITES, NO_WORK, Cost, StepCosts
from profiler.run.model import Site

Times = dict[Site, float]
"""Line of the user's own code -> seconds per step in the function below it."""


def times_in(costs: StepCosts, chosen: Callable[[Site], bool]) -> Times:
    """The time of the stepping thread in the functions that `chosen` selects, and in what they call, by the user's line
    above them; the most first. Empty without stack samples."""
    flame, lines = costs.analysis.flame, {line.site: line for line in costs.analysis.lines}
    times: Times = {}
    files = {site.file for site in lines}
    for site, seconds in _outermost(flame, chosen, files) if flame else ():
        times[site] = times.get(site, 0.0) + seconds
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def _outermost(
    node: FlameNode, chosen: Callable[[Site], bool], files: set[str], line: Site | None = None
) -> Iterator[tuple[Site, float]]:
    """The outermost frames that are chosen: the innermost line above each in one of these files, and its seconds."""
    if node.site is not None and line is not None and chosen(node.site):
        yield line, node.value
        return
    if node.site is not None and node.site.file in files:
        line = node.site
    for child in node.children:
        yield from _outermost(child, chosen, files, line)


def frame_costs(costs: StepCosts, times: Times, category: str = "") -> dict[str, Cost]:
    """This time by category, without waits for a core or for other ranks, with an interval as wide as that of the time
    below these lines.

    :param category: the category that all of it is in; empty: it is divided as the time below each line is.
    """
    totals: dict[str, Cost] = {}
    for line in costs.analysis.lines:
        seconds = min(times.get(line.site, 0.0), line.seconds_per_step)
        sampled = sum(line.categories.values())
        if not seconds or not line.share or not sampled:
            continue
        low, high = line.low / line.share, line.high / line.share
        parts = {category: 1.0} if category else {name: part / sampled for name, part in line.categories.items()}
        for name, part in parts.items():
            if name in NO_WORK:
                continue
            before = totals.get(name, Cost(0.0, 0.0, 0.0))
            cost = Cost(seconds * part, seconds * part * low, seconds * part * high)
            totals[name] = Cost(before.seconds + cost.seconds, before.low + cost.low, before.high + cost.high)
    return totals


def frame_sites(times: Times) -> tuple[Site, ...]:
    """The lines above most of this time."""
    return tuple(times)[:MAX_SITES]
