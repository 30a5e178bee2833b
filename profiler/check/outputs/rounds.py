"""What is shown of one round: every side's step times, and the slow-down that the gate takes from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from statistics import median
from typing import Final

from profiler.check.model import Round, Throughput

OF_COLUMNS: Final = (
    "Steps: medians of the round, which decide nothing. Slow-down: of the typical step, from pairs of neighbouring "
    "turns, as the verdict takes it; not the ratio of the medians."
)


def step_times(one: Round) -> dict[str, list[float]]:
    """Seconds of every step, by side."""
    found: dict[str, list[float]] = {}
    for turn in one.blocks:
        found.setdefault(turn.side, []).extend(step / 1e9 for step in turn.steps)
    return found


def typical(one: Round, side: str) -> float | None:
    """Median step of one side in s; None: it took none."""
    times = step_times(one).get(side)
    return median(times) if times else None


def said_by_rounds(gate: Throughput) -> Iterator[tuple[Round, tuple[float | None, float | None]]]:
    """Every round with the gate's slow-down of its typical step: of the candidate, and of the control."""
    nothing: tuple[float | None, float | None] = (None, None)
    return zip(gate.rounds, chain(gate.round_slowdowns, repeat(nothing)), strict=False)
