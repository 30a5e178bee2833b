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
from profiler.core.units import ratio, seconds

_SAME_SIZE: Final = 1.1
"""Steps of which one has up to so many times the other's tokens count as alike."""


def method(sides: Sequence[SideRuns], pairs: int) -> tuple[str, ...]:
    """Pairs and their order, time measured, how ratios are made, what the runs were recorded with."""
    return tuple(_sentences(sides, pairs))


def _sentences(sides: Sequence[SideRuns], pairs: int) -> Iterator[str]:
    times = ", ".join(f"{side.label} {_measured(side)}" for side in sides)
    yield f"{pairs} pair{'s' * (pairs != 1)} of runs; measured time of a run, warm-up not counted: {times}."
    yield from _order(sides, pairs)
    if pairs > 1:
        yield (
            "A ratio is the geometric mean over the pairs; its 95% interval is Student's t over the logarithms of the "
            f"pairs' ratios ({pairs - 1} degrees of freedom)."
        )
    elif pairs == 1:
        yield "With one pair a ratio has no interval: whether it is more than chance is not known."
    levels = sorted({run.info.level for side in sides for run in side.light})
    separate = sorted({side.detail.info.level for side in sides if side.detail and side.has_separate_detail})
    if levels:
        yield f"Ratios come from runs at level {' and '.join(levels)}."
    if separate:
        yield (
            "Breakdown, blame and flame graphs come from one more run of each side at level "
            f"{' and '.join(separate)}; its times enter no ratio."
        )
    yield from _sizes(sides)
    unknown = unstated(sides)
    if unknown:
        yield f"The programs do not state {', '.join(unknown)}: that the sides are alike in this was not checked."


def _sizes(sides: Sequence[SideRuns]) -> Iterator[str]:
    """That steps of a side are larger or smaller: only rates can then be compared."""
    base, *others = sides
    before = _size(base)
    for side in others:
        after = _size(side)
        if before and after and max(before, after) > _SAME_SIZE * min(before, after):
            unit = unit_of(side.light[0].info)
            yield (
                f"A step of {side.label} has {ratio(after / before)} the {unit} of a step of {base.label}: figures per "
                f"step are of steps of different sizes, {unit} a second are not."
            )


def _size(side: SideRuns) -> float | None:
    """Tokens of a step, the median of its light runs."""
    pairs = [[run.measures.get(name) for name in ("tokens_per_s", "steps_per_s")] for run in side.light]
    known = [rate.value / steps.value for rate, steps in pairs if rate and steps and rate.value and steps.value]
    return median(known) if known else None


def _measured(side: SideRuns) -> str:
    found = [value for run in side.light if (value := measured_seconds(run)) is not None]
    return seconds(median(found)) if found else "none"


def measured_seconds(run: Analysis) -> float | None:
    """Length of the measured window."""
    steps, step_time = run.measures.get("steps"), run.measures.get("step_time")
    if steps is None or step_time is None or steps.value is None or step_time.value is None:
        return None
    return steps.value * step_time.value


def _order(sides: Sequence[SideRuns], pairs: int) -> Iterator[str]:
    """Whether each pair was over before the next began; silent where there are no starting times to tell."""
    starts = [[side.light[number].info.started_at for side in sides] for number in range(pairs)]
    if pairs < 2 or any(not start for pair in starts for start in pair) or starts[0] == starts[-1]:
        return
    if any(max(before) > min(after) for before, after in pairwise(starts)):
        yield "The runs were not interleaved: a slow change of the machine can look like a difference of the sides."
        return
    firsts = {pair.index(min(pair)) for pair in starts}
    turns = "the sides take turns in going first" if len(firsts) > 1 else f"{sides[firsts.pop()].label} always first"
    yield f"The runs were interleaved, pair after pair; within a pair {turns}."
