"""How many counted steps a measured step has."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse.sampling.operators import _parts
from profiler.run.model import Table
from profiler.run.source import dtype_of

MS = 1_000_000


def steps(*ends: int) -> Table:
    """Marked steps of 100 ms each, which end at these ms."""
    rows = np.zeros(len(ends), dtype_of("steps"))
    rows["end"] = np.array(ends) * MS
    rows["begin"] = rows["end"] - 100 * MS
    return rows


@pytest.mark.parametrize(
    ("window", "parts"),
    [
        ((10, 60), 10.0),  # five steps of an optimizer in 50 ms: ten of them take as long as a marked step
        ((10, 610), 1.0),  # marked steps ended meanwhile
        ((1, 99), 100 / 98 * 5),
        ((350, 1350), 1.0),  # counting took longer than steps do
        ((50, 50), 1.0),
    ],
)
def test_operators_of_an_optimizers_steps_are_those_of_a_part_of_a_marked_step(
    window: tuple[int, int], parts: float
) -> None:
    begin, end = (time * MS for time in window)
    assert _parts(steps(100, 200, 300), {"begin": begin, "end": end}) == pytest.approx(parts)
    assert _parts(steps(), {"begin": begin, "end": end}) == _parts(steps(100), {}) == 1.0
