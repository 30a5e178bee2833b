"""Plots: colours by CSS variable, unique ids, no prologue, labels as text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

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


@pytest.mark.parametrize("log", [True, False])
def test_svg_takes_its_colours_from_the_page(log: bool) -> None:
    svg = figures.intervals(interval_plot(log=log), "p1")
    ET.fromstring(svg)
    assert "var(--s1)" in svg
    assert "#0a0b" not in svg
    assert "font-family" not in svg
    assert not any(word in svg for word in ("<style", "<metadata", "<!", "<?xml", "http:"))


def test_ids_carry_the_name_of_the_plot() -> None:
    first, second = (figures.lines(line_plot(), name) for name in ("p1", "p2"))
    ids = [[e.get("id") for e in ET.fromstring(svg).iter() if e.get("id")] for svg in (*first, *second)]
    flat = [one for several in ids for one in several]
    assert len(flat) == len(set(flat))


def test_panels_share_their_axes() -> None:
    one, two = figures.lines(line_plot(), "p")
    ticks = [[e.text for e in ET.fromstring(svg).iter() if e.tag.endswith("text")] for svg in (one, two)]
    assert ticks[0] == ticks[1]


@pytest.mark.parametrize("label", [HOSTILE, HOSTILE_TEXT, "$\\frac{", ""])
def test_labels_stay_text(label: str) -> None:
    svg = figures.intervals(interval_plot(label), "p")
    root = ET.fromstring(svg)
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert "1.05M" in "".join(root.itertext())


def test_equal_and_empty_values_draw() -> None:
    same = IntervalChart("x", "x", (Interval("a", "s1", (1.0, 1.0), 1.0, 1.0, 1.0, "1"),))
    ET.fromstring(figures.intervals(same, "p"))
    flat = Lines("x", "s", "cores", (Panel("p", (Curve("a", "s9", (0.0,), (0.0,)),)), Panel("q", ())))
    assert len(figures.lines(flat, "p")) == 2


def test_panels_with_axes_of_their_own() -> None:
    both = line_plot().panels
    panels = (replace(both[0], y_label="nats"), replace(both[1], y_label="%"))
    plots = [Lines("x", "s", "", panels, separate_x=flag, separate_y=flag) for flag in (False, True)]
    shared, own = (figures.lines(plot, "p") for plot in plots)
    ticks = [[e.text for e in ET.fromstring(svg).iter() if e.tag.endswith("text")] for svg in own]
    assert ticks[0] != ticks[1]
    assert ("nats" in ticks[0], "%" in ticks[1]) == (True, True)
    assert own[0] != shared[0], "one panel reaches 1 and the other 50"


def test_levels_are_named_and_lie_within_the_axis() -> None:
    curve = Curve("loss", "floor", (0.0, 9.0), (5.0, 2.0))
    panel = Panel("p", (curve,), (Level("ln V", 5.545, "5.55"), Level(HOSTILE, 1.0, "1.00")))
    svg = figures.lines(Lines("loss", "steps", "nats", (panel,)), "p")[0]
    text = "".join(ET.fromstring(svg).itertext())
    assert "ln V 5.55" in text
    assert HOSTILE in text
    assert panel.highest() == 5.545


def test_single_measurements_are_dots_with_their_range() -> None:
    plain = Curve("a", "s1", (1.0, 2.0), (3.0, 4.0))
    dotted = replace(plain, low=(2.5, 3.5), high=(3.5, 4.5))
    drawings = [figures.lines(Lines("x", "n", "ms", (Panel("", (curve,)),)), "p")[0] for curve in (plain, dotted)]
    uses = [sum(e.tag.endswith("use") for e in ET.fromstring(svg).iter()) for svg in drawings]
    assert uses[1] >= uses[0] + 2
    assert (plain.highest(), dotted.highest()) == (4.0, 4.5)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_numbered_things_have_no_0_and_no_halves(count: int) -> None:
    numbers = tuple(float(number) for number in range(1, count + 1))
    ones = (1.0,) * count
    curve = Curve("a", "s1", numbers, ones, ones, ones)
    plot = Lines("x", "round", "ms", (Panel("", (curve,)),), y_max=0.5, numbered=True)
    texts = [e.text or "" for e in ET.fromstring(figures.lines(plot, "p")[0]).iter() if e.tag.endswith("text")]
    ticks = texts[: next(at for at, text in enumerate(texts) if text == "round")]
    assert ticks
    assert all(text.isdecimal() and 0 < int(text) <= max(2, count) for text in ticks), ticks


def test_levels_across_intervals_are_named_and_always_on_the_axis() -> None:
    rows = (Interval("a", "s2", (1.0, 1.1), 1.05, 1.0, 1.1, "1.05"),)
    levels = (Level("no change:", 0.0, "0%"), Level(HOSTILE, 50.0, "50%"))
    plain, drawn = (
        ET.fromstring(figures.intervals(IntervalChart("x", "%", rows, levels=some), "p")) for some in ((), levels)
    )
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert "no change: 0%" in texts
    assert f"{HOSTILE} 50%" in texts
    assert "40" in texts, "the axis reaches to both"
    heights = [float(root.get("viewBox", "").split()[3]) for root in (plain, drawn)]
    assert heights[1] > heights[0], heights
    ticks = [[e.text for e in plain.iter() if e.tag.endswith("text")], texts]
    assert "40" not in ticks[0]
