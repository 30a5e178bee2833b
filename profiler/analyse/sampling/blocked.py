"""Divides waits: blocked time by what the thread waited for, and who held the GIL."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, times
from profiler.analyse.sampling.frames import Stack
from profiler.analyse.sampling.stacks import (
    USUAL_PERIOD_S,
    WEIGHTED_TOGETHER,
    WINDOWS,
    Numbers,
    Stacks,
    StackStrata,
    gil_windows,
    sample_ns,
)
from profiler.analyse.statistics import (
    COINCIDENT,
    Batches,
    covered_in_batches,
    ratio_interval,
    share_interval,
    sum_in_batches,
)
from profiler.analyse.timing.scheduler import other_threads
from profiler.analyse.window import NS_PER_S, Window, named_rows, process_rows, thread_rows
from profiler.core.metrics import BLOCKED_IN, THREAD_NAME, BlockedIn
from profiler.run.model import Run, Site, Table

MIN_CALLS: Final = 50
"""Samples of the system call below which they are not used: the interval of a share is then wider than +-14 points."""
_ALSO_ACTIVE: Final = 0.05
"""Share of a stack's time in which it was active from which it computes or runs Python there, besides waiting."""
COMMUNICATION_THREAD: Final = "gloo"
"""Part of the names of gloo's threads (`gloo_tcp_loop`) and of torch's around them (`pt_gloo_runloop`)."""
_OWN: Final = (BlockedIn.SLEEP, BlockedIn.OTHER, BlockedIn.FILE, BlockedIn.SOCKET)
"""Kinds of calls in which a thread waits for something of the program's own."""
_PRIOR: Final = 2.0
"""How many samples of the larger group's mixture each stack is given: one of its own samples is not certainty."""
_ACCURACY: Final = 2e6
"""ns to which the moments of both samples are known: a sample of a stack tells less of a moment that is farther away,
since in a fast loop another line runs by then."""


@dataclass(frozen=True, eq=False, slots=True)
class BlockedCalls:
    """For each stack, the shares of its samples that were blocked in each kind of call (stacks x BlockedIn)."""

    shares: Floats
    n: int
    """How many samples of the system call lie in the measured steps."""

    tells_openmp: bool
    """Whether waits for OpenMP's threads can be told from locks: they can with GNU's library, which torch ships."""

    def active(self, stack: Numbers) -> Floats:
        """Return the share of each stack's time in which it was not blocked."""
        return np.asarray(self.shares[stack, BlockedIn.NOTHING])

    def given_blocked(self, stack: Numbers, kind: BlockedIn) -> Floats:
        """Return the share of each stack's blocked time that is of this kind."""
        blocked = 1 - self.shares[stack, BlockedIn.NOTHING]
        return np.asarray(np.divide(self.shares[stack, kind], blocked, out=np.zeros(len(stack)), where=blocked > 0))


def blocked_calls(stacks: Stacks, strata: StackStrata, window: Window) -> BlockedCalls | None:
    """Return the kinds of calls by stack; None with too few samples of them."""
    run = stacks.run
    calls = thread_rows(named_rows(run, run.samples, BLOCKED_IN), window)
    calls = calls[window.step_rows(calls["time"]) >= 0]
    samples = thread_rows(run.stacks, window)
    samples = samples[~stacks.in_recorder[samples["stack"]]]
    if len(calls) < MIN_CALLS or not len(samples):
        return None
    samples = samples[np.argsort(samples["begin"], kind="stable")]
    kind, moments, stretch = calls["value"].astype(np.int64), times(calls["time"]), strata.groups()
    within = strata.groups_at(moments)
    shares = np.bincount(kind, minlength=len(BlockedIn))[None] / len(calls)
    sums = np.bincount(within * len(BlockedIn) + kind, minlength=len(WEIGHTED_TOGETHER) * len(BlockedIn))
    shares, belongs = _mixtures(sums, shares), stretch
    stack, weight = _stacks_beside(moments, within, samples, stretch)
    # from the largest groups on: by stretch of time and innermost file, by innermost line, and each stack alone
    leaves = [frames[-1] if frames else Site("", 0, "") for frames in run.stack_frames]
    leaf_of = list(zip(stretch.tolist(), leaves, strict=True))
    for group in (
        _numbers([(number, leaf.file) for number, leaf in leaf_of]),
        _numbers([(number, leaf.file, leaf.line) for number, leaf in leaf_of]),
        np.arange(len(leaves)),
    ):
        larger = np.zeros(int(group.max()) + 1, np.int64)
        larger[group] = belongs
        cell = group[stack] * len(BlockedIn) + kind
        sums = np.bincount(cell.ravel(), weight.ravel(), minlength=len(larger) * len(BlockedIn))
        shares, belongs = _mixtures(sums, shares[larger]), group
    return BlockedCalls(shares, len(calls), run.info.facts.get("openmp") == "gnu")


