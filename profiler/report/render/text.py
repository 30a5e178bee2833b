"""Drawing with characters: bars and curves, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from profiler.report.blocks import Cell, Flame, Frame
from profiler.report.quantities import digits

EIGHTHS = " ▏▎▍▌▋▊▉"
LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """`share` of `width` characters, to an eighth of one; never empty for what is there."""
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        return "#" * max(round(share * width), int(share > 0))
    whole, eighths = divmod(max(round(share * width * 8), int(share > 0)), 8)
    return "█" * whole + (EIGHTHS[eighths] if eighths else "")


def spark(values: Sequence[float], top: float, width: int = 40, *, unicode: bool = True) -> str:
    """A curve in one line, `top` being full height; means where there are more values than characters."""
    if not values:
        return ""
    count = min(width, len(values))
    bounds = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    marks = LEVELS if unicode else "_.-=*#"
    return "".join(
        marks[min(len(marks) - 1, max(0, int(mean / top * len(marks))))] if top else marks[0] for mean in means
    )


def tick(value: float) -> str:
    """A round number at an axis: 500, 20k, 1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def span_text(values: Sequence[float], unit: str) -> str:
    """The lowest and the highest of values with their unit; nothing where there are none."""
    if not values:
        return ""
    return f"{digits(min(values))} to {digits(max(values))}{'' if unit in {'', '%'} else ' '}{unit}"


def cell_text(cell: Cell, marks: dict[str, str] | None = None) -> str:
    """A cell in one line: value, unit; of what is missing its mark, or the reason where there are none."""
    if cell.missing:
        return f"not measured [{marks[cell.missing]}]" if marks else f"not measured: {cell.missing}"
    return cell.text + ("" if cell.unit in {"", "×", "%"} else " ") + cell.unit


def hottest(flame: Flame, most: int = 10) -> Iterable[tuple[Frame, float, str]]:
    """The frames that take most time themselves: frame, own share of the root, path from the root."""
    found: list[tuple[float, str, Frame]] = []
    open_frames: list[tuple[Frame, str]] = [(flame.root, flame.root.label)]
    while open_frames:
        frame, path = open_frames.pop()
        own = frame.value - sum(child.value for child in frame.children)
        found.append((own, path, frame))
        open_frames += [(child, f"{path} > {child.label}") for child in frame.children]
    found.sort(key=lambda one: (-one[0], one[1]))
    return [(frame, own / flame.root.value, path) for own, path, frame in found[:most] if own > 0]
