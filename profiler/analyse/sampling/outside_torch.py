"""Finds which lines hardly call any operator of torch, by the operators that were counted in a few steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.model import OperatorLine
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.window import Window
from profiler.run.model import Site
from profiler.run.tables import COUNTED_LINES, OPERATORS

_MOST_OPERATORS: Final = 1 / 6
"""Most of a line's time in small operators, as they were counted, with which the rest of the line counts. A choice:
they take up to three times as long beside other programs, and less than half of the line must be theirs even then."""
_MORE_ROUNDS: Final = 10
"""Times as much as was counted that a larger operator may take in other steps, such as one in a loop whose rounds were
few when they were counted. A choice."""
_MOST_LONGER: Final = 1.25
"""Times as long as the median step that the steps of a line's samples may be. Work that costs a tenth of all time in
every 6th step, the first that may lie outside of the counted ones, makes that step 1.6 times as long as others."""
_Numbers = npt.NDArray[Any]


class OutsideTorch:
    """Tells the lines that call hardly any operator. Operators are counted in a few steps, so a line that only rare,
    longer steps reach may call any. An operator of no line may be at each of them."""

    def __init__(self, stacks: Stacks, window: Window, operators: Collection[OperatorLine]) -> None:
        self._is_known = any(row.site for row in operators)
        if not self._is_known:
            return
        self._stacks = stacks
        rows, self._weight = stacks.weighted_samples(window)
        self._stack = rows["stack"]
        self._length = window.wall[window.step_rows(rows["begin"])]
        self._usual = _weighted_median(self._length, self._weight)
        self._seconds: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._elsewhere = 0.0
        for row in operators:
            if row.is_backward:
                continue
            if row.site:
                seconds = row.small_seconds + _MORE_ROUNDS * (row.seconds - row.small_seconds)
                self._seconds[row.site.file, row.site.line] += seconds
            elif not row.caller:
                self._elsewhere += row.seconds
        if len(stacks.run.info.facts[OPERATORS]["lines"]) >= COUNTED_LINES:  # not all lines are kept
            self._elsewhere += min(row.seconds for row in operators)

    def has(self, site: Site, numbers: Collection[int], seconds: float) -> bool:
        """Whether the line calls hardly any operator; False where that is not known.

        :param numbers: of the line's stacks.
        :param seconds: what the line takes per step.
        """
        if not self._is_known:
            return False
        place = self._stacks.relative(site)
        called = self._seconds.get((place.file, place.line), 0.0) + self._elsewhere
        return called <= _MOST_OPERATORS * seconds and not self.are_longer(numbers)

    def are_longer(self, numbers: Collection[int]) -> bool:
        """Whether the median step of these stacks is longer than that of all samples, or not known."""
        chosen = np.isin(self._stack, list(numbers))
        if not self._weight[chosen].any():
            return True
        return _weighted_median(self._length[chosen], self._weight[chosen]) > _MOST_LONGER * self._usual


def _weighted_median(values: _Numbers, weight: _Numbers) -> float:
    order = np.argsort(values)
    sums = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])
