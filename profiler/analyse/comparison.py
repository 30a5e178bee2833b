"""Two or more sides of a comparison as one value; the first side is the baseline. The verdict is added elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiler.analyse.comparable import find_mismatches
from profiler.analyse.environment import environment
from profiler.analyse.flamediff import flame_difference
from profiler.analyse.method import method
from profiler.analyse.model import Comparison, Extension, FlameDiff, Measure, Side
from profiler.analyse.ratios import SideRuns, over_runs, ratios
from profiler.analyse.stats import median
from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice

__all__ = ["SideRuns", "compare"]


def compare(
    sides: Sequence[SideRuns],
    *,
    anyway: bool = False,
    same_program: bool = False,
    floor: SideRuns | None = None,
    extensions: Mapping[str, Extension] | None = None,
    title: str = "",
    created_at: str = "",
) -> Comparison:
    """Hold `sides` against the first of them.

    :param anyway: compare sides that are not comparable too; the result is marked as forced.
    :param same_program: nobody said that the sides are two programs: where they are, they are not comparable.
    :param floor: runs of the least that the baseline's call pattern can cost.
    :param extensions: what was measured beside the sides in the same rounds, by name.
    :raises ProfilerError: fewer than two sides.
    """
    if len(sides) < 2:
        raise ProfilerError("a comparison needs two sides or more")
    extensions = extensions or {}
    base, pairs = sides[0], min(len(side.light) for side in sides)
    mismatches = find_mismatches(sides, same_program=same_program)
    infos = [(side.light[0] if side.light else side.detail) for side in sides]
    different, same = environment([run.info for run in infos if run is not None])
    return Comparison(
        title=title or f"{' and '.join(side.label for side in sides[1:])} against {base.label}",
        created_at=created_at,
        sides=tuple(_side(side) for side in sides),
        ratios={side.label: ratios(base, side) for side in sides[1:]},
        pairs=pairs,
        comparable=not mismatches,
        mismatches=mismatches,
        forced=bool(mismatches) and anyway,
        verdict="",
        floor=_side(floor) if floor else None,
        differences=different,
        environment=same,
        method=(
            *method(sides, pairs),
            *(Notice("text", {"text": text}) for one in extensions.values() for text in one.method_sentences()),
        ),
        flame_diff=_flame_diff(base, sides[-1]),
        extensions=extensions,
    )


def _side(side: SideRuns) -> Side:
    return Side(
        label=side.label,
        command=side.command,
        runs=side.light,
        detail=side.detail,
        measures=over_runs(side),
        recording_slowdown=_slowdown(side),
    )


def _slowdown(side: SideRuns) -> Measure:
    """Step time of the breakdown pass over the median of the light runs; the range is over the light runs."""
    name = "recording_slowdown"
    if side.detail is None:
        return Measure(name, None, "x", reason=Notice("no-breakdown-pass"))
    if not side.has_separate_detail:
        return Measure(name, None, "x", reason=Notice("no-separate-breakdown-pass"))
    detail = side.detail.measures["step_time"]
    light = [run.measures["step_time"].value for run in side.light]
    known = [value for value in light if value]
    if detail.value is None or not known:
        return Measure(name, None, "x", reason=detail.reason or Notice("no-light-step"))
    over = [detail.value / value for value in known]
    return Measure(name, detail.value / median(known), "x", min(over), max(over), len(known), "step time")


def _flame_diff(base: SideRuns, last: SideRuns) -> FlameDiff | None:
    before = base.detail.flame if base.detail else None
    after = last.detail.flame if last.detail else None
    return flame_difference(before, after) if before and after else None
