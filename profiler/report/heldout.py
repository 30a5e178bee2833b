"""Held-out loss and accuracy are what a run ended with: a mean over its evaluations is no result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from profiler.analyse.model import Analysis, Measure

HELD_OUT = ("heldout_loss", "heldout_accuracy")
"""Of text that the model does not train on."""


def last_measure(name: str, analyses: Iterable[Analysis]) -> Measure | None:
    """Median over the runs of the value that each ended with, with its range; None where no run has any."""
    values = [value for analysis in analyses if (value := _last(name, analysis)) is not None]
    if not values:
        return None
    low, high = (min(values), max(values)) if len(values) > 1 else (None, None)
    return Measure(name, median(values), "1", low, high, n=len(values))


def _last(name: str, analysis: Analysis) -> float | None:
    """What the program stated at its end, else the last of its evaluations."""
    stated = analysis.info.facts.get(name)
    if isinstance(stated, int | float) and math.isfinite(stated):
        return float(stated)
    ends = (one.values[-1] for one in analysis.series if one.name == name and one.values)
    return next(ends, None)
