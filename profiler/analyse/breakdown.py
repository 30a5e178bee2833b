"""Host categories of a step: exclusive, the innermost wins, and they sum to the step's wall time to the nanosecond.

The ledger belongs to the stepping thread. Time inside a region or call goes to its category. Time outside of any is
`unattributed`, except for what stack samples prove to be Python:

    Samples cannot be laid over single gaps of microseconds, since their clock is good to milliseconds. So the proof
    is statistical, over the measured window. The active time is what samples saw on a CPU in Python frames (by
    samples that know it, else by the thread's CPU clock). Less the covered time in which the host was not blocked,
    it is active time that no record explains. That much of the uncovered time (never more than there is) becomes
    `python`, in each step in proportion to what is uncovered there; the rest stays unattributed. This is cautious:
    idleness that recorded waits do not explain, and time in which other programs had the CPU, is charged to the
    uncovered time first. It is blind where the host spins while it waits: as much idleness can then hide. Nothing is
    moved where no record shows the waits of a device for which hosts spin (CUDA without its calls), where little is
    uncovered (SUBSTANTIAL), and where samples are few (MIN_SAMPLES).

In runs whose steps hooks found, the frames of samples tell more: see `profiler.analyse.divide`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.categories import CODE
from profiler.analyse.host import HostTimeline
from profiler.analyse.model import HOST_CATEGORIES, MIN_SAMPLES, Measure
from profiler.analyse.stacks import Activity
from profiler.analyse.timeline import Intervals, overlaps
from profiler.analyse.window import LEVEL_LIGHT, Window
from profiler.core.notice import Notice

SUBSTANTIAL: Final = 0.002
"""Share of wall below which uncovered time is left unattributed: the samples of a few seconds cannot tell it from 0."""
NO_OPERATORS: Final = Notice("no-operators")
NO_CALLS: Final = Notice("no-device-calls")
SOURCE: Final = "regions and calls"
SAMPLED_SOURCE: Final = "regions, calls and samples"


@dataclass(frozen=True, eq=False, slots=True)
class Ledger:
    """ns of each measured step (row) in each of HOST_CATEGORIES (column); a row sums to the step's wall time."""

    ns: npt.NDArray[np.int64]
    crossings: int
    python_share: float = 0.0
    """Share of the uncovered time that samples prove to be Python."""
    python_error: float = 0.0
    """Half of the 95% interval of what was moved to python, seconds per step; 0 where nothing was."""
    warning: Notice | None = None
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of each category that samples divided, the ends of its 95% interval: ns over the whole window."""


def ledger(host: HostTimeline, window: Window) -> Ledger:
    """Divide every measured step among the categories, from regions and calls alone."""
    segments, steps, kinds = host.segments, len(window), len(HOST_CATEGORIES)
    cut = overlaps(segments.begin, segments.end, _steps(window))
    cell = cut.right * kinds + host.category[cut.left]
    # float64 sums of whole ns are exact below 2**53 ns (104 days)
    sums = np.bincount(cell, cut.end - cut.begin, minlength=steps * kinds).astype(np.int64).reshape(steps, kinds)
    sums[:, CODE["unattributed"]] += window.wall - sums.sum(axis=1)
    return Ledger(sums, segments.crossings)


def with_evidence(plain: Ledger, window: Window, seen: Activity | None, *, waits_unseen: bool = False) -> Ledger:
    """Move the uncovered time that stack samples prove to be active Python to `python`.

    :param waits_unseen: the host may spin in waits that no record shows, in Python frames and on a CPU: nothing moves.
    """
    uncovered = plain.ns[:, CODE["unattributed"]]
    total, wall = int(uncovered.sum()), window.wall_ns
    if not wall or total < SUBSTANTIAL * wall:
        return plain
    if seen is None or seen.samples < MIN_SAMPLES:
        count = seen.samples if seen else 0
        return replace(
            plain,
            warning=Notice(
                "unrecorded-time", {"share": total / wall, "samples": count, "needed": MIN_SAMPLES, "of": "calls"}
            ),
        )
    if waits_unseen:
        return replace(plain, warning=Notice("python-or-cuda-wait", {"share": total / wall}))
    covered = wall - total - int(plain.ns[:, CODE["sync"]].sum())
    share = min(1.0, max(0.0, (seen.share * wall - covered) / total))
    # cumulative rounding: each step's part is whole, and the parts sum to the rounded whole
    running = np.rint(np.cumsum(uncovered) * share).astype(np.int64)
    moved = np.minimum(np.diff(running, prepend=0), uncovered)
    ns = plain.ns.copy()
    ns[:, CODE["unattributed"]] -= moved
    ns[:, CODE["python"]] += moved
    error = min(seen.error * wall, total)
    return replace(plain, ns=ns, python_share=share, python_error=window.per_step(error))


def breakdown(window: Window, book: Ledger | None, calls: int) -> Mapping[str, Measure]:
    """Mean seconds per step of each category; None with the reason where this run cannot see it.

    :param book: None where there is nothing to divide (no measured step, level light).
    :param calls: how many runtime calls the stepping thread made.
    """
    if book is None:
        reason = window.reason or LEVEL_LIGHT
        return {name: Measure(name, None, "s", reason=reason) for name in HOST_CATEGORIES}
    return {name: _measure(name, window, book, calls) for name in HOST_CATEGORIES}


def _measure(name: str, window: Window, book: Ledger, calls: int) -> Measure:
    total = int(book.ns[:, CODE[name]].sum())
    if not total and name in ("framework", "compute") and name not in book.spread:
        return Measure(name, None, "s", reason=NO_OPERATORS)
    if not total and not calls and name in ("sync", "copy", "launch"):
        return Measure(name, None, "s", reason=NO_CALLS)
    value = window.per_step(total)
    if name in book.spread:
        low, high = (window.per_step(end) for end in book.spread[name])
        return Measure(name, value, "s", low, high, len(window), SAMPLED_SOURCE)
    if name == "python" and book.python_share:
        if not book.python_error:
            return Measure(name, value, "s", n=len(window), source=SAMPLED_SOURCE)
        low, high = max(0.0, value - book.python_error), value + book.python_error
        return Measure(name, value, "s", low, high, len(window), SAMPLED_SOURCE)
    return Measure(name, value, "s", n=len(window), source=SOURCE)


def _steps(window: Window) -> Intervals:
    return Intervals(window.begin, window.end)
