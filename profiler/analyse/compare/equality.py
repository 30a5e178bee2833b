"""Compares the results that the runs of all sides state (`profiler.result`) with those of the first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.compare.ratios import SideRuns
from profiler.analyse.model import Analysis, ResultComparison, ResultDifference
from profiler.run.model import StatedResult
from profiler.run.tables import result_positions

_Stated = Mapping[str, list[StatedResult]]
_EXACT: Final = float(1 << 53)
"""Integers from here on have no exact floating-point number."""


def compare_results(sides: Sequence[SideRuns]) -> tuple[ResultComparison, ...]:
    """One comparison for each name under which some run states results; empty where no run states any.

    Every run is compared with the first one that states results of that name.
    """
    runs = [(side.label, _by_name(run)) for side in sides for run in _runs(side)]
    names = dict.fromkeys(name for _, stated in runs for name in stated)
    return tuple(_compare_name(name, [side.label for side in sides], runs) for name in names)


def _runs(side: SideRuns) -> tuple[Analysis, ...]:
    detail = (side.detail,) if side.detail is not None and side.has_separate_detail else ()
    return (*side.light, *side.again, *detail)


def _by_name(run: Analysis) -> _Stated:
    stated: dict[str, list[StatedResult]] = {}
    for result in run.results:
        stated.setdefault(result.name, []).append(result)
    return stated


def _compare_name(name: str, labels: Sequence[str], runs: Sequence[tuple[str, _Stated]]) -> ResultComparison:
    stating = [(label, stated[name]) for label, stated in runs if name in stated]
    (_, reference), *others = stating
    counts = [_compare_runs(reference, stated) for _, stated in others]
    differences = [
        (label, difference) for (label, _), (*_, difference) in zip(others, counts, strict=True) if difference
    ]
    worst = max(differences, key=lambda each: each[1].different, default=None)
    silent = {label for label, stated in runs if name not in stated}
    speaking = {label for label, stated in runs if name in stated}
    return ResultComparison(
        name,
        runs=len(others),
        compared=min((compared for compared, *_ in counts), default=0),
        stated=max(sum(result.count for result in stated) for _, stated in stating),
        near_ties=max((ties for _, ties, _ in counts), default=0),
        missing=tuple(label for label in labels if label in silent),
        never=tuple(label for label in labels if label not in speaking),
        side="" if worst is None else worst[0],
        difference=None if worst is None else worst[1],
    )


def _compare_runs(
    reference: Sequence[StatedResult], other: Sequence[StatedResult]
) -> tuple[int, int, ResultDifference | None]:
    """Compare as many calls as both runs have: the number of values, of near ties, and what differs."""
    compared = ties = different = 0
    first: dict[str, Any] | None = None
    calls = list(zip(reference, other, strict=False))
    for number, (before, after) in enumerate(calls, 1):
        if before.count != after.count:
            different += max(before.count, after.count)
            compared += max(before.count, after.count)
            first = first or {"call": number, "position": 0, "counts": (before.count, after.count)}
            continue
        is_different, is_tie = _compare_values(before, after)
        compared += len(before.values)
        ties += int(np.sum(is_tie))
        different += int(np.sum(is_different))
        if is_different.any() and first is None:
            index = int(np.argmax(is_different))
            values = before.values[index], after.values[index]
            places = result_positions(before.count, has_margins=bool(before.margins))
            first = {"call": number, "position": places[index], "values": values}
        elif _differs_elsewhere(before, after) and not is_different.any():
            different += 1
            first = first or {"call": number, "position": 0}
    return compared, ties, ResultDifference(different, compared, calls=len(calls), **first) if first else None


def _compare_values(before: StatedResult, after: StatedResult) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which values differ, and which may differ because the two largest scores were nearly equal."""
    rtol, atol = max(before.rtol, after.rtol), max(before.atol, after.atol)
    old, new = (np.array(result.values, np.float64) for result in (before, after))
    if not (before.integer and after.integer):
        with np.errstate(invalid="ignore"):
            close = np.abs(new - old) <= atol + rtol * np.maximum(np.abs(old), np.abs(new))
        same = (close & np.isfinite(old) & np.isfinite(new)) | (old == new) | (np.isnan(old) & np.isnan(new))
        return ~same, np.zeros(len(old), np.bool_)
    unequal = old != new
    if max(np.abs(old).max(), np.abs(new).max()) >= _EXACT:
        unequal = np.array([one != other for one, other in zip(before.values, after.values, strict=True)])
    gaps = [np.array(result.margins) for result in (before, after) if result.margins]
    if not gaps:
        return unequal, np.zeros(len(old), np.bool_)
    may_differ = np.max(gaps, axis=0) <= atol
    return unequal & ~may_differ, unequal & may_differ


def _differs_elsewhere(before: StatedResult, after: StatedResult) -> bool:
    """Whether integers differ of which not all are stored; of other numbers the checksum shows rounding too."""
    is_exact = before.integer and after.integer and not (before.margins or after.margins)
    return is_exact and len(before.values) < before.count and before.checksum != after.checksum
