"""How a comparison was measured, sentence by sentence, from what was recorded and not from what was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from profiler.analyse.comparable import unstated
from profiler.analyse.model import Analysis
from profiler.analyse.ratios import SideRuns
from profiler.analyse.stats import median
from profiler.analyse.throughput import unit_of
from profiler.core.notice import Notice

_SAME_SIZE: Final = 1.1
"""Steps of which one has up to so many times the other's tokens count as alike."""


def method(sides: Sequence[SideRuns], pairs: int) -> tuple[Notice, ...]:
    """Pairs and their order, time measured, how ratios are made, what the runs were recorded with."""
    return tuple(_sentences(sides, pairs))


def _sentences(sides: Sequence[SideRuns], pairs: int) -> Iterator[Notice]:
    yield Notice("pairs", {"pairs": pairs, "seconds": tuple((side.label, _measured(side)) for side in sides)})
    yield from _order(sides, pairs)
    if pairs:
        yield Notice("ratio-interval", {"pairs": pairs})
    levels = sorted({run.info.level for side in sides for run in side.light})
    separate = sorted({side.detail.info.level for side in sides if side.detail and side.has_separate_detail})
    if levels:
        yield Notice("ratio-levels", {"levels": tuple(levels)})
    if separate:
        yield Notice("breakdown-pass", {"levels": tuple(separate)})
    yield from _sizes(sides)
    unknown = unstated(sides)
    if unknown:
        yield Notice("unstated-facts", {"facts": unknown})


def _sizes(sides: Sequence[SideRuns]) -> Iterator[Notice]:
    """That steps of a side are larger or smaller: only rates can then be compared."""
    base, *others = sides
    before = _size(base)
    for side in others:
        after = _size(side)
        if before and after and max(before, after) > _SAME_SIZE * min(before, after):
            unit = unit_of(side.light[0].info)
            values = {"side": side.label, "base": base.label, "ratio": after / before, "unit": unit}
            yield Notice("step-sizes", values)


def _size(side: SideRuns) -> float | None:
    """Tokens of a step, the median of its light runs."""
    pairs = [[run.measures.get(name) for name in ("tokens_per_s", "steps_per_s")] for run in side.light]
    known = [rate.value / steps.value for rate, steps in pairs if rate and steps and rate.value and steps.value]
    return median(known) if known else None


def _measured(side: SideRuns) -> float | None:
    found = [value for run in side.light if (value := measured_seconds(run)) is not None]
    return median(found) if found else None


def measured_seconds(run: Analysis) -> float | None:
    """Length of the measured window."""
    steps, step_time = run.measures.get("steps"), run.measures.get("step_time")
    if steps is None or step_time is None or steps.value is None or step_time.value is None:
        return None
    return steps.value * step_time.value


def _order(sides: Sequence[SideRuns], pairs: int) -> Iterator[Notice]:
    """Whether each pair was over before the next began; silent where there are no starting times to tell."""
    starts = [[side.light[number].info.started_at for side in sides] for number in range(pairs)]
    if pairs < 2 or any(not start for pair in starts for start in pair) or starts[0] == starts[-1]:
        return
    if any(max(before) > min(after) for before, after in pairwise(starts)):
        yield Notice("not-interleaved")
        return
    firsts = {pair.index(min(pair)) for pair in starts}
    yield Notice("interleaved", {"first": sides[firsts.pop()].label if len(firsts) == 1 else ""})
