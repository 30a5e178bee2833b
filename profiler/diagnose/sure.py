"""Decides when enough of a running program has been recorded to tell why it is slow."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding

_STEPS: Final = 20
"""Measured steps from which an answer may be sure. A choice."""
_FEW_STEPS, _LONG_S = 3, 10.0
"""Measured steps from which it may be sure of a program whose steps are long, and their seconds. A choice."""
_WIDEST: Final = 0.2
"""Width of the interval of the first finding's share, at most. A choice: the text shows wider ones as intervals."""


def leading(analysis: Analysis) -> Finding | None:
    """Return the finding that an answer begins with."""
    return next((each for each in analysis.findings if each.is_told), next(iter(analysis.findings), None))


def open_question(analysis: Analysis, before: Analysis | None) -> str:
    """Say what is still uncertain about why a program is slow; empty: nothing that more steps would tell.

    :param before: the analysis of the same run at an earlier time.
    """
    steps = round(analysis.value("steps") or 0.0)
    length = steps * (analysis.value("step_time") or 0.0)
    if steps < _FEW_STEPS or (steps < _STEPS and length < _LONG_S):
        return "the number of steps is small"
    first, last = leading(analysis), leading(before) if before else None
    if first is None:
        return "no cause stands out"
    if first.confidence is Confidence.LOW or (first.high or 0.0) - (first.low or 0.0) > _WIDEST:
        return "the share of the first cause is not certain"
    if last is None or (last.rule.name, last.sites[:1]) != (first.rule.name, first.sites[:1]):
        return "the first cause may change"
    return ""
