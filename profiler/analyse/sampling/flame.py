"""Makes flame graphs of the stepping thread in seconds per step, and the difference of two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import Final

import numpy as np

from profiler.analyse.intervals import times
from profiler.analyse.model.host import FlameDiff, FlameNode
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.timing.counters import call_counts
from profiler.analyse.window import LEVEL_LIGHT, Window
from profiler.core.errors import Notice
from profiler.run.code_origin import OURS, code_owner
from profiler.run.model import Run, Site
from profiler.run.tables import CallKind

MAX_DEPTH: Final = 100
"""Deeper frames are folded into the one at this depth, because functions that read the tree recurse."""
_RECORDING_CALLS: Final = ("tensors", "syncs", "functions", "_syncs", "cuda_syncs")
"""Files of hooks that record calls of one operation, the last three in former versions. Another wrapper, such as
a loader's, may lie around calls too."""
MIN_SHARE: Final = 0.0005
"""A frame with less of the total is folded into its parent: 1/2000 is half a pixel of a wide screen."""


@dataclass(slots=True)
class _Frame:
    weight: int = 0
    position: float = 0.0
    """The sum of the positions of its samples within their steps, times their weights."""
    lines: dict[Site, int] = field(default_factory=dict)
    children: dict[tuple[str, str], _Frame] = field(default_factory=dict)


def flame_graph(stacks: Stacks, window: Window) -> tuple[FlameNode | None, Notice | None]:
    """The flame graph in seconds per step, or None and the reason.

    A frame's value is its share of the samples times the mean step time, so the root is the step time and two runs of
    the same steps can be compared. Frames are one function of one file, which is relative to the project or to the
    folder of installed packages, as in another checkout; its line is the one with most samples. Idle
    samples are included: they show where the thread waited. The profiler's wrapper frames are removed, and their time
    counts for their caller.
    """
    run = stacks.run
    if not len(window):
        return None, window.reason
    samples, weight = stacks.weighted_samples(window)
    if not len(samples):
        return None, LEVEL_LIGHT if run.info.level == "light" else Notice("no-stack-samples")
    per_stack = np.bincount(samples["stack"], weight, minlength=len(run.stack_frames)).astype(np.int64)
    row = window.step_rows(samples["begin"])
    positions = np.bincount(samples["stack"], weight * (samples["begin"] - window.begin[row]) / window.wall[row])
    root, operations = _Frame(), _operations(run)
    portable = cache(stacks.portable)
    for number in np.flatnonzero(per_stack).tolist():
        frames = _without_wrappers(stacks, number, operations)
        _add(root, map(portable, frames[:MAX_DEPTH]), int(per_stack[number]), float(positions[number]))
    scale = window.per_step(window.wall_ns) / root.weight
    return FlameNode("all", root.weight * scale, None, _children(root, scale, root.weight * MIN_SHARE)), None


def _operations(run: Run) -> dict[tuple[str, int], str]:
    """(file, line) -> the operation (item, to, ...) that hooks recorded there most often."""
    calls = run.calls[(run.calls["site"] >= 0) & (run.calls["kind"] != CallKind.OTHER)]
    if not len(calls):
        return {}
    keys, group = np.unique(times(calls["site"]) * len(run.names) + calls["name"], return_inverse=True)
    count = np.bincount(group, call_counts(calls))
    operations: dict[tuple[str, int], str] = {}
    for row in np.argsort(count, kind="stable").tolist():  # the most frequent comes last and stays
        number, name = divmod(int(keys[row]), len(run.names))
        site = run.sites[number]
        operations[site.file, site.line] = run.names[name]
    return operations


def _without_wrappers(stacks: Stacks, number: int, operations: Mapping[tuple[str, int], str]) -> tuple[Site, ...]:
    """The frames without our wrappers; where one was the innermost, the call that it recorded stands in its place."""
    frames = stacks.run.stack_frames[number]
    remaining = tuple(site for site in frames if code_owner(site.file, stacks.folders) != OURS)
    if not remaining or remaining[-1] is frames[-1] or PurePath(frames[-1].file).stem not in _RECORDING_CALLS:
        return remaining
    file, line = remaining[-1].file, remaining[-1].line
    name = operations.get((file, line))
    return (*remaining, Site(file, line, name)) if name else remaining


def _add(root: _Frame, frames: Iterable[Site], weight: int, position: float) -> None:
    root.weight += weight
    node = root
    for site in frames:
        node = node.children.setdefault((site.function, site.file), _Frame())
        node.weight += weight
        node.position += position
        node.lines[site] = node.lines.get(site, 0) + weight


def _children(node: _Frame, scale: float, min_weight: float) -> tuple[FlameNode, ...]:
    """The children of a node, the largest first."""
    ordered = sorted(node.children.items(), key=lambda item: (-item[1].weight, item[0]))
    return tuple(
        FlameNode(
            function or file,
            child.weight * scale,
            max(child.lines, key=lambda site: (child.lines[site], -site.line)),
            _children(child, scale, min_weight),
            child.position / child.weight,
        )
        for (function, file), child in ordered
        if child.weight >= min_weight
    )


def flame_difference(before: FlameNode, after: FlameNode) -> FlameDiff:
    """The union of both trees: a frame that one of them lacks counts 0 there.

    Frames are the same where name and file are the same along the path; lines may differ between versions. The roots
    are taken as the same whatever their names. Children come with the largest of either side first.
    """
    return FlameDiff(before.name, before.value, after.value, after.site or before.site, _pairs(before, after))


def _pairs(before: FlameNode | None, after: FlameNode | None) -> tuple[FlameDiff, ...]:
    sides = [
        {(child.name, child.site and child.site.file): child for child in (node.children if node else ())}
        for node in (before, after)
    ]
    pairs = []
    for key in sides[0] | sides[1]:
        old, new = (side.get(key) for side in sides)
        either = new or old
        assert either is not None
        old_s, new_s = (node.value if node else 0.0 for node in (old, new))
        pairs.append(FlameDiff(either.name, old_s, new_s, either.site, _pairs(old, new)))
    return tuple(sorted(pairs, key=lambda node: (-max(node.before, node.after), node.name)))
