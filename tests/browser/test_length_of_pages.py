"""Opened pages stay short, and printed ones too: what a reader meets of real recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler import compare, read
from profiler.analyse.comparison import SideRuns
from profiler.analyse.comparison import compare as compare_sides
from profiler.analyse.model.comparison import Comparison
from profiler.commands.compare import PAIR
from profiler.diagnose.comparison import diagnose_comparison
from profiler.report.comparison_text import with_comparison_verdict
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
MOST_SCREENS_OF_COMPARE = 4.5
"""Of the recorded trainer at its smallest size: at its usual size, it has long steps, a slope chart of functions and
more lines too, which take 0.4 screens."""
MOST_SHEETS = 4
"""Sheets of A4 of a page as it is opened, with its groups closed."""
PALE = """() => [...document.querySelectorAll('.seg, .lane, .swatch, .places i i, .then i, .fr, .bar')]
    .filter((node) => getComputedStyle(node).printColorAdjust !== 'exact').map((node) => node.className)"""
RUNS = ("detail-as-found", "evaluation", "ranks", "slow-input", "ssm-as-found")


def _bundled_trainer() -> Comparison:
    """What `compare` measures of the bundled trainer, of runs recorded by it: as many pairs as it records, a breakdown
    pass of each side, and runs that stand for those of the floor."""
    rounds = ("01", "02", "01", "02", "01")
    assert len(rounds) == PAIR
    runs = {label: tuple(read(recording(f"{number}-{label}")) for number in rounds) for label in ("as-found", "fixed")}
    details = {label: read(recording(f"detail-{label}"), timeline=True) for label in runs}
    sides = {label: SideRuns(label, label, light, details[label]) for label, light in runs.items()}
    floor = SideRuns("floor", "", runs["as-found"], None)
    return compare_sides(tuple(sides.values()), floor=floor)


def _page(name: str) -> str:
    if name == "compare":
        comparison = _bundled_trainer()
        comparison = with_comparison_verdict(comparison, diagnose_comparison(comparison))
        assert comparison.comparable
        page = rendered(comparison, "html")
        assert all(f'id="{section}"' in page for section in ("findings", "idle", "flame", "hot"))
        return page
    if name in COMPARED:
        return rendered(compare({label: [recording(label)] for label in COMPARED[name]}, anyway=True), "html")
    return rendered(read(recording(name), timeline=True), "html")


@pytest.mark.parametrize("name", [*RUNS, "compare", "case-detail", "trainer-lm", "trainer-ssm", "input"])
def test_a_page_is_short_on_a_screen_and_on_paper(chromium: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(_page(name), encoding="utf-8")
    width, height = SCREEN
    with browsing.opened(chromium, path, width=width, height=height) as watched:
        opened = watched.page.evaluate("document.documentElement.scrollHeight")
        most = MOST_SCREENS_OF_COMPARE if name == "compare" else MOST_SCREENS
        assert opened <= most * height, f"{opened / height:.2f} screens"
        assert watched.overflow() <= 0
    with browsing.opened(chromium, path, width=width, height=height, groups=False) as watched:
        sheets = watched.page.pdf(format="A4").count(b"/Type /Page\n")
        assert 1 <= sheets <= MOST_SHEETS
        watched.page.emulate_media(media="print")
        assert watched.page.evaluate(PALE) == [], "a printer leaves these colours out"
        assert watched.complaints == []
