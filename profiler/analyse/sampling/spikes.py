"""Steps that take much longer than the others: how many, whether they come at regular intervals, and at which lines.

A mean hides them: an evaluation at every tenth step is most of the time of a run whose median step is fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import overlaps, times, union
from profiler.analyse.model import SpikeLine, Spikes
from profiler.analyse.sampling.code_origin import USER, code_owner, package_folders, relative_site, working_folder
from profiler.analyse.sampling.frames import classify_stack
from profiler.analyse.sampling.gil import USUAL_PERIOD_S, sampling_period
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S, Window, thread_rows
from profiler.run.model import Run, Site

LONG: Final = 2.0
"""Times the median from which a step is long: that is other work than usual, and more than batch sizes differ by."""
MIN_EXTRA: Final = 0.05
"""Share of all time that long steps must cost beyond the median: less is not worth removing."""
MIN_STEPS: Final = 10
"""With fewer steps, none can be called an exception."""
MIN_TYPICAL: Final = 0.25
"""Share of the extra time of a typical long step: a step with less extra time is a random delay, and is not counted
with them."""
REGULAR: Final = 0.8
"""Share of the distances between long steps that must be equal for the long steps to be regular. One random long or
short step breaks two distances."""
MIN_DISTANCES: Final = 3
"""With fewer distances, equal ones may be chance."""
MAX_IRREGULAR: Final = 0.25
"""Share of the steps above which irregular long ones are no exceptions: a slow loader delivers in bursts."""
ENOUGH: Final = 10
"""With this many stack samples in long steps, a share of one half is known to ±30 points, enough to tell a main cause
from a minor one."""
RARE: Final = 0.1
"""Share of the other steps below which a line is work of the long steps only."""
DOMINANT: Final = 0.8
"""Share of a line's extra time from which the line that it calls is named in its place."""
MIN_SHARE: Final = 0.1
"""Share of the extra time below which a line is not named."""
MAX_LINES: Final = 3
_MAX_DEPTH: Final = 100
"""Lines of a stack that are used, from the outside: a deeper recursion is the same in every step."""

_Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Node:
    """One line below the lines that called it: ns of samples in long steps, and in the others."""

    site: Site
    long: float = 0.0
    short: float = 0.0
    children: dict[Site, _Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _StepSamples:
    """Samples in long and in other steps as a tree of lines, with the lengths of these steps."""

    root: _Node
    mean_long: float
    mean_short: float
    n_long: float
    """If the long steps are regular, the number of samples in them. Otherwise, the number of long steps with a sample,
    because a stalled machine shows the same line in every sample of a step."""
    n_short: float

    def shares(self, node: _Node) -> tuple[float, float]:
        """Share of a long step below a line, and of another step."""
        root = self.root
        return node.long / root.long if root.long else 0.0, node.short / root.short if root.short else 0.0

    def extra(self, node: _Node) -> float:
        """Share of the extra time that lies below a line; below 0 where long steps have less of it."""
        long, short = self.shares(node)
        return (long * self.mean_long - short * self.mean_short) / (self.mean_long - self.mean_short)

    def stands_out(self, node: _Node) -> bool:
        """Whether long steps have a significantly larger share of it than the others: a slow machine is slow at any
        line."""
        long, short = self.shares(node)
        return share_interval(long, self.n_long)[0] > share_interval(short, self.n_short)[1]


def spikes(run: Run, window: Window) -> Spikes | None:
    """The long steps of `window`; None where there are none that matter."""
    if len(window) < MIN_STEPS:
        return None
    wall = window.wall.astype(np.float64)
    usual = float(np.median(wall))
    above = wall > LONG * usual
    long = above & (wall - usual >= MIN_TYPICAL * _typical((wall - usual)[above]))
    extra = float((wall - usual)[long].sum()) / window.wall_ns
    if extra < MIN_EXTRA:
        return None
    every = _every(window, long)
    if not every and long.mean() > MAX_IRREGULAR:
        return None
    ratio = float(np.median(wall[long]) / np.median(wall[~above]))
    tree, samples = _sample_steps(run, window, (long, ~above), regular=every > 0)
    enough = samples >= ENOUGH
    lines = _lines(tree, regular=every > 0, folder=working_folder(run)) if enough else ()
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
    if len(gaps) < MIN_DISTANCES:
        return 0
    usual = int(np.median(gaps))
    near = np.abs(gaps - usual) <= usual // 10
    return usual if usual > 1 and near.mean() >= REGULAR else 0


def _sample_steps(run: Run, window: Window, steps: tuple[_Mask, _Mask], *, regular: bool) -> tuple[_StepSamples, int]:
    """The stepping thread's samples in both kinds of steps as a tree of lines, and how many lie in the long ones."""
    rows, folders, period = thread_rows(run.stacks, window), package_folders(run), sampling_period(run)
    # a row lasts from its first sample to the next one: the samples are points in time, so on average the row began and
    # ended half a period earlier
    early = round((period or 0.0) * NS_PER_S / 2)
    begin, end = times(rows["begin"]) - early, times(rows["end"]) - early
    root, sampled_steps, ns = _Node(Site("", 0, "")), set[int](), np.zeros(2)
    for column, chosen in enumerate(steps):
        cut = overlaps(begin, end, union(window.begin[chosen], window.end[chosen]))
        length = cut.end - cut.begin
        sums = np.bincount(rows["stack"][cut.left], length, minlength=len(run.stack_frames))
        for number in np.flatnonzero(sums).tolist():
            frames = run.stack_frames[number]
            sites = [site for site in frames if code_owner(site.file, folders) == USER]
            _add(root, (sites or [classify_stack(frames, folders).site])[:_MAX_DEPTH], column, float(sums[number]))
        ns[column] = length.sum()
        if column == 0:
            sampled_steps = set(window.step_rows(cut.begin).tolist())
    counts = ns / NS_PER_S / (period or USUAL_PERIOD_S)
    long, short = (float(window.wall[chosen].mean()) for chosen in steps)
    n_long = float(counts[0]) if regular else len(sampled_steps)
    return _StepSamples(root, long, short, n_long, float(counts[1])), round(float(counts[0]))


def _add(root: _Node, sites: list[Site], column: int, ns: float) -> None:
    node = root
    for site in (None, *sites):
        node = node if site is None else node.children.setdefault(site, _Node(site))
        if column:
            node.short += ns
        else:
            node.long += ns


def _lines(tree: _StepSamples, *, regular: bool, folder: str) -> tuple[SpikeLine, ...]:
    """The lines with most of the extra time, none of which is called by another.

    :param regular: the long steps come at regular distances, which only the program can cause.
    """
    parts = [(node, share) for node in _parts(tree, tree.root) if (share := tree.extra(node)) > 0]
    lines = _by_site([(node, share) for node, share in parts if tree.stands_out(node)], folder)
    if not lines and regular:
        lines = _by_site(parts, folder)[:1]
    return tuple(line for line in lines if line.share >= MIN_SHARE)[:MAX_LINES]


def _by_site(parts: list[tuple[_Node, float]], folder: str) -> list[SpikeLine]:
    """One row per line, the largest first."""
    sums: dict[Site, float] = {}
    for node, share in parts:
        site = relative_site(node.site, folder)
        sums[site] = sums.get(site, 0.0) + share
    rows = [SpikeLine(site, min(1.0, share)) for site, share in sums.items()]
    return sorted(rows, key=lambda row: (-row.share, row.site))


def _parts(tree: _StepSamples, node: _Node) -> Iterator[_Node]:
    """The extra time of `node` in parts: lines that other steps run too are divided further."""
    below = list(node.children.values())
    if node is not tree.root and tree.shares(node)[1] < RARE:
        yield _deepest(tree, node)
        return
    for child in below:
        yield from _parts(tree, child)
    if node is not tree.root:
        itself = node.long - sum(child.long for child in below), node.short - sum(child.short for child in below)
        yield _Node(node.site, *itself)


def _deepest(tree: _StepSamples, node: _Node) -> _Node:
    """The innermost line that still has nearly all of a line's extra time."""
    while node.children:
        largest = max(node.children.values(), key=lambda child: child.long)
        if tree.extra(largest) < DOMINANT * tree.extra(node):
            break
        node = largest
    return node
