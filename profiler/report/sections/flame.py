"""Flame graphs of the host's stacks: one for each side, and their difference."""

from __future__ import annotations

from profiler.analyse.model import Comparison, FlameDiff, FlameNode, Topic
from profiler.report.blocks import Block, Flame, Frame, NotMeasured, Section
from profiler.report.build import SectionPlugin
from profiler.report.quantities import percent, phrase
from profiler.report.subject import Subject, View, views
from profiler.run.model import Site

TITLE = "Flame graphs"
SMALLEST_SHARE = 0.001
"""Frames below this share of the root are left out: at 1,000 pixels they are less than one wide."""
DEEPEST = 100
"""Frames below this depth are left out: no page shows them, and recursion could be without end."""
_READ = "Width is time, the caller is above. Choose a frame to zoom in."


def build(subject: Subject) -> Section:
    """A graph for each side that has stacks, then the difference."""
    blocks: list[Block] = []
    for view in views(subject):
        root = view.any_detail.flame
        if root is None or root.value <= 0:
            blocks.append(NotMeasured(f"flame graph of {view.label}", _reason(view)))
        else:
            blocks.append(
                Flame(
                    f"{view.label}: {phrase(root.value, 's')} a step, by stack samples",
                    _frame(root, root.value),
                    note=_READ,
                )
            )
    if isinstance(subject, Comparison) and subject.flame_diff is not None:
        blocks.append(_difference(subject, subject.flame_diff))
    return Section("flame", TITLE, tuple(blocks))


def _reason(view: View) -> str:
    if view.detail is None:
        return "no breakdown pass was made of this side"
    return view.why(Topic.FLAME_GRAPH, otherwise="no stack samples were recorded")


def _where(site: Site | None) -> str:
    return f"{site.file}:{site.line}" if site is not None else ""


def _frame(node: FlameNode, whole: float, depth: int = 0) -> Frame:
    below = sorted(
        (child for child in node.children if child.value >= whole * SMALLEST_SHARE and depth < DEEPEST),
        key=lambda child: (-child.value, child.name),
    )
    return Frame(
        node.name,
        node.value,
        f"{percent(node.value / whole)}, {phrase(node.value, 's')}",
        _where(node.site),
        children=tuple(_frame(child, whole, depth + 1) for child in below),
    )


def _difference(subject: Comparison, root: FlameDiff) -> Block:
    first, last = subject.sides[0].label, subject.sides[-1].label
    whole = root.before + root.after
    if whole <= 0:
        return NotMeasured("difference of the flame graphs", "neither side has stack samples")
    note = (
        f"Width is the time of both sides together. Orange: more time in {last} than in {first}; blue: less; "
        "grey: the same. A frame that is fully one colour exists on one side only."
    )
    return Flame(f"{first} to {last}: difference", _diff_frame(root, whole), difference=True, note=note)


def _diff_frame(node: FlameDiff, whole: float, depth: int = 0) -> Frame:
    both = node.before + node.after
    below = sorted(
        (c for c in node.children if c.before + c.after >= whole * SMALLEST_SHARE and depth < DEEPEST),
        key=lambda child: (-(child.before + child.after), child.name),
    )
    return Frame(
        node.name,
        both,
        f"{phrase(node.before, 's')} to {phrase(node.after, 's')}",
        _where(node.site),
        lean=(node.after - node.before) / both if both > 0 else 0.0,
        children=tuple(_diff_frame(child, whole, depth + 1) for child in below),
    )


PLUGIN = SectionPlugin("flame", TITLE, 80, build)
