"""Flame graphs of the host's stacks: one per side, and their difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from profiler.analyse.model import FlameDiff, FlameNode, Topic
from profiler.report.blocks import Block, Flame, Frame, NotMeasured, Section
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import percent, phrase

TITLE = "Flame graphs"
SMALLEST_SHARE = 0.001
"""Frames below this share of the root are left out: at 1,000 pixels they are less than one wide."""
MAX_DEPTH = 100
"""Frames below this depth are left out: no page shows them, and recursion must end."""
_NOTE = "Width is time, the caller is above. Choose a frame to zoom in."
Node = TypeVar("Node", FlameNode, FlameDiff)


def build(report_input: ReportInput) -> Section:
    """A graph for each side that has stacks, then the difference."""
    blocks: list[Block] = []
    for side in report_input.sides:
        root = side.detailed.flame
        if root is None or root.value <= 0:
            reason = side.why_missing(Topic.FLAME_GRAPH, otherwise="no stack samples were recorded")
            blocks.append(NotMeasured(f"flame graph of {side.label}", reason))
        else:
            caption = f"{side.label}: {phrase(root.value, 's')} per step, by stack samples"
            blocks.append(Flame(caption, _flame(root), note=_NOTE))
    comparison = report_input.comparison
    if comparison is not None and comparison.flame_diff is not None:
        blocks.append(_difference(report_input, comparison.flame_diff))
    return Section("flame", TITLE, tuple(blocks))


def _flame(root: FlameNode) -> Frame:
    def frame(node: FlameNode, children: tuple[Frame, ...]) -> Frame:
        text = f"{percent(node.value / root.value)}, {phrase(node.value, 's')}"
        return Frame(node.name, node.value, text, _location(node), children=children)

    return _frames(root, lambda node: node.value, frame)


def _difference(report_input: ReportInput, root: FlameDiff) -> Block:
    first, last = report_input.sides[0].label, report_input.sides[-1].label
    if root.before + root.after <= 0:
        return NotMeasured("difference of the flame graphs", "neither side has stack samples")

    def frame(node: FlameDiff, children: tuple[Frame, ...]) -> Frame:
        total = node.before + node.after
        text = f"{phrase(node.before, 's')} to {phrase(node.after, 's')}"
        lean = (node.after - node.before) / total if total > 0 else 0.0
        return Frame(node.name, total, text, _location(node), lean, children)

    note = (
        f"Width is the time of both sides together. Orange: more time in {last} than in {first}; blue: less; "
        "grey: the same. A frame that is fully one colour exists on one side only."
    )
    frames = _frames(root, lambda node: node.before + node.after, frame)
    return Flame(f"{first} to {last}: difference", frames, difference=True, note=note)


def _frames(root: Node, value: Callable[[Node], float], frame: Callable[[Node, tuple[Frame, ...]], Frame]) -> Frame:
    """The tree of frames, the widest children first, without those that are too narrow or too deep to be seen."""
    smallest = value(root) * SMALLEST_SHARE

    def convert(node: Node, depth: int) -> Frame:
        children = [child for child in node.children if value(child) >= smallest and depth < MAX_DEPTH]
        children.sort(key=lambda child: (-value(child), child.name))
        return frame(node, tuple(convert(child, depth + 1) for child in children))

    return convert(root, 0)


def _location(node: FlameNode | FlameDiff) -> str:
    return f"{node.site.file}:{node.site.line}" if node.site is not None else ""


PLUGIN = SectionPlugin("flame", TITLE, 80, build)
