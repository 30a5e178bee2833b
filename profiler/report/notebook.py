"""Shows runs, analyses and comparisons in notebooks: the first screen of their report, in a frame of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from profiler.analyse.model import RunCounts
    from profiler.report.model import Results

_HEIGHT: Final = 760
"""CSS pixels of the frame where scripts are off or its content is hidden; a longer screen then scrolls within it."""
_FIT: Final = f"this.style.height = (this.contentDocument.documentElement.scrollHeight || {_HEIGHT}) + 'px'"
"""Gives the frame the height of its content, which is 0 while an inactive tab hides it. Notebooks leave the script out
until they are trusted."""


def first_screen_html(results: Results | RunCounts) -> str:
    """The first screen as HTML for a notebook. A frame keeps the styles of the page and of the notebook apart."""
    from profiler.report.build import build_report
    from profiler.report.render import html

    page = html.render(replace(build_report(results), sections=()))
    style = f"width: 100%; height: {_HEIGHT}px; border: 0"
    title = "First screen of the report"
    return f'<iframe srcdoc="{escape(page)}" style="{style}" onload="{_FIT}" title="{title}"></iframe>'


def show_in_notebooks(cls: type, results: Callable[[Any], Results | RunCounts] = lambda value: value) -> None:
    """Give the values of a class the method by which notebooks show them.

    :param results: makes what a report is about of such a value.
    """
    cls._repr_html_ = lambda self: first_screen_html(results(self))  # type: ignore[attr-defined]
