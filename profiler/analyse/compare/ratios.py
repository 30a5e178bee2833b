"""Means of a side over its runs, and ratios of a side over the baseline from interleaved pairs of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

import numpy as np

from profiler.analyse.model import MAX_WITHOUT_CORE, WAITS_FOR_CORE, WITHOUT_CORE, Analysis, Measure, Ratio
from profiler.analyse.statistics import mean_interval, median
from profiler.core.metrics import RATES
from profiler.core.notice import Notice

ONE_PAIR = Notice("one-pair")
BOUNDED: Final = (*RATES, "step_time")
OF_WALL_TIME: Final = (
    *BOUNDED, "step_time_p50", "step_time_p95", "steps", "host_cpu", "children_cpu", "device_cpu", "device_utilization",
)  # fmt: skip
"""Measures that change where the program waits for a core, and those of them of which a bound is known even then."""
_LEAST_WITH_CORE: Final = 1e-9
"""Keeps the logarithm of a share of time finite."""


@dataclass(frozen=True, slots=True)
class SideRuns:
    """One side of a comparison as it was recorded."""

    label: str
    command: str
    light: tuple[Analysis, ...]
    """Pair i of a ratio is run i of this side over run i of the baseline."""
    detail: Analysis | None
    """The breakdown pass."""
    again: tuple[Analysis, ...] = ()
    """A second run in each round; ratios are of the geometric mean of both."""

    @property
    def has_separate_detail(self) -> bool:
        """Whether the breakdown pass is a separate run, not one that ratios come from too."""
        return self.detail is not None and all(self.detail is not run for run in self.light)


def over_runs(side: SideRuns) -> Mapping[str, Measure]:
    """Every measure over the light runs that have it, second ones too: the geometric mean, so that values of two sides
    have the quotient that their ratio is, with the lowest and the highest. Of values without a logarithm the median."""
    return {name: _over_runs(name, side) for name in _names(side)}


def _over_runs(name: str, side: SideRuns) -> Measure:
    measures = [run.measures[name] for run in (*side.light, *side.again) if name in run.measures]
    measured = [measure for measure in measures if measure.value is not None]
    if not measured:
        return replace(measures[0], n=0)
    values = [measure.value for measure in measured if measure.value is not None]
    low, high = min(values), max(values)
    value = median(values) if low <= 0 or low == high else math.exp(fmean(map(math.log, values)))
    return replace(measured[0], value=value, low=low, high=high, n=len(values))


def ratios(base: SideRuns, side: SideRuns) -> Mapping[str, Ratio]:
    """Ratio of every measure that both sides have."""
    other = _names(side)
    return {name: paired_ratio(name, base, side) for name in _names(base) if name in other and name != WITHOUT_CORE}


def paired_ratio(name: str, base: SideRuns, side: SideRuns) -> Ratio:
    """Geometric mean of side over base, over pairs of runs, with the 95% t interval of its logarithm.

    A ratio over zero, or of zero, has no logarithm: it is None with the reason, never infinite.
    """
    pairs = list(zip(_values(base, name), _values(side, name), strict=False))
    measured = [(before, after) for before, after in pairs if before is not None and after is not None]
    reason = _no_ratio(name, base, side, measured)
    if reason:
        return Ratio(name, None, None, None, len(measured), different=False, reason=reason)
    if name in OF_WALL_TIME and (waits := core_waits(base, side)):
        bound = _bound(name, base, side) if name in BOUNDED else None
        different = bound is not None
        return Ratio(name, None, None, None, len(measured), different, Notice(WAITS_FOR_CORE, waits), bound)
    if len({*measured}) == 1 and len(measured) > 1:  # counted exactly alike in every pair: no spread, and no rounding
        exact = measured[0][1] / measured[0][0]
        return Ratio(name, exact, exact, exact, len(measured), different=exact != 1)
    mean, low, high = mean_interval(np.log([after / before for before, after in measured]))
    if low is None or high is None:
        return Ratio(name, math.exp(mean), None, None, 1, different=False, reason=ONE_PAIR)
    return Ratio(name, math.exp(mean), math.exp(low), math.exp(high), len(measured), different=not low <= 0 <= high)


def core_waits(base: SideRuns, side: SideRuns) -> dict[str, Any] | None:
    """The side that waited for a core for the larger share of its time, and that share; None: neither did for long."""
    known = [(each, [wait for wait in _values(each, WITHOUT_CORE) if wait is not None]) for each in (base, side)]
    shares = [(fmean(waits), each.label) for each, waits in known if waits]
    share, label = max(shares, default=(0.0, ""))
    return {"side": label, "share": share} if share > MAX_WITHOUT_CORE else None


def _bound(name: str, base: SideRuns, side: SideRuns) -> float | None:
    """What the ratio of speeds, or of times, is beyond if no side waits for a core; None: that is not known.

    All waits of the faster side stay in its time, and those of the slower side are taken out of its own. So each pair
    gives a ratio that is too near to 1, and the end of their interval that is nearer to 1 is the bound.
    """
    pairs = list(zip(*(_values(each, what) for what in (name, WITHOUT_CORE) for each in (base, side)), strict=False))
    measured = [(math.log(after / before), *waits) for before, after, *waits in pairs if before and after]
    direction = math.copysign(1, fmean(ratio for ratio, *_ in measured))
    slower = 1 if (direction > 0) is (name in RATES) else 2
    with_core = [max(1 - (pair[slower] or 0.0), _LEAST_WITH_CORE) for pair in measured]
    logs = [direction * pair[0] + math.log(share) for pair, share in zip(measured, with_core, strict=True)]
    mean, low, _ = mean_interval(logs)
    nearest = mean if low is None else low
    return math.exp(direction * nearest) if nearest > 0 else None


def _no_ratio(name: str, base: SideRuns, side: SideRuns, pairs: Sequence[tuple[float, float]]) -> Notice | None:
    if not pairs:
        for runs in (base, side):
            reason = next((run.measures[name].reason for run in runs.light if name in run.measures), None)
            if reason:
                return Notice("not-measured-in", {"side": runs.label, "reason": reason})
        return Notice("not-measured-in-pairs")
    for number, runs in enumerate((base, side)):
        if any(pair[number] == 0 for pair in pairs):
            return Notice("zero", {"side": runs.label})
        if any(pair[number] < 0 or not math.isfinite(pair[number]) for pair in pairs):
            return Notice("not-positive", {"side": runs.label})
    return None


def _names(side: SideRuns) -> dict[str, None]:
    return dict.fromkeys(name for run in side.light for name in run.measures)


def _values(side: SideRuns, name: str) -> list[float | None]:
    """One value for each round: where there is a second run of it, the geometric mean."""
    first = [run.value(name) for run in side.light]
    if not side.again:
        return first
    return [_mean(*both) for both in zip(first, (run.value(name) for run in side.again), strict=False)]


def _mean(first: float | None, second: float | None) -> float | None:
    """Geometric mean; where one value is missing the other one, and where one has no logarithm that one."""
    if first is None or second is None:
        return second if first is None else first
    if first == second or min(first, second) <= 0:
        return min(first, second)
    return math.sqrt(first) * math.sqrt(second)
