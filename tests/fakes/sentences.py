"""Verdicts and warnings as the reports word them, for tests that read them."""

from __future__ import annotations

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison
from profiler.core.errors import Notice
from profiler.diagnose.run import diagnose_run
from profiler.report.notices import describe, mismatch
from profiler.report.verdict_text import run_statement


def verdict(analysis: Analysis) -> str:
    """The verdict of a run."""
    return run_statement(diagnose_run(analysis)).text


def method(comparison: Comparison) -> tuple[str, ...]:
    """The sentences about how a comparison was measured."""
    return tuple(map(describe, comparison.method))


def mismatches(comparison: Comparison) -> tuple[str, ...]:
    """Why sides are not comparable."""
    return tuple(map(mismatch, comparison.mismatches))


def note(text: str) -> Notice:
    """A notice with a sentence of its own."""
    return Notice("text", {"text": text})
