"""What a notebook shows of a run, an analysis and a comparison: the first screen of its report."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any

import profiler
from tests.report.pages import read

RUNS = Path(__file__).parents[1] / "approval" / "runs"


def page_in(shown: str) -> str:
    """The page in the frame."""
    begin = shown.index('srcdoc="') + len('srcdoc="')
    return unescape(shown[begin : shown.index('"', begin)])


def test_a_run_and_its_analysis_are_shown_as_the_same_first_screen() -> None:
    path = RUNS / "plain-standard.zip"
    run: Any = profiler.load(path)
    analysis: Any = profiler.read(path)
    shown = run._repr_html_()
    assert shown == analysis._repr_html_()
    page = read(page_in(shown))
    assert page.unclosed == []
    assert "plain.py:20" in page.text
    assert page.tags.count("h1") == 1
    assert "details" not in page.tags, "the sections are left to the report"


def test_a_comparison_is_shown_too() -> None:
    paths = {"a": [RUNS / "plain-light.zip"], "b": [RUNS / "plain-standard.zip"]}
    comparison: Any = profiler.compare(paths, anyway=True)
    assert "<h1" in page_in(comparison._repr_html_())