def _mixtures(sums: Floats | Numbers, larger: Floats) -> Floats:
    """Return the shares of the kinds of calls in each group: its own samples, and a few of the larger group's
    mixture."""
    counts = sums.reshape(-1, len(BlockedIn)) + _PRIOR * larger
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _stacks_beside(moments: Times, within: Numbers, samples: Table, stretch: Numbers) -> tuple[Numbers, Floats]:
    """Return the stacks of the samples before and after each moment (2 x moments), and how much each tells of that
    moment.

    :param within: the stretch of time of each moment; only samples of it are used, if there are any.
    :param stretch: the stretch of time of each stack.
    """
    stack, weight = np.zeros((2, len(moments)), np.int64), np.zeros((2, len(moments)))
    of = stretch[samples["stack"]]
    for number in np.unique(within).tolist():
        inside, alike = within == number, samples[of == number]
        alike = alike if len(alike) else samples
        begin, at = times(alike["begin"]), moments[inside]
        after = np.searchsorted(begin, at, "right")
        row = np.clip(np.stack([after - 1, after]), 0, len(alike) - 1)
        stack[:, inside] = alike["stack"][row]
        weight[:, inside] = 1 / (1 + (np.abs(begin[row] - at) / _ACCURACY) ** 2) ** 2
    return stack, weight


def _numbers(keys: Sequence[Hashable]) -> Numbers:
    """Return a number for each key, the same for equal keys."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Waits:
    """What the blocked time of each row of samples was spent on: shares that sum to 1, with the bounds of `gil`."""

    own: Floats
    """A sleep, a lock, a file: a wait of the program's own."""
    gil: Floats
    core: Floats
    """Threads of the pool had no core."""
    native: Floats
    """Threads of the pool computed."""
    unknown: Floats
    gil_error: tuple[Floats, Floats]
    """How far `gil` may be too high, and too low."""


def shows_wait(stack: Stack) -> bool:
    """Return whether the frames of a stack show a wait of the program's own."""
    return "wait" in stack.leaf_roles


def is_own_wait(stack: Stack, active: float) -> bool:
    """Return whether blocked samples of this stack show a wait of the program's own, unless it waits for the GIL there.

    :param active: the share of the stack's time in which it was not blocked.
    """
    return shows_wait(stack) or (not stack.in_torch and active < _ALSO_ACTIVE)


@dataclass(frozen=True, eq=False, slots=True)
class BlockedRows:
    """Rows of blocked samples."""

    stack: Numbers
    ns: Floats
    """Their length; 0 of rows that a record or a frame gives a category."""
    fixed_ns: Floats
    """The length of those rows, 0 of all others: they wait for the GIL too."""
    shows_wait: npt.NDArray[np.bool_]
    """Whether the frames show a wait of the program's own."""
    is_own: npt.NDArray[np.bool_]
    """Whether they show one, or the line is never active."""
    in_torch: npt.NDArray[np.bool_]


