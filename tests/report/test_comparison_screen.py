"""The first screen of a comparison: how much faster, why in plain words, how sure, and what to do now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler.analyse.model.comparison import Comparison, Ratio, Side
from profiler.analyse.model.device import HostState, IdleBlame, SiteOrigin, Timeline
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice
from profiler.report.blocks import FirstScreen, NotMeasured, StackedBars, Table, TimelineChart
from profiler.report.build import build_report
from profiler.report.render import html
from profiler.report.write import write_comparison
from profiler.run.model import Site
from tests.report import samples
from tests.report.test_build import all_blocks
from tests.report.variants import details

MAX_PAGE = 350_000
"""Bytes of the page of a comparison."""


def first(comparison: Comparison) -> FirstScreen:
    screen = build_report(comparison).first
    assert screen is not None
    return screen


def changed(comparison: Comparison, number: int, **measures: float | None) -> Comparison:
    """The comparison with other light measures of one side."""
    sides = list(comparison.sides)
    side = sides[number]
    new = {
        name: replace(side.measures.get(name, Measure(name, None, "1/step")), value=value, low=None, high=None)
        for name, value in measures.items()
    }
    sides[number] = replace(side, measures={**side.measures, **new})
    return replace(comparison, sides=tuple(sides))


def with_speed(value: float, low: float, high: float) -> Comparison:
    ratio = Ratio("tokens_per_s", value, low, high, 5, different=not low <= 1 <= high)
    comparison = samples.comparison()
    return replace(comparison, ratios={"fixed": {**comparison.ratios["fixed"], "tokens_per_s": ratio}})


def test_why_is_told_by_how_often_the_host_waits_for_each_token() -> None:
    comparison = changed(samples.comparison(), 0, tokens_per_s=20_000.0, steps_per_s=20_000 / 3000)
    comparison = changed(comparison, 1, tokens_per_s=1_000_000.0, steps_per_s=1_000_000 / 3000)
    assert first(comparison).why == (
        "as-found waits for the device twice for every token, and the device works 5.1% of the time.",
        "fixed waits once for 3,000 tokens, and the device works 88% of the time.",
    )


def test_without_tokens_it_is_told_by_step() -> None:
    comparison = samples.comparison()
    for number in (0, 1):
        comparison = changed(comparison, number, steps_per_s=None)
    why = first(comparison).why
    assert why[0].startswith("as-found waits for the device 6,000 times a step, ")
    assert why[1].startswith("fixed waits once a step, ")


def test_without_a_device_it_is_told_by_what_changed() -> None:
    comparison = replace(samples.comparison(), why=("The time of data fell from 9 ms to 2 ms a step.",))
    for number in (0, 1):
        comparison = changed(comparison, number, device_utilization=None)
    comparison = details(comparison, {"measures": {}}, {"measures": {}})
    assert first(comparison).why == ("The time of data fell from 9 ms to 2 ms a step.",)


@pytest.mark.parametrize(
    ("value", "low", "high", "headline", "interval"),
    [
        (59.87, 58.7, 61.2, "60× faster", "59 to 61× with 95% confidence, 5 pairs"),
        (1.234, 1.201, 1.262, "1.23× faster", "1.20 to 1.26× with 95% confidence, 5 pairs"),
        (0.5, 0.4, 0.625, "2.0× slower", "1.60 to 2.5× with 95% confidence, 5 pairs"),
        (1.01, 0.98, 1.04, "no difference seen", "0.980 to 1.04× with 95% confidence, 5 pairs"),
    ],
)
def test_the_headline_and_the_interval(value: float, low: float, high: float, headline: str, interval: str) -> None:
    screen = first(with_speed(value, low, high))
    assert screen.headline.highlight == headline
    assert screen.chips[0].text == interval


def test_other_load_is_a_chip_with_its_largest_share() -> None:
    warnings = (Notice("other-programs", {"used": 0.3, "cores": 2}), Notice("other-machines", {"share": 0.07}))
    comparison = details(samples.comparison(), {"warnings": warnings}, {})
    assert "shared machine: other programs took up to 15% of the CPU" in [chip.text for chip in first(comparison).chips]


def test_equal_losses_are_named_and_different_ones_are_not() -> None:
    comparison = samples.comparison()
    loss = {number: changed(comparison, number, loss=0.9) for number in (1,)}
    assert [chip.text for chip in first(comparison).chips if "same" in chip.text] == ["same loss: 0.984"]
    texts = [chip.text for chip in first(loss[1]).chips]
    assert not any(text.startswith("same loss") for text in texts)


def idle(line: int, function: str, share: float) -> IdleBlame:
    site = Site("/home/somebody/train.py", line, function)
    return IdleBlame(HostState.IN_CALL, "launch", SiteOrigin.ITSELF, "launch", site, share / 10, share, 10.0)


def test_idle_time_is_summed_by_function() -> None:
    rows = (idle(43, "loss", 0.2), idle(54, "decode", 0.15), idle(55, "decode", 0.12))
    comparison = details(samples.comparison(), {"idle": rows, "outcome": "device-idle"}, {})
    screen = first(comparison)
    assert [(round(place.share, 2), place.location) for place in screen.places] == [
        (0.27, "train.py:54-55 in decode()"),
        (0.2, "train.py:43 in loss()"),
    ]


def test_what_now_bounds_the_host_by_the_busy_device_and_keeps_the_gain() -> None:
    comparison = details(samples.comparison(), {}, {"outcome": "device-busy"})
    screen = first(comparison)
    assert [action.title for action in screen.actions] == ["Look at the kernels", "Keep fixed as fast as it is"]
    assert (
        "works 88% of the time. If it never waited for the host, steps would be at most 1.13× as fast"
        in screen.actions[0].text
    )


def test_intervals_of_counters_have_a_column_and_captions_tell_what_is_per_step() -> None:
    blocks = [block for section in build_report(samples.comparison()).sections for block in section.blocks]
    table = next(block for block in blocks if isinstance(block, Table) and block.caption == "Calls, bytes and times")
    assert [column.title for column in table.columns] == ["Measure", "as-found", "fixed", "Ratio", "95% interval"]
    (row,) = (row for row in table.rows if row[0].text == "Launches")
    assert (row[3].interval, row[4].text) == ("", "1/1,299 to 1/1,273")


def test_counters_of_the_key_numbers_are_not_told_again() -> None:
    report = build_report(samples.comparison())
    named: dict[str, list[str]] = {}
    for section in report.sections:
        for block in all_blocks(section.blocks):
            if isinstance(block, Table):
                for row in block.rows:
                    named.setdefault(row[0].text, []).append(section.key)
    for counter in ("Syncs per step", "H2D copies per step", "D2H copies per step", "Allocations per step"):
        assert len(named[counter]) == 1, named[counter]


def test_the_page_is_light_and_shows_the_timeline_once(tmp_path: Path) -> None:
    comparison = samples.comparison()
    assert isinstance(first(comparison).picture, TimelineChart)
    assert html.render(build_report(comparison)).count("data-timeline>") == 1
    assert write_comparison(comparison, tmp_path).stat().st_size <= MAX_PAGE


def without_timeline(side: Side) -> Side:
    assert side.detail is not None
    return replace(side, detail=replace(side.detail, timeline=Timeline(reason=Notice("no-queue"))))


def test_only_a_side_without_a_timeline_says_that_it_has_none() -> None:
    comparison = samples.comparison()
    slow, fast = comparison.sides

    def absent(*sides: Side) -> list[str]:
        sections = build_report(replace(comparison, sides=sides)).sections
        blocks = (block for section in sections for block in all_blocks(section.blocks))
        return [each.what for each in blocks if isinstance(each, NotMeasured) and each.what.startswith("timeline")]

    assert absent(slow, fast) == []
    assert absent(slow, without_timeline(fast)) == ["timeline of fixed"]


def test_shares_of_the_hosts_time_are_drawn_where_no_timeline_shows_them() -> None:
    comparison = samples.comparison()
    for sides, drawn in ((comparison.sides, 0), (tuple(map(without_timeline, comparison.sides)), 1)):
        sections = build_report(replace(comparison, sides=sides)).sections
        (blocks,) = (section.blocks for section in sections if section.key == "breakdown")
        assert sum(isinstance(block, StackedBars) for block in blocks) == drawn


@pytest.mark.parametrize(
    ("value", "low", "high", "kept"), [(1.2, 1.1, 1.3, True), (1.0, 0.9, 1.1, True), (0.5, 0.4, 0.6, False)]
)
def test_only_a_side_that_is_not_slower_is_kept(value: float, low: float, high: float, kept: bool) -> None:
    titles = [action.title for action in first(with_speed(value, low, high)).actions]
    assert titles
    assert ("Keep fixed as fast as it is" in titles) is kept


def test_sides_that_are_not_comparable_are_not_kept() -> None:
    assert not any(action.title.startswith("Keep") for action in first(samples.forced_comparison()).actions)
