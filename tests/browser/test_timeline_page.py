"""The timeline of a page: complete without scripts; with them it zooms, and names the part that is pointed at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.report.write import write_comparison
from tests.browser import browsing
from tests.report import samples

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browsing.executable() is None, reason=f"none of {', '.join(browsing.NAMES)} is on PATH"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_comparison(samples.comparison(), tmp_path_factory.mktemp("report"))


def last_time(page: Any) -> str:
    """The text of the last tick."""
    text: str = page.locator(".times span").last.inner_text()
    return text


@pytest.mark.parametrize("script", [True, False])
def test_every_lane_is_drawn_with_and_without_scripts(chromium: Any, report: Path, script: bool) -> None:
    with browsing.opened(chromium, report, script=script) as watched:
        page = watched.page
        lanes = page.locator(".lane svg")
        assert lanes.count() == 4
        for number in range(4):
            assert lanes.nth(number).locator("path").count() >= 1
        assert page.locator(".times span").count() >= 3
        page.locator(".timeline .hint").wait_for(state="visible" if script else "hidden")
        label = page.locator(".lanes").get_attribute("aria-label")
        assert "as-found, host: " in label
        assert watched.complaints == []


def test_dragging_zooms_and_escape_shows_all(chromium: Any, report: Path) -> None:
    with browsing.opened(chromium, report) as watched:
        page = watched.page
        page.locator(".timeline .hint").wait_for()
        lane = page.locator(".lane").first
        lane.scroll_into_view_if_needed()
        box = lane.bounding_box()
        before, whole = last_time(page), page.locator(".lane svg").nth(1).inner_html()
        y = box["y"] + 5
        page.mouse.move(box["x"] + 100, y)
        page.mouse.down()
        page.mouse.move(box["x"] + 160, y, steps=4)
        page.mouse.up()
        assert page.locator(".lane svg").nth(1).inner_html() != whole
        assert last_time(page) != before
        page.locator(".lanes").focus()
        page.keyboard.press("Escape")
        assert (last_time(page), page.locator(".lane svg").nth(1).inner_html()) == (before, whole)
        assert watched.complaints == []


def test_pointing_names_the_call_its_line_and_its_time_as_text(chromium: Any, report: Path) -> None:
    with browsing.opened(chromium, report) as watched:
        page = watched.page
        page.locator(".timeline .hint").wait_for()
        lane = page.locator(".lane").nth(2)
        lane.scroll_into_view_if_needed()
        box = lane.bounding_box()
        page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 5)
        tip = page.locator(".tip")
        assert "launch at as_found.py:88 (learn_chunk)" in tip.inner_text()
        assert tip.inner_text().endswith(("µs", "ms"))
        page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 5)
        assert samples.HOSTILE in tip.inner_text()
        assert watched.complaints == []


def test_the_keyboard_reaches_every_lane_and_part(chromium: Any, report: Path) -> None:
    with browsing.opened(chromium, report) as watched:
        page = watched.page
        page.locator(".timeline .hint").wait_for()
        page.locator(".lanes").focus()
        output = page.locator(".timeline output")
        page.keyboard.press("ArrowRight")
        first = output.inner_text()
        page.keyboard.press("ArrowRight")
        second = output.inner_text()
        assert "" not in (first, second)
        assert first != second
        page.keyboard.press("ArrowDown")
        assert output.inner_text() != second
        before = last_time(page)
        page.keyboard.press("+")
        assert last_time(page) != before
        page.keyboard.press("-")
        assert last_time(page) == before
        assert watched.complaints == []
