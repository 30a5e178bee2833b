"""Waterfalls: places on the logarithmic axis, ticks, bars of characters, and every renderer's drawing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiler.report.blocks import Report, Section, Stair, Waterfall
from profiler.report.render import html
from profiler.report.render.drawing import waterfall_layout as layout
from profiler.report.render.drawing import waterfall_track as track
from tests.report.pages import read
from tests.report.render.test_text_renderers import printed
from tests.report.samples import HOSTILE

STAIRS = (
    Stair("as-found", None, 1e4, 0.9e4, 1.1e4, "10k tokens/s", "runs 9k to 11k", "start"),
    Stair("+ a", 1e4, 1e5, 0.9e5, 1.1e5, "10.0×", "9.00 to 11.0", "gain"),
    Stair("+ b", 1e5, 1e5, 0.9e5, 1.1e5, "1.00×", "0.900 to 1.10", "same", conclusion="no difference seen"),
    Stair("+ c", None, None, None, None, "not measured", "it failed", "unknown"),
    Stair("+ d", 1e5, 0.5e5, 0.4e5, 0.6e5, "0.500×", "0.400 to 0.600", "loss", note="with b"),
    Stair("fixed", 1e4, 0.5e5, 0.4e5, 0.6e5, "5.00×", "4.00 to 6.00", "total"),
)


def fall(*only: Stair) -> Waterfall:
    return Waterfall("speed", "tokens/s", only or STAIRS, "a note")


def report(block: Waterfall) -> Report:
    return Report("t", "s", (Section("k", "Title", (block,)),))


def test_equal_factors_have_equal_lengths() -> None:
    rows = layout(fall()).rows
    up, down = rows[1], rows[4]
    assert up.left == rows[0].end
    assert up.right == up.end
    assert (down.left, down.right) == (down.end, rows[2].end), "a bar begins at the lower of its levels"
    assert (up.right - up.left) / (down.right - down.left) == pytest.approx(3.3219, rel=1e-3)  # log 10 / log 2
    assert all(0 < place < 1 for row in rows for place in (row.low, row.end, row.high) if place is not None)
    assert (rows[3].end, rows[3].left, rows[3].low) == (None, None, None)


def test_ticks_are_round_and_lie_on_the_axis() -> None:
    drawn = layout(fall())
    assert [text for _, text in drawn.ticks] == ["10k", "20k", "50k", "100k"]
    assert drawn.ticks[0][0] == pytest.approx(drawn.rows[0].end)
    decades = layout(fall(Stair("x", 1.0, 1e6, None, None, "", "", "gain"))).ticks
    assert [text for _, text in decades][:3] == ["1", "10", "100"]
    few = layout(fall(Stair("x", 2e4, 2e6, None, None, "", "", "gain"))).ticks
    assert [text for _, text in few] == ["100k", "1M"], "labels of 20k, 50k, 200k, ... have no room beside them"


@pytest.mark.parametrize("level", [41_300.0, 1e-3, 7.0])
def test_noise_about_one_level_does_not_fill_the_axis(level: float) -> None:
    drawn = layout(fall(Stair("x", None, level, 0.99 * level, 1.01 * level, "", "", "start")))
    assert drawn.rows[0].high - drawn.rows[0].low < 0.25
    assert len(drawn.ticks) >= 2


def test_a_range_too_wide_for_the_axis_is_cut_and_open() -> None:
    wide = fall(*STAIRS[:2], Stair("+ e", 1e4, 1e5, 1.0, 1.1e5, "10.0×", "", "same"))
    row = layout(wide).rows[2]
    assert (row.low, row.low_open, row.high_open) == (0.0, True, False)
    assert 0.6 < row.right - row.left < 1, "the steps keep most of the axis"
    drawn = [html.render(report(block)).partition("</style>")[2] for block in (wide, fall())]
    assert ["on-left" in text for text in drawn] == [True, False]


def test_nothing_known_draws_nothing() -> None:
    block = fall(STAIRS[3])
    assert layout(block).ticks == ()
    assert "not measured" in printed(report(block), 80)
    assert read(html.render(report(block))).unclosed == []


def test_the_legend_explains_what_is_there() -> None:
    assert fall().legend() == (("faster", "gain"), ("slower", "loss"), ("no difference seen", "same"))
    assert fall(*STAIRS[:2]).legend() == ()


def test_bars_of_characters() -> None:
    rows = layout(fall()).rows
    assert track(rows[0], 20).strip("─ ") == "◆"
    assert re.fullmatch(r" +█+─* *", track(rows[1], 20))
    assert "░" in track(rows[2], 20)
    assert track(rows[3], 20) == " " * 20
    assert set(track(rows[4], 20, unicode=False)) <= set(" x-")
    assert all(len(track(row, width)) == width for row in rows for width in (8, 20, 61))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_terminal_climbs_and_fits(width: int) -> None:
    lines = printed(report(fall()), width, page=None).splitlines()
    assert max(map(len, lines)) <= width
    named = [line for line in lines if line.startswith(("fixed", "+ ", "as-found"))]
    assert [line.split("  ")[0] for line in named] == ["fixed", "+ d", "+ c", "+ b", "+ a", "as-found"]
    assert "10.0×" in named[4]
    assert ("no difference seen" in named[3], "0.900 to 1.10" in named[3]) == (width >= 80, width >= 100)
    assert "10.0x" in printed(report(fall()), width, encoding="ascii")


def test_the_page_tells_it_in_words_too_and_names_stay_text() -> None:
    hostile = replace(STAIRS[1], label=HOSTILE, note=HOSTILE)
    page = read(html.render(report(fall(*STAIRS, hostile))))
    assert page.unclosed == []
    assert page.tags.count("script") == 1
    label = next(value for tag, name, value in page.attributes if (tag, name) == ("figure", "aria-label"))
    assert label.startswith("speed: as-found 10k tokens/s (runs 9k to 11k), + a 10.0× (9.00 to 11.0), + b 1.00×")
    assert HOSTILE in label
    assert page.text.index("fixed") < page.text.index("as-found"), "as-found is at the bottom"
