"""Steps that take much longer than the others: how many, whether they come at regular distances, and at which lines.

A mean hides them: an evaluation at every tenth step is most of the time of a run whose median step is fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.frames import USER, kind_of, read_stack
from profiler.analyse.gil import USUAL_PERIOD_S, period_s, wilson
from profiler.analyse.lines import folder_of, shown
from profiler.analyse.model import SpikeLine, Spikes
from profiler.analyse.places import places_of
from profiler.analyse.timeline import overlaps, times, union
from profiler.analyse.window import NS_PER_S, Window, of_thread
from profiler.run.model import Run, Site

LONG: Final = 2.0
"""Times the median from which a step is long: other work than usual, and more than batches of other sizes differ by."""
WORTH: Final = 0.05
"""Share of all time that long steps must cost beyond the median: less would gain nobody anything."""
FEWEST_STEPS: Final = 10
"""Steps below which one of them is no exception from the others."""
ALIKE: Final = 0.25
"""Of the extra time of a typical long step: what takes less is a hiccup beside them, and not counted with them."""
REGULAR: Final = 0.8
"""Share of the distances between long steps that must be the usual one: a hiccup more or one missed breaks two."""
FEWEST_GAPS: Final = 3
"""Distances below which equal ones are chance."""
MOST: Final = 0.25
"""Share of the steps above which irregular long ones are no exceptions: a loader behind hands over in bursts."""
ENOUGH: Final = 10
"""Stack samples in long steps that tell most of their extra time from little of it: a half is known to +-30 points."""
OWN: Final = 0.1
"""Share of the other steps below which a line is the long steps' own work."""
HEAVY: Final = 0.8
"""Share of a line's extra time from which the line that it calls says where it is."""
LEAST: Final = 0.1
"""Share of the extra time below which a line is not named."""
MOST_LINES: Final = 3
_DEEPEST: Final = 100
"""Lines of a stack that are read, from the outside: who recurses deeper does so in every step."""

_Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Node:
    """One line below the lines that called it: ns of samples in long steps, and in the others."""

    site: Site
    long: float = 0.0
    rest: float = 0.0
    children: dict[Site, _Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """What the samples are held against: the lengths of steps, and how sure the samples are of each kind."""

    root: _Node
    mean_long: float
    mean_rest: float
    n_long: float
    """Samples in long steps where these are regular; else long steps with one: a machine stands still at one line."""
    n_rest: float

    def parts(self, node: _Node) -> tuple[float, float]:
        """Share of a long step below a line, and of another one."""
        root = self.root
        return node.long / root.long if root.long else 0.0, node.rest / root.rest if root.rest else 0.0

    def extra(self, node: _Node) -> float:
        """Share of the extra time that lies below a line; below 0 where long steps have less of it."""
        long, rest = self.parts(node)
        return (long * self.mean_long - rest * self.mean_rest) / (self.mean_long - self.mean_rest)

    def stands_out(self, node: _Node) -> bool:
        """Whether long steps have a larger part of it than the others, surely: a slow machine is slow at any line."""
        long, rest = self.parts(node)
        return wilson(long, self.n_long)[0] > wilson(rest, self.n_rest)[1]


def spikes(run: Run, window: Window) -> Spikes | None:
    """The long steps of `window`; None where there are none that matter."""
    if len(window) < FEWEST_STEPS:
        return None
    wall = window.wall.astype(np.float64)
    usual = float(np.median(wall))
    above = wall > LONG * usual
    long = above & (wall - usual >= ALIKE * _typical((wall - usual)[above]))
    extra = float((wall - usual)[long].sum()) / window.wall_ns
    if extra < WORTH:
        return None
    every = _every(window, long)
    if not every and long.mean() > MOST:
        return None
    ratio = float(np.median(wall[long]) / np.median(wall[~above]))
    sampled, samples = _sampled(run, window, (long, ~above), regular=every > 0)
    enough = samples >= ENOUGH
    lines = _lines(sampled, regular=every > 0, folder=folder_of(run)) if enough else ()
    return Spikes(int(long.sum()), len(window), every, ratio, extra, lines, samples, enough)


def _typical(extra: npt.NDArray[np.float64]) -> float:
    """The extra time of the step at the middle of all extra time: many small ones do not hide a few large ones."""
    if not len(extra):
        return 0.0
    ordered = np.sort(extra)
    sums = np.cumsum(ordered)
    return float(ordered[np.searchsorted(sums, sums[-1] / 2)])


def _every(window: Window, long: _Mask) -> int:
    """The distance between long steps where it is nearly always the same; else 0."""
    number = times(window.steps["index"])
    if len(number) > 1 and (np.diff(number) <= 0).any():
        number = np.arange(len(number))
    gaps = np.diff(number[long])
    if len(gaps) < FEWEST_GAPS:
        return 0
    usual = int(np.median(gaps))
    near = np.abs(gaps - usual) <= usual // 10
    return usual if usual > 1 and near.mean() >= REGULAR else 0


def _sampled(run: Run, window: Window, steps: tuple[_Mask, _Mask], *, regular: bool) -> tuple[_Sampled, int]:
    """The stepping thread's samples in both kinds of steps as a tree of lines, and how many lie in the long ones."""
    rows, places, period = of_thread(run.stacks, window), places_of(run), period_s(run)
    # a row lasts from its first sample to the next one: on average it began and ended half a period before
    early = round((period or 0.0) * NS_PER_S / 2)
    begin, end = times(rows["begin"]) - early, times(rows["end"]) - early
    root, seen, ns = _Node(Site("", 0, "")), set[int](), np.zeros(2)
    for column, own in enumerate(steps):
        cut = overlaps(begin, end, union(window.begin[own], window.end[own]))
        length = cut.end - cut.begin
        sums = np.bincount(rows["stack"][cut.left], length, minlength=len(run.stack_frames))
        for one in np.flatnonzero(sums).tolist():
            frames = run.stack_frames[one]
            sites = [site for site in frames if kind_of(site.file, places) == USER]
            _add(root, (sites or [read_stack(frames, places).site])[:_DEEPEST], column, float(sums[one]))
        ns[column] = length.sum()
        if column == 0:
            seen = set(window.step_of(cut.begin).tolist())
    counts = ns / NS_PER_S / (period or USUAL_PERIOD_S)
    long, rest = (float(window.wall[own].mean()) for own in steps)
    n_long = float(counts[0]) if regular else len(seen)
    return _Sampled(root, long, rest, n_long, float(counts[1])), round(float(counts[0]))


def _add(root: _Node, sites: list[Site], column: int, ns: float) -> None:
    node = root
    for site in (None, *sites):
        node = node if site is None else node.children.setdefault(site, _Node(site))
        if column:
            node.rest += ns
        else:
            node.long += ns


def _lines(sampled: _Sampled, *, regular: bool, folder: str) -> tuple[SpikeLine, ...]:
    """Lines with most of the extra time, none within another.

    :param regular: the long steps come at regular distances, which is the program's doing and no machine's.
    """
    found = [(node, share) for node in _parts(sampled, sampled.root) if (share := sampled.extra(node)) > 0]
    own = _by_site([(node, share) for node, share in found if sampled.stands_out(node)], folder)
    if not own and regular:
        own = _by_site(found, folder)[:1]
    return tuple(row for row in own if row.share >= LEAST)[:MOST_LINES]


def _by_site(parts: list[tuple[_Node, float]], folder: str) -> list[SpikeLine]:
    """A row a line, the most first."""
    sums: dict[Site, float] = {}
    for node, share in parts:
        site = shown(node.site, folder)
        sums[site] = sums.get(site, 0.0) + share
    rows = [SpikeLine(site, min(1.0, share)) for site, share in sums.items()]
    return sorted(rows, key=lambda row: (-row.share, row.site))


def _parts(sampled: _Sampled, node: _Node) -> Iterator[_Node]:
    """The extra time of `node` in parts: what other steps run too is divided further, the long steps' own is one."""
    below = list(node.children.values())
    if node is not sampled.root and sampled.parts(node)[1] < OWN:
        yield _deepest(sampled, node)
        return
    for child in below:
        yield from _parts(sampled, child)
    if node is not sampled.root:
        itself = node.long - sum(child.long for child in below), node.rest - sum(child.rest for child in below)
        yield _Node(node.site, *itself)


def _deepest(sampled: _Sampled, node: _Node) -> _Node:
    """The innermost line that still has nearly all of a line's extra time."""
    while node.children:
        most = max(node.children.values(), key=lambda child: child.long)
        if sampled.extra(most) < HEAVY * sampled.extra(node):
            break
        node = most
    return node
