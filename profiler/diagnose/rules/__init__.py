"""One rule a file, found as plug-ins: each knows one cause of slowness, when it applies, and the cure.

There is none yet; a rule is a module here with one `PLUGIN` that follows `Rule`.
"""

from __future__ import annotations

from typing import Protocol

from profiler.analyse.model import Analysis


class Rule(Protocol):
    """What a rule states."""

    name: str
    cause: str
    """In one sentence: what makes the program slow where this rule fires."""
    threshold: float
    """Share of a step's wall time that the cause must cost."""
    threshold_source: str
    """Where the threshold comes from."""
    fix: str
    """What cures it."""

    def evidence(self, analysis: Analysis) -> tuple[str, ...] | None:
        """Lines with numbers when the rule fires, () when it does not, None when it cannot judge this run."""
