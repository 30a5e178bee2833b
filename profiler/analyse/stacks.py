"""Stack samples of the stepping thread inside the measured steps: shares of time, and the flame graph.

A sample stands for the time until the thread's next sample; what of it lies outside measured steps does not count. The
sampler's clock is good to milliseconds, so samples say how much of the run went where, not what happened at one moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.frames import OURS, kind_of
from profiler.analyse.model import FlameNode
from profiler.analyse.places import Places, places_of
from profiler.analyse.timeline import overlaps, times
from profiler.analyse.window import LEVEL_LIGHT, Window, measured_window, of_thread
from profiler.core.notice import Notice
from profiler.run.model import Run, Site, Table
from profiler.run.tables import CallKind

MAX_DEPTH: Final = 100
"""Frames below this are folded into the one at it: readers of the tree recurse."""
MIN_SHARE: Final = 0.0005
"""A frame with less of the whole is folded into its parent: 1/2000 is half a pixel of a wide screen."""


KNOWN: Final = 0.9
"""Share of the sampled time whose activity must be known for samples alone to say how active a thread was."""


@dataclass(frozen=True, slots=True)
class Activity:
    """How much of the measured time the stepping thread spent on a CPU, in Python frames."""

    share: float
    samples: int
    error: float
    """Half of the 95% interval of `share`; 0 where a clock measured it."""


@dataclass(slots=True)
class _Frame:
    weight: int = 0
    lines: dict[int, int] = field(default_factory=dict)
    children: dict[tuple[str, str], _Frame] = field(default_factory=dict)


def weighted(run: Run, window: Window) -> tuple[Table, npt.NDArray[np.int64]]:
    """The stepping thread's samples, and how many ns of measured steps each stands for."""
    samples = of_thread(run.stacks, window)
    cut = overlaps(times(samples["begin"]), times(samples["end"]), window.spans)
    weight = np.bincount(cut.left, cut.end - cut.begin, minlength=len(samples))
    kept = weight > 0
    return samples[kept], weight[kept].astype(np.int64)


def activity(run: Run, window: Window) -> Activity | None:
    """The share of active Python, or None where nothing can tell.

    Samples that know whether the thread was on a CPU say it by themselves. Where most do not (a sampler outside cannot
    tell within a fast loop), the thread's own CPU clock, read at every step, says how long it was active, and the
    samples only prove that it was in Python.
    """
    samples, weight = weighted(run, window)
    if not len(samples):
        return None
    framed = np.array([len(frames) > 0 for frames in run.stack_frames])[samples["stack"]]
    known = samples["active"] >= 0
    if weight[known].sum() >= KNOWN * weight.sum():
        samples, weight, framed = samples[known], weight[known], framed[known]
        share = float(weight[framed & (samples["active"] == 1)].sum() / weight.sum())
        return Activity(share, len(samples), 1.96 * math.sqrt(share * (1 - share) / len(samples)))
    cpu = int(window.steps["thread_cpu"].sum())
    if not cpu:
        return None
    in_python = float(weight[framed].sum() / weight.sum())
    return Activity(in_python * min(1.0, cpu / window.wall_ns), len(samples), 0.0)


def stack_shares(run: Run, classify: Callable[[tuple[Site, ...]], str]) -> dict[str, float]:
    """Share of the measured time of each class of stack, by samples alone: a check on the breakdown.

    :param classify: gets the frames, outermost first, and names their class.
    :return: shares that sum to 1; empty where there are no samples.
    """
    samples, weight = weighted(run, measured_window(run))
    per_stack = np.bincount(samples["stack"], weight, minlength=len(run.stack_frames))
    total, shares = float(per_stack.sum()), dict[str, float]()
    for number in np.flatnonzero(per_stack).tolist():
        name = classify(run.stack_frames[number])
        shares[name] = shares.get(name, 0.0) + float(per_stack[number]) / total
    return shares


def flame(run: Run, window: Window) -> tuple[FlameNode | None, Notice | None]:
    """The flame graph in seconds per step, or None and the reason.

    A frame's value is its share of the samples times the mean step time, so the root is the step time and two runs of
    the same steps can be laid over each other. Frames are one function of one file; its line is the one sampled most.
    Idle samples are in it: they show where the thread waited. Our wrappers are not: their time is their caller's.
    """
    if not len(window):
        return None, window.reason
    samples, weight = weighted(run, window)
    if not len(samples):
        return None, LEVEL_LIGHT if run.info.level == "light" else Notice("no-stack-samples")
    per_stack = np.bincount(samples["stack"], weight, minlength=len(run.stack_frames)).astype(np.int64)
    root, operations, packages = _Frame(), _operations(run), places_of(run)
    for number in np.flatnonzero(per_stack).tolist():
        frames = _without_ours(run.stack_frames[number], operations, packages)
        _add(root, frames[:MAX_DEPTH], int(per_stack[number]))
    scale = window.per_step(window.wall_ns) / root.weight
    return FlameNode("all", root.weight * scale, None, _children(root, scale, root.weight * MIN_SHARE)), None


def _operations(run: Run) -> dict[tuple[str, int], str]:
    """(file, line) -> what a hook saw it ask for most often: item, to, ..."""
    calls = run.calls[(run.calls["site"] >= 0) & (run.calls["kind"] != CallKind.OTHER)]
    if not len(calls):
        return {}
    both, count = np.unique(times(calls["site"]) * len(run.names) + calls["name"], return_counts=True)
    found: dict[tuple[str, int], str] = {}
    for one in np.argsort(count, kind="stable").tolist():  # the most frequent comes last and stays
        number, name = divmod(int(both[one]), len(run.names))
        site = run.sites[number]
        found[site.file, site.line] = run.names[name]
    return found


def _without_ours(
    frames: tuple[Site, ...], operations: Mapping[tuple[str, int], str], places: Places
) -> tuple[Site, ...]:
    """The frames without our wrappers; where one was the innermost, the call that it recorded stands in its place."""
    kept = tuple(site for site in frames if kind_of(site.file, places) != OURS)
    if kept and kept[-1] is not frames[-1] and (name := operations.get((kept[-1].file, kept[-1].line))):
        return (*kept, Site(kept[-1].file, kept[-1].line, name))
    return kept


def _add(root: _Frame, frames: tuple[Site, ...], weight: int) -> None:
    root.weight += weight
    node = root
    for site in frames:
        node = node.children.setdefault((site.function, site.file), _Frame())
        node.weight += weight
        node.lines[site.line] = node.lines.get(site.line, 0) + weight


def _children(node: _Frame, scale: float, least: float) -> tuple[FlameNode, ...]:
    """Largest first."""
    ordered = sorted(node.children.items(), key=lambda item: (-item[1].weight, item[0]))
    return tuple(
        FlameNode(
            function or file,
            child.weight * scale,
            Site(file, max(child.lines, key=lambda line: (child.lines[line], -line)), function),
            _children(child, scale, least),
        )
        for (function, file), child in ordered
        if child.weight >= least
    )
