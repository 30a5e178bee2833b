"""The series of a history and where their levels changed: counters exactly, times by a test (profiler.check.shift)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from profiler.check.past import ChangePoint, Entry, History, Series, Trend
from profiler.check.shift import ALPHA, LEAST, shifts

LEAST_SHARE: Final = 0.01
"""A change of a time or a slow-down by less is not shown: no check could have seen it."""
_UNSTEADY: Final = 5
"""A counter that changes more often than at every fifth result, and more than twice, is noise and tested as such."""
_KEPT_TWICE: Final = 2
_HARDWARE: Final = ("cpu", "cores", "GPU")
"""Of a fingerprint what makes times comparable; what is installed may change them, and that is to be seen."""
METHOD: Final = (
    f"Counters are exact. A change of a time needs at least {LEAST} results on both sides and a rank test with "
    f"p <= {ALPHA:g}: without any change it finds one in 1 of 500 series; where neighbours are alike, in more "
    "(simulated, 40 results: 1 of 70 at a correlation of 0.3, 1 of 15 at 0.6)."
)


def trend(history: History) -> Trend:
    """Every series of `history` with its changes; those of the last result's program and machine come first."""
    entries = history.entries
    found = [*_counters(entries), *_times(entries)]
    latest = len(entries) - 1
    found.sort(key=lambda series: series.at[-1] != latest)
    return Trend(history, tuple(found), METHOD)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A quantity of an entry that depends on the machine."""

    name: str
    unit: str
    value: Callable[[Entry], float | None]
    relative: bool
    """Whether changes are of a share of its level, rather than of 1."""
    of_machine: bool = True


def _times(entries: Sequence[Entry]) -> Iterator[Series]:
    lines = dict.fromkeys(name for entry in entries for name in entry.slowdowns)
    kinds = [
        *(_Kind(f"slow-down, {name}", "share", _slowdown(name), relative=False, of_machine=False) for name in lines),
        _Kind("step time", "s", lambda entry: entry.step_time, relative=True),
        _Kind("tokens/s", "tokens/s", lambda entry: entry.tokens_per_s, relative=True),
    ]
    for kind in kinds:
        for (command, machine), at in _groups(entries, _hardware if kind.of_machine else _any).items():
            pairs = [(index, value) for index in at if (value := kind.value(entries[index])) is not None]
            if pairs:
                indices, values = zip(*pairs, strict=True)
                series = Series(kind.name, kind.unit, indices, values, machine=machine, command=command)
                yield replace(series, changes=_shifted(series, relative=kind.relative))


def _slowdown(name: str) -> Callable[[Entry], float | None]:
    return lambda entry: entry.slowdowns[name].slowdown if name in entry.slowdowns else None


def _counters(entries: Sequence[Entry]) -> Iterator[Series]:
    """By program and GPU: what a program does for a device depends on the device alone."""
    for (command, device), at in _groups(entries, lambda entry: entry.machine.get("GPU", "")).items():
        names = dict.fromkeys(name for index in at for name in sorted(entries[index].counters))
        for name in names:
            known = [index for index in at if name in entries[index].counters]
            ends = [entries[index].counters[name] for index in known]
            middles = tuple((low + high) / 2 for low, high in ends)
            series = Series(name, "1/step", tuple(known), middles, machine=device, command=command)
            exact = _exact(ends, known)
            steady = len(exact) <= max(2, len(known) // _UNSTEADY)
            yield replace(series, changes=exact if steady else _shifted(series, relative=True))


def _exact(ends: Sequence[tuple[float, float]], at: Sequence[int]) -> tuple[ChangePoint, ...]:
    """Where a counter left the range that it had, and one of the two ranges was seen more than once."""
    starts, low, high = [0], *ends[0]
    for k, (least, most) in enumerate(ends):
        if most < low or least > high:
            starts.append(k)
            low, high = least, most
        low, high = min(low, least), max(high, most)
    lengths = [end - start for start, end in zip(starts, [*starts[1:], len(ends)], strict=True)]
    return tuple(
        ChangePoint(at[start], at[start - 1], sum(ends[start - 1]) / 2, sum(ends[start]) / 2)
        for number, start in enumerate(starts)
        if number and max(lengths[number - 1], lengths[number]) >= _KEPT_TWICE
    )


def _shifted(series: Series, *, relative: bool) -> tuple[ChangePoint, ...]:
    values = np.array(series.values)
    least = LEAST_SHARE * (abs(float(np.median(values))) if relative else 1.0)
    return tuple(
        ChangePoint(series.at[shift.at], series.at[shift.at - 1], shift.before, shift.after, shift.p)
        for shift in shifts(values, least=least)
    )


def _groups(entries: Sequence[Entry], machine: Callable[[Entry], str]) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for index, entry in enumerate(entries):
        found.setdefault((entry.command, machine(entry)), []).append(index)
    return found


def _hardware(entry: Entry) -> str:
    known = {name: value for name in _HARDWARE if (value := entry.machine.get(name, ""))}
    if cores := known.get("cores"):
        known["cores"] = f"{cores} core{'s' * (cores != '1')}"
    return ", ".join(known.values())


def _any(_: Entry) -> str:
    """A slow-down was measured within one job: what it is of a machine's speed is in both sides."""
    return ""
