"""The layout of a flame graph: rectangles in shares of the width, for whoever draws them."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.report.blocks import Frame

MOST_FRAMES = 900
"""Frames of one graph; about 200 bytes each in a page, so that three graphs stay far below 2 MB."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One frame: `left` and `width` are shares of the root, `depth` counts from the root at 0."""

    frame: Frame
    depth: int
    left: float
    width: float
    parent: int
    """Index of the caller's rectangle; -1 for the root."""


def layout(root: Frame, most: int = MOST_FRAMES) -> tuple[Rectangle, ...]:
    """Rectangles of the widest frames, callers before callees, top down.

    Breadth first by width, not recursive: a stack as deep as it likes, and what is left out is the narrowest.
    """
    if root.value <= 0:
        return ()
    placed = [Rectangle(root, 0, 0.0, 1.0, -1)]
    open_frames = [0]
    while open_frames:
        level = []
        for index in open_frames:
            at = placed[index]
            left = at.left
            for child in at.frame.children:
                width = child.value / root.value
                level.append(Rectangle(child, at.depth + 1, left, width, index))
                left += width
        level.sort(key=lambda rectangle: -rectangle.width)
        kept = sorted(level[: max(0, most - len(placed))], key=lambda rectangle: rectangle.left)
        open_frames = list(range(len(placed), len(placed) + len(kept)))
        placed += kept
    return tuple(placed)


def depth(rectangles: tuple[Rectangle, ...]) -> int:
    """How many rows the graph has."""
    return max((rectangle.depth for rectangle in rectangles), default=-1) + 1