def divide_waits(run: Run, window: Window, calls: BlockedCalls | None, rows: BlockedRows) -> Waits:
    """Divide the blocked time of rows of samples."""
    stack, ns, is_own = rows.stack, rows.ns, rows.is_own
    held, mixed = _held_by_others(run, window), (~is_own).astype(np.float64)
    nothing = np.zeros(len(ns))
    own, gil, unknown = is_own.astype(np.float64), nothing, nothing
    error = nothing, nothing
    if calls is not None:
        sleeps = np.sum([calls.given_blocked(stack, kind) for kind in _OWN], axis=0)
        timed = calls.given_blocked(stack, BlockedIn.TIMED_FUTEX)
        futex = calls.given_blocked(stack, BlockedIn.FUTEX) if calls.tells_openmp else nothing
        gil = np.where(rows.shows_wait, 0.0, timed) if held else nothing
        waits = gil * min(1.0, (held or 0.0) / total) if (total := float((ns + rows.fixed_ns) @ gil)) else gil
        # a wait with a time limit that is longer than others hold the GIL is a lock of the program's own
        own = sleeps + np.where(rows.in_torch, 0.0, futex) + (timed if not held else gil - waits)
        own, gil = np.where(is_own, 1.0 - waits, own), waits
        unknown = np.where(rows.in_torch & ~is_own, futex, 0.0)
        share = min(1.0, float(ns @ gil) / window.wall_ns)
        if share > 0:  # not where all samples of such stacks lie between steps
            low, high = (end / share for end in share_interval(share, calls.n))
            error = gil * (1 - low), np.minimum(gil * (high - 1), mixed * (1 - own - gil).clip(0))
    elif held != 0 and (total := float(ns @ mixed)):
        gil = mixed * min(1.0, (held or 0.0) / total)
        error = gil, nothing if held else mixed
    pool = (1 - own - gil - unknown).clip(0)
    core, native = _pool_shares(run, window, float(ns @ pool))
    return Waits(own, gil, pool * core, pool * native, unknown + pool * max(0.0, 1 - core - native), error)


def _pool_shares(run: Run, window: Window, wait: float) -> tuple[float, float]:
    """Return two shares of `wait` ns: threads of the pool had no core, and threads computed."""
    if wait <= 0:
        return 0.0, 0.0
    others = other_threads(run, window)
    if others:
        python = set(np.unique(process_rows(run.stacks, window)["tid"]).tolist())
        # threads that communicate with other ranks, by their names
        names = [name for name in run.names if name.startswith(THREAD_NAME) and COMMUNICATION_THREAD in name]
        python |= set(process_rows(named_rows(run, run.samples, *names), window)["tid"].tolist()) if names else set()
        pool = [thread for tid, thread in others.items() if tid not in python]
        cpu, delay = sum(thread.on_core for thread in pool), max((thread.runnable for thread in pool), default=0.0)
    else:  # no thread was sampled: the clock of the process includes the pool
        process, own = (float(window.steps[name].sum()) for name in ("process_cpu", "thread_cpu"))
        cpu, delay = (max(0.0, process - own) if process else wait), 0.0
    core = min(1.0, delay / wait)
    return core, min(1 - core, cpu / wait)


def _held_by_others(run: Run, window: Window) -> float | None:
    """Return the ns in which other threads of the process held the GIL; None: no window sampled its holder.

    It is 0 where no other thread was ever seen to hold it.
    """
    windows = gil_windows(run, window)
    watched = windows.measure()
    if not watched:
        return None
    holders = process_rows(run.gil_stacks, window)
    others = holders[holders["tid"] != window.tid]
    return float(sample_ns(others, windows).sum()) / watched * window.wall_ns


# ---------------------------------------------------------------- who holds the GIL

LOOKS: Final = "stacks.gil_ticks"


@dataclass(frozen=True, slots=True)
class Probability:
    """A probability with its 95% interval."""

    value: float
    low: float
    high: float


def gil_looks(stacks: Stacks, window: Window, windows: Intervals) -> float:
    """Return how often the GIL's holder was looked for within `windows`."""
    rows = [named_rows(stacks.run, stacks.run.samples, name) for name in (WINDOWS, LOOKS)]
    seconds, looks = (float(part["value"][np.isin(part["pid"], (window.pid, 0))].sum()) for part in rows)
    measured = windows.measure() / NS_PER_S
    return measured * looks / seconds if looks and seconds else measured / (stacks.period or USUAL_PERIOD_S)


