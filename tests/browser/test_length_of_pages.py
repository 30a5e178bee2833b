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
MOST_SCREENS, MOST_OF_A_COMPARISON = 5.3, 6.5
"""Screens of a page with all of its groups opened; 0.2 above the longest one of November 2026."""
MOST_SHEETS = 4
"""Sheets of A4 of a page as it is opened, with its groups closed."""
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
        most = MOST_OF_A_COMPARISON if name in COMPARED else MOST_SCREENS
        assert opened <= most * height, f"{opened / height:.1f} screens"
        assert watched.overflow() <= 0
    with browsing.opened(chromium, path, width=width, height=height, groups=False) as watched:
        sheets = watched.page.pdf(format="A4").count(b"/Type /Page\n")
        assert 1 <= sheets <= MOST_SHEETS
        assert watched.complaints == []
