"""Plots: colours by classes of the page, labels as text, axes of round numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from profiler.report.blocks import Curve, Interval, IntervalChart, Level, Lines, Panel
from profiler.report.render import figures
from tests.report.samples import HOSTILE, HOSTILE_TEXT


def interval_plot(label: str = "fixed", *, log: bool = False) -> IntervalChart:
    rows = (
        Interval("as-found", "s1", (20e3, 21e3, 20.5e3), 20.5e3, 20e3, 21e3, "20.5k"),
        Interval(label, "s2", (1.0e6, 1.1e6), 1.05e6, None, None, "1.05M"),
    )
    return IntervalChart("runs", "tokens/s", rows, log=log, reference=1.0)


def line_plot() -> Lines:
    panels = tuple(
        Panel(name, (Curve("a", "s1", (0.0, 1.0, 2.0), (0.0, 1.0, scale)), Curve("b", "s2", (0.0, 2.0), (1.0, 1.0))))
        for name, scale in (("one", 1.0), ("two", 50.0))
    )
    return Lines("use", "seconds", "cores", panels)


def single(curve: Curve, *levels: Level, **options: object) -> str:
    """The plot of one curve."""
    (svg,) = figures.lines(Lines("x", "round", "ms", (Panel("", (curve,), levels),), **options))  # type: ignore[arg-type]
    return svg


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


@pytest.mark.parametrize("log", [True, False])
def test_svg_takes_its_colours_from_the_page(log: bool) -> None:
    svg = figures.intervals(interval_plot(log=log))
    classes = {name for element in ET.fromstring(svg).iter() for name in element.get("class", "").split()}
    assert {"s1", "s2", "spread", "point", "rule"} <= classes
    assert not any(word in svg for word in ("style", "font", "fill", "stroke", " id="))


def test_shapes_lie_within_the_picture() -> None:
    for svg in (*figures.lines(line_plot()), figures.intervals(interval_plot(log=True))):
        root = ET.fromstring(svg)
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for element in root:
            for name, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
                assert 0 <= float(element.get(name, "0")) <= most, ET.tostring(element)


def test_curves_stay_in_the_plot_and_names_of_levels_apart() -> None:
    levels = [Level(name, value, "") for name, value in (("a", 3.3), ("b", 5.5), ("c", 3.2), ("d", 3.1))]
    svg = single(Curve("busy", "s1", (0.0, 1.0, 2.0), (5.0, 60.0, 5.0)), *levels, y_max=6.0)
    named = [(e.text or "", float(e.get("y", "0"))) for e in ET.fromstring(svg) if e.get("class") == "end ink"]
    heights = [height for _, height in named]
    assert [text.strip() for text, _ in named] == ["b", "a", "c", "d"], "from the top"
    assert all(below - above >= 12 for above, below in pairwise(heights))
    paths = {element.get("class"): element.get("d", "") for element in ET.fromstring(svg)}
    _, rise, fall = (float(word) for word in paths["curve s1"].replace("M", "").replace("l", " ").split()[1::2])
    assert rise == -fall, "the value beyond the axis is drawn at its end"
    assert -rise < 20


def test_a_level_stretch_is_one_step() -> None:
    curve = Curve("memory", "s1", tuple(map(float, range(5))), (1.0, 1.0, 1.0, 2.0, 2.0))
    paths = {element.get("class"): element.get("d", "") for element in ET.fromstring(single(curve))}
    assert len(paths["curve s1"].split("l")[1].split()) == 2 * 3


def test_ticks_are_round_and_few() -> None:
    assert figures.round_ticks(0.0, 1.07, 4) == [0.0, 0.5, 1.0]
    assert figures.round_ticks(0.9, 2.3, 6, least=1.0) == [1.0, 2.0]
    assert figures.round_ticks(47.5, 52.3, 6) == [48.0, 49.0, 50.0, 51.0, 52.0]


@pytest.mark.parametrize("label", [HOSTILE, HOSTILE_TEXT, "$\\frac{", ""])
def test_labels_stay_text(label: str) -> None:
    root = ET.fromstring(figures.intervals(interval_plot(label)))
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert "1.05M" in "".join(root.itertext())


def test_equal_and_empty_values_draw() -> None:
    same = IntervalChart("x", "x", (Interval("a", "s1", (1.0, 1.0), 1.0, 1.0, 1.0, "1"),))
    ET.fromstring(figures.intervals(same))
    flat = Lines("x", "s", "cores", (Panel("p", (Curve("a", "s9", (0.0,), (0.0,)),)), Panel("q", ())))
    assert len(figures.lines(flat)) == 2


def test_panels_share_their_axes_unless_they_have_their_own() -> None:
    plot = line_plot()
    panels = tuple(replace(panel, y_label=label) for panel, label in zip(plot.panels, ("nats", "%"), strict=True))
    shared = [texts(svg) for svg in figures.lines(plot)]
    own = [texts(svg) for svg in figures.lines(replace(plot, panels=panels, separate_x=True, separate_y=True))]
    assert shared[0] == shared[1]
    assert own[0] != own[1]
    assert ("nats" in own[0], "%" in own[1], "40" in shared[0], "40" in own[0]) == (True, True, True, False)


def test_levels_are_named_and_lie_within_the_axis() -> None:
    curve, levels = Curve("loss", "floor", (0.0, 9.0), (5.0, 2.0)), (Level("ln V", 5.5, "5.5"), Level(HOSTILE, 1, "1"))
    assert {"ln V 5.5", f"{HOSTILE} 1"} <= set(texts(single(curve, *levels)))
    assert Panel("p", (curve,), levels).highest() == 5.5


def test_single_measurements_are_dots_with_their_range() -> None:
    plain = Curve("a", "s1", (1.0, 2.0), (3.0, 4.0))
    dotted = replace(plain, low=(2.5, 3.5), high=(3.5, 4.5))
    uses = [single(curve).count("<circle") for curve in (plain, dotted)]
    assert uses == [0, 2]
    assert (plain.highest(), dotted.highest()) == (4.0, 4.5)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_numbered_things_have_no_0_and_no_halves(count: int) -> None:
    numbers, ones = tuple(float(number) for number in range(1, count + 1)), (1.0,) * count
    labels = texts(single(Curve("a", "s1", numbers, ones, ones, ones), y_max=0.5, numbered=True))
    ticks = labels[: labels.index("round")]
    assert ticks
    assert all(text.isdecimal() and 0 < int(text) <= max(2, count) for text in ticks), ticks


def test_levels_across_intervals_are_named_and_always_on_the_axis() -> None:
    rows = (Interval("a", "s2", (1.0, 1.1), 1.05, 1.0, 1.1, "1.05"),)
    levels = (Level("no change:", 0.0, "0%"), Level(HOSTILE, 50.0, "50%"))
    plain, drawn = (figures.intervals(IntervalChart("x", "%", rows, levels=some)) for some in ((), levels))
    assert {"no change: 0%", f"{HOSTILE} 50%", "40"} <= set(texts(drawn)), "the axis reaches to both"
    assert "40" not in texts(plain)
    heights = [float(ET.fromstring(svg).get("viewBox", "").split()[3]) for svg in (plain, drawn)]
    assert heights[1] > heights[0], heights
