"""The history as people read it, in the cases that the approved `check-made-up-history` does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.outputs.history import Entry, History, history_report, write_page
from profiler.report.render import markdown
from tests.check.outputs import results
from tests.report import pages


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ((), "No check is in it yet."),
        (results.history().entries[:1], "No level changed."),
        ((Entry("t", "INCONCLUSIVE"),), "Nothing was measured."),
    ],
)
def test_a_short_history(entries: tuple[Entry, ...], words: str) -> None:
    assert words in markdown.render(history_report(History("h", entries)))


def test_the_page_draws_each_series_that_varies_with_its_levels(tmp_path: Path) -> None:
    path = write_page(results.history(), tmp_path)
    assert path == tmp_path / "history.html"
    page = pages.read(path.read_text(encoding="utf-8"))
    assert page.unclosed == []
    assert "All series that vary, with the levels between their changes" in page.text
    charts = [each for each in page.tags if each == "svg"]
    assert len(charts) >= 2, "syncs and the step time"
    assert "Syncs" in page.text


def test_a_page_of_no_results_has_no_chart(tmp_path: Path) -> None:
    page = pages.read(write_page(History("h", ()), tmp_path).read_text(encoding="utf-8"))
    assert "No check is in it yet." in page.text
    assert "All series" not in page.text
