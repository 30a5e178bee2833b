"""Opened pages stay short, and printed ones too: what a reader meets of real recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler import compare, read
from profiler.report.write import rendered
from tests.approval.cases import COMPARED, recording
from tests.browser import browsing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(browsing.executable() is None, reason=f"none of {', '.join(browsing.NAMES)} is on PATH"),
]
SCREEN = (1440, 900)
MOST_SCREENS = 5.0
"""Screens of a page with all of its groups opened."""
MOST_SHEETS = 4
"""Sheets of A4 of a page as it is opened, with its groups closed."""
PALE = """() => [...document.querySelectorAll('.seg, .lane, .swatch, .places i i, .then i, .fr, .bar')]
    .filter((node) => getComputedStyle(node).printColorAdjust !== 'exact').map((node) => node.className)"""
RUNS = ("detail-as-found", "evaluation", "ranks", "slow-input", "ssm-as-found")


def _page(name: str) -> str:
    if name in COMPARED:
        return rendered(compare({label: [recording(label)] for label in COMPARED[name]}, anyway=True), "html")
    return rendered(read(recording(name), timeline=True), "html")


@pytest.mark.parametrize("name", [*RUNS, "case-detail", "trainer-lm", "trainer-ssm", "input"])
def test_a_page_is_short_on_a_screen_and_on_paper(chromium: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(_page(name), encoding="utf-8")
    width, height = SCREEN
    with browsing.opened(chromium, path, width=width, height=height) as watched:
        opened = watched.page.evaluate("document.documentElement.scrollHeight")
        assert opened <= MOST_SCREENS * height, f"{opened / height:.2f} screens"
        assert watched.overflow() <= 0
    with browsing.opened(chromium, path, width=width, height=height, groups=False) as watched:
        sheets = watched.page.pdf(format="A4").count(b"/Type /Page\n")
        assert 1 <= sheets <= MOST_SHEETS
        watched.page.emulate_media(media="print")
        assert watched.page.evaluate(PALE) == [], "a printer leaves these colours out"
        assert watched.complaints == []
