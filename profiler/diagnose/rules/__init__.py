"""The interface of rules, one per file, each of which recognizes one cause of slowness.

There are none yet, and nothing calls them: `profiler.diagnose.run` finds the causes of a run, and
`profiler.report.verdict_text` words them.
"""

from __future__ import annotations

from typing import Protocol

from profiler.analyse.model import Analysis


class Rule(Protocol):
    """A rule."""

    name: str
    cause: str
    """One sentence that says what makes the program slow if this rule fires."""
    threshold: float
    """Share of a step's wall time that the cause must cost."""
    threshold_source: str
    """Where the threshold comes from."""
    fix: str
    """What removes the cause."""

    def evidence(self, analysis: Analysis) -> tuple[str, ...] | None:
        """Lines with numbers when the rule fires, () when it does not, None when it cannot judge this run."""