class GilHolders:
    """Samples of the stepping thread as the GIL's holder, to be compared with its other samples."""

    def __init__(self, strata: StackStrata, window: Window, windows: Intervals, edges: Times) -> None:
        holders = thread_rows(strata.stacks.run.gil_stacks, window)
        self._holders, self._edges = holders, edges
        self._ns = sample_ns(holders, windows)
        self._stratum = strata.strata(holders["stack"], strata.regions_at(holders["begin"]))
        self._leaf = strata.leaf[holders["stack"]]
        self._watched = covered_in_batches(edges, windows)
        self.coincide = windows.measure() > COINCIDENT * window.wall_ns
        """Whether holders and other samples are of the same time."""
        self._n = gil_looks(strata.stacks, window, windows)

    def probability(self, stratum: int, leaf: int, on_cpu: Floats, batches: Batches, n: float) -> Probability:
        """Return P(holds the GIL | on a CPU) for samples of one stratum and kind of innermost frame.

        :param on_cpu: ns on a CPU in each batch, out of those of all `n` samples in `batches`.
        """
        same = (self._stratum == stratum) & (self._leaf == leaf)
        if self.coincide:
            holds = float(self._ns[same].sum() / self._watched.sum())
            return coincident_gil_probability(holds, self._n, float(on_cpu.sum() / batches.ns.sum()))
        holding = sum_in_batches(self._edges, self._holders["begin"][same], self._ns[same])
        return batched_gil_probability(holding, self._watched, on_cpu, batches.ns.sum(axis=0), (self._n, n))


def coincident_gil_probability(holding: float, holding_n: float, on_cpu: float) -> Probability:
    """Return P(holds the GIL | on a CPU) where both kinds of samples are of one time: only the holders' error counts.

    A share of time as the holder, which is what the probability is used for, is the product of the two, from which the
    share of time on a CPU cancels.
    """
    low, high = share_interval(holding, holding_n)
    if not on_cpu:
        return Probability(1.0, 0.0, 1.0)
    return Probability(*(min(1.0, share / on_cpu) for share in (holding, low, high)))


def batched_gil_probability(
    holding: Floats, watched: Floats, on_cpu: Floats, sampled: Floats, counts: tuple[float, float]
) -> Probability:
    """Return P(holds the GIL | on a CPU), from each batch's share of time as the holder and its share of time on a CPU.

    The two come from different times, so a program of long phases is compared between neighbouring batches only.

    :param holding: ns as the holder in each batch, out of `watched` ns of windows of the GIL.
    :param on_cpu: ns on a CPU in each, out of `sampled` ns of other windows.
    :param counts: how many samples the two kinds of windows hold.
    """
    plain = gil_probability(
        float(holding.sum() / watched.sum()), counts[0], float(on_cpu.sum() / max(1.0, sampled.sum())), counts[1]
    )
    both = (watched > 0) & (sampled > 0)
    expected = on_cpu[both] / sampled[both] * watched[both]
    ends = ratio_interval(holding[both], expected)
    if ends is None or not holding.any() or not on_cpu.any():
        return plain
    ratio = float(holding[both].sum() / expected.sum())
    low, high = min(ends[0], ratio - plain.value + plain.low), max(ends[1], ratio - plain.value + plain.high)
    return Probability(*(min(1.0, max(0.0, value)) for value in (ratio, low, high)))


def gil_probability(holding: float, holding_n: float, on_cpu: float, on_cpu_n: float) -> Probability:
    """Return P(holds the GIL | on a CPU) from two shares of time, each out of its own number of samples."""
    low, high = share_interval(holding, holding_n)
    lowest, highest = share_interval(on_cpu, on_cpu_n)
    if not holding or not on_cpu:
        return Probability(0.0 if on_cpu else 1.0, 0.0, min(1.0, high / lowest) if lowest else 1.0)
    ratio = holding / on_cpu  # relative errors of a ratio add as squares
    below = math.hypot(1 - low / holding, 1 - on_cpu / highest)
    above = math.hypot(high / holding - 1, on_cpu / lowest - 1)
    return Probability(min(1.0, ratio), min(1.0, max(0.0, ratio * (1 - below))), min(1.0, ratio * (1 + above)))
