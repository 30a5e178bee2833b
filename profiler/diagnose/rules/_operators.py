"""Tells what calling small operators costs, by the line of the user's code that calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.model import LineCost, OperatorLine
from profiler.diagnose.model import MOST, NAMED
from profiler.diagnose.rule import NOTHING, Cost, StepCosts, line_cost, spread, whole_cost
from profiler.run.model import Site

CALLING: Final = ("compute", "framework", "python")
"""Categories of the time in which a line calls operators: torch reads the arguments of each while it holds the GIL."""
_MOST_CALL_S: Final = 5e-6
"""Most seconds around an operator that its call is taken to need; what a line takes beyond is other work. A call takes
0.5 to 1.3 µs in the traps of tests/clinic (Xeon), some 2 µs on an AMD EPYC."""
_MOST_GRADIENT_S: Final = 10e-6
"""The same around a gradient function: the engine finds it, adds up gradients and frees them. With the function itself
this takes 7.6 µs in a loop of small operators (tests/clinic, trap_trainer, on a Xeon), 5 to 10 µs on an AMD EPYC."""
_NEARLY_ALL: Final = 0.9
"""Share of a line's operators, or gradient functions, from which the small ones are those of a loop. A choice: 9 of 10.
In a hand-written LSTM, one of a loop's 192 operators took 1.5 ms, and the others took 0.8 ms together."""
_MOST_SLOWER: Final = 2.0
"""Most times as long as when they were counted that operators are taken to be on average. They were counted in a few
steps, each at its shortest. Computing beyond that is not theirs: samples tell it from Python at a line only roughly."""


def small_operators(costs: StepCosts) -> dict[Site, dict[str, Cost]]:
    """For each line that calls small operators, what these take, by category: their own time, and the time around all
    operators by their number. Where operators are of no line, as with very many, all lines with computing divide them.
    """
    rows = called_by_program(costs)
    backward = costs.phase("backward")
    in_backward = backward.site.place if backward and backward.site else None
    places: dict[object, list[OperatorLine]] = {}
    for row in rows:
        places.setdefault(in_backward if row.is_backward else row.site and row.site.place, []).append(row)
    if rows and all(row.site is None for row in costs.analysis.operators):
        explained = sum(row.seconds + row.count * _most_around(row) for row in rows)
        if explained < NAMED * costs.cost("compute").seconds:  # steps do much more than the one that was counted
            return {}
        share = _small(rows) / sum(row.seconds for row in rows)
        return {
            line.site: {"compute": line_cost(line, share * line.categories["compute"])}
            for line in costs.analysis.lines
            if line.categories.get("compute") and share
        }
    lines: dict[tuple[str, int], list[LineCost]] = {}
    for line in costs.analysis.lines:  # a comprehension is a function of its own on the same line
        lines.setdefault(line.site.place, []).append(line)
    parts = {}
    for at, here in lines.items():
        called = places.get(at, [])
        seconds = {name: sum(line.categories.get(name, 0.0) for line in here) for name in CALLING}
        whole = sum(seconds.values())
        small = _small_seconds(called, whole, seconds["compute"])
        for line in here if small else ():
            parts[line.site] = {
                name: line_cost(line, line.categories[name] * small / whole)
                for name in CALLING
                if name in line.categories
            }
    return parts


def called_by_program(costs: StepCosts) -> list[OperatorLine]:
    """Return the operators that neither a loader nor an optimizer calls.

    Some gradient functions are small only within torch, and count as large. One kind belongs to a line with mostly
    large operators, such as a recurrent network. The other kind has no line although lines are known: it adds up the
    gradient of each parameter. A loop of small operators may have a few large ones, such as one that adds up the slices
    of a tensor. These go with the loop.
    """
    rows = [row for row in costs.analysis.operators if not row.caller]
    has_lines = any(row.site for row in rows)
    is_small: dict[Site | None, bool] = {
        row.site: _is_mostly_small(row) for row in rows if row.site and not row.is_backward
    }
    return [
        _with_loop(row, is_small.get(row.site, row.site is not None or not has_lines)) if row.is_backward else row
        for row in rows
    ]


def _is_nearly_all_small(row: OperatorLine) -> bool:
    return row.small_count > 0 and row.small_count >= _NEARLY_ALL * row.count


def _with_loop(row: OperatorLine, is_small: bool) -> OperatorLine:
    if not is_small:
        return replace(row, small_count=0, small_seconds=0.0)
    is_loop = row.site is not None and _is_nearly_all_small(row)
    return replace(row, small_seconds=row.seconds) if is_loop else row


def _is_mostly_small(row: OperatorLine) -> bool:
    """By their time or, in a loop, by their number: a few large ones do not hide that. Beside more large ones there is
    little to gain from calling fewer."""
    return row.small_seconds >= MOST * row.seconds or (row.site is not None and _is_nearly_all_small(row))


def _small_seconds(rows: Sequence[OperatorLine], whole: float, computing: float) -> float:
    """The seconds of small operators among those of a line, which takes `whole` to compute and to call."""
    seconds = sum(row.seconds for row in rows)
    mostly = [row for row in rows if _is_mostly_small(row)]
    small = _small(mostly)
    if not small:
        return 0.0
    most = sum(row.count * _most_around(row) for row in rows)
    around = min(max(0.0, whole - seconds), most)
    small += around * sum(row.small_count * _most_around(row) for row in mostly) / most
    explained = seconds + around
    return small * min(1.0, whole / explained) * min(max(1.0, computing / explained), _MOST_SLOWER)


def _most_around(row: OperatorLine) -> float:
    return _MOST_GRADIENT_S if row.is_backward else _MOST_CALL_S


def _small(rows: Iterable[OperatorLine]) -> float:
    return sum(row.small_seconds for row in rows)


def called_from(parts: Mapping[Site, Mapping[str, Cost]], *names: str) -> dict[str, Cost]:
    here = {name: [by_name[name] for by_name in parts.values() if name in by_name] for name in names}
    return {name: whole_cost(costs) for name, costs in here.items() if costs}


def within_step(costs: StepCosts, claimed: Mapping[str, Cost]) -> dict[str, Cost]:
    """What is claimed of the categories of calls. What exceeds one of them counts as another: samples tell Python from
    computing at a line only roughly."""
    fits, excess = dict[str, Cost](), NOTHING
    for name, cost in claimed.items():
        share = min(1.0, costs.cost(name).seconds / cost.seconds) if cost.seconds else 1.0
        fits[name], excess = cost.part(share), excess + cost.part(1.0 - share)
    more = spread(excess, {name: costs.cost(name).seconds - fits.get(name, NOTHING).seconds for name in CALLING})
    return fits | {name: fits.get(name, NOTHING) + cost for name, cost in more.items()}
