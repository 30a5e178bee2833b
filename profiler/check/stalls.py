"""Stalls too rare and too long for the line of all steps, in which none counts more than a part of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler.check.chance import of_mean
from profiler.check.sequential import Edges

RARE: Final = 0.005
"""Two-sided: there are few of them, so that it is less strict than other oddities."""


def rare_stalls(beyond: Sequence[float], at: Edges) -> float | None:
    """How much longer still the candidate takes where stalls count in full; None: not more than by chance, or little.

    :param beyond: of each round, log ratio of the sums less that of all steps with capped stalls.
    """
    more, odd = of_mean(beyond)
    return more if odd < RARE and more > at.fails else None
