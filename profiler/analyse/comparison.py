"""Compares two or more sides; the first is the baseline. `profiler.diagnose` adds the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from profiler.analyse.comparability import (
    SideRuns,
    compare_results,
    fact_mismatches,
    over_runs,
    ratios,
    result_mismatches,
    unstated_facts,
)
from profiler.analyse.figures import flame_difference
from profiler.analyse.model.comparison import ABSENT, GIT_COMMIT, WITHOUT_CORE, Comparison, Extension, Side
from profiler.analyse.model.measures import SAME_SIZE, Measure
from profiler.analyse.statistics import median
from profiler.analyse.timing.counters import counted_unit
from profiler.core.errors import Notice, ProfilerError
from profiler.core.facts import fact_rows, stated_device
from profiler.run.model import RunInfo

__all__ = ["SideRuns", "compare"]

Row = tuple[str, tuple[str, ...]]


def compare(
    sides: Sequence[SideRuns],
    *,
    anyway: bool = False,
    same_program: bool = False,
    floor: SideRuns | None = None,
    extensions: Mapping[str, Extension] | None = None,
    title: str = "",
    created_at: str = "",
    planned: int | None = None,
) -> Comparison:
    """Compare `sides` with the first of them.

    :param anyway: compare sides that are not comparable too; the result is marked as forced.
    :param same_program: the user did not name two programs: sides of different programs are not comparable.
    :param floor: runs of the least that the baseline's call pattern can cost.
    :param extensions: what was measured beside the sides in the same rounds, by name.
    :param planned: the rounds that were planned, if a signal stopped the recording.
    :raises ProfilerError: fewer than two sides.
    """
    if len(sides) < 2:
        raise ProfilerError("a comparison needs two sides or more")
    extensions = extensions or {}
    base, pairs = sides[0], min(len(side.light) for side in sides)
    results = compare_results(sides)
    mismatches = fact_mismatches(sides, same_program=same_program) or result_mismatches(results)
    infos = [(side.light[0] if side.light else side.detail) for side in sides]
    different, same = _environment([run.info for run in infos if run is not None])
    last = sides[-1]
    before = base.detail.flame if base.detail else None
    after = last.detail.flame if last.detail else None
    return Comparison(
        title=title or f"{' and '.join(side.label for side in sides[1:])} against {base.label}",
        created_at=created_at,
        sides=tuple(_side(side) for side in sides),
        ratios={side.label: ratios(base, side) for side in sides[1:]},
        pairs=pairs,
        planned=planned,
        comparable=not mismatches,
        mismatches=mismatches,
        forced=bool(mismatches) and anyway,
        verdict="",
        floor=_side(floor) if floor else None,
        differences=different,
        packages=_packages(sides),
        environment=same,
        method=(
            *_method(sides, pairs),
            *(Notice("text", {"text": text}) for one in extensions.values() for text in one.method_sentences()),
        ),
        flame_diff=flame_difference(before, after) if before and after else None,
        extensions=extensions,
        results=results,
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
    values = [value for run in side.light if (value := run.value("step_time"))]
    if detail.value is None or not values:
        return Measure(name, None, "x", reason=detail.reason or Notice("no-light-step"))
    # blocks of steps are without the waits for a core
    seconds = detail.value * (1 - (side.detail.value(WITHOUT_CORE) or 0.0) * bool(side.pairs))
    factors = [seconds / value for value in values]
    return Measure(name, seconds / median(values), "x", min(factors), max(factors), len(values), "steps")


def _environment(infos: Sequence[RunInfo]) -> tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]:
    """Return the name and value per side of what differs, and the name and value of what is the same on all sides."""
    tables = [_environment_rows(info) for info in infos]
    different, same = [], []
    for name in dict.fromkeys(name for table in tables for name in table):
        values = tuple(table.get(name, ABSENT) for table in tables)
        if len(set(values)) > 1:
            different.append((name, values))
        else:
            same.append((name, values[0]))
    return tuple(different), tuple(same)


def _packages(sides: Sequence[SideRuns]) -> tuple[Row, ...]:
    """Return the packages whose versions differ, by name."""
    names = sorted({name for side in sides for name in side.packages})
    rows = [(name, tuple(side.packages.get(name, ABSENT) for side in sides)) for name in names]
    return tuple(row for row in rows if len(set(row[1])) > 1)


def _environment_rows(info: RunInfo) -> dict[str, str]:
    rows = {"device": stated_device(info.facts, info.devices)}
    rows |= fact_rows(info.facts, skip=("device", "device_label"))
    rows |= fact_rows(info.host)
    rows |= {f"GPU {number}": str(device.get("name", "unnamed")) for number, device in enumerate(info.devices)}
    rows[GIT_COMMIT] = info.git_commit or ABSENT
    return rows | {f"{name} version": version for name, version in info.versions.items() if name not in info.facts}


def _method(sides: Sequence[SideRuns], pairs: int) -> Iterator[Notice]:
    yield Notice("pairs", {"pairs": pairs, "seconds": tuple((side.label, _median_seconds(side)) for side in sides)})
    if blocks := [notice for side in sides for notice in side.method]:
        yield from blocks
    else:
        yield from _order(sides, pairs)
        if pairs:
            yield Notice("ratio-interval", {"pairs": pairs})
    levels = sorted({run.info.level for side in sides for run in side.light})
    separate = sorted({side.detail.info.level for side in sides if side.detail and side.has_separate_detail})
    if levels:
        yield Notice("ratio-levels", {"levels": tuple(levels)})
    if separate:
        yield Notice("breakdown-pass", {"levels": tuple(separate)})
    yield from _step_sizes(sides)
    if not any(run.results for side in sides for run in side.light):
        yield Notice("no-results-stated")
    unstated = unstated_facts(sides)
    if unstated:
        yield Notice("unstated-facts", {"facts": unstated})


def _step_sizes(sides: Sequence[SideRuns]) -> Iterator[Notice]:
    """Tell where only rates can be compared, because steps of a side are larger or smaller."""
    base, before = sides[0], _step_size(sides[0])
    for side in sides[1:]:
        after = _step_size(side)
        if before and after and max(before, after) > SAME_SIZE * min(before, after):
            unit = counted_unit(side.light[0].info)
            values = {"side": side.label, "base": base.label, "ratio": after / before, "unit": unit}
            yield Notice("step-sizes", values)


def _step_size(side: SideRuns) -> float | None:
    """Tokens of a step, the median of its light runs."""
    rates = [(run.value("tokens_per_s"), run.value("steps_per_s")) for run in side.light]
    sizes = [tokens / steps for tokens, steps in rates if tokens and steps]
    return median(sizes) if sizes else None


def _median_seconds(side: SideRuns) -> float | None:
    """Length of the measured window, the median of its light runs."""
    windows = [(run.value("steps"), run.value("step_time")) for run in side.light]
    seconds = [steps * step for steps, step in windows if steps is not None and step is not None]
    return median(seconds) if seconds else None


def _order(sides: Sequence[SideRuns], pairs: int) -> Iterator[Notice]:
    """Tell whether each pair was over before the next began; nothing where starting times are unknown."""
    starts = [[side.light[number].info.started_at for side in sides] for number in range(pairs)]
    if pairs < 2 or any(not start for pair in starts for start in pair) or starts[0] == starts[-1]:
        return
    if any(max(before) > min(after) for before, after in pairwise(starts)):
        yield Notice("not-interleaved")
        return
    firsts = {pair.index(min(pair)) for pair in starts}
    yield Notice("interleaved", {"first": sides[firsts.pop()].label if len(firsts) == 1 else ""})
