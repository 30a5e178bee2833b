"""Turns stack samples into shares of host categories.

The innermost Python frame of a sample is torch's or other code (frames of hooks do not count). Together with the state
of the thread it gives the category:

- On a CPU with the GIL, torch's frame gives `framework` and any other frame gives `python`.
- On a CPU without the GIL, the thread does native work. It gives `compute`, or `framework` on CUDA, where native work
  only launches kernels.
- Off the CPU in torch's frame, the thread waits for torch's own threads. The time in which these had the CPU is native
  work; the rest is `python`, for example if a rank waits for another one.
- Off the CPU in any other frame, it is `python`: a sleep, a lock or a file, as the line shows.

Frames of libraries that log, save or load data have a category of their own, which takes precedence. If no window
sampled the GIL's holder, torch's frames are assumed to do native work and other frames to run Python, and the interval
covers all possible values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import overlaps
from profiler.analyse.model import HOST_CATEGORIES
from profiler.analyse.sampling.batch_means import Batches, batch_edges, sum_in_batches
from profiler.analyse.sampling.frames import CALL, Stack
from profiler.analyse.sampling.gil import GilHolders, Probability, gil_windows
from profiler.analyse.sampling.stacks import Stacks, weighted_samples
from profiler.analyse.sampling.strata import (
    DIVIDED,
    FIXED,
    LEAVES,
    NUMBER,
    REGION_KINDS,
    TORCH_LEAF,
    Floats,
    Numbers,
    StackStrata,
    stratum_times,
    stratum_weights,
)
from profiler.analyse.timing.host_timeline import CODE, REGION, HostTimeline
from profiler.analyse.window import Window, device_kind
from profiler.run.model import Run
from profiler.run.tables import CallKind

_WAITING_FILES: Final = (
    "/selectors.py", "/threading.py", "/multiprocessing/connection.py", "/subprocess.py", "/queue.py",
)  # fmt: skip
"""The standard library's waits: a thread whose innermost frame is there is taken to be off the CPU if nothing else
says."""
_ASSUMED: Final[Mapping[tuple[int, int], Probability]] = {
    (pool, kind): Probability(0.0 if kind == TORCH_LEAF else 1.0, 0.0, 1.0)
    for pool, kind in product(range(len(DIVIDED)), LEAVES)
}
"""P(holds the GIL | on a CPU) of each divided stratum and kind of innermost frame, if no window sampled its holder."""


@dataclass(frozen=True, eq=False, slots=True)
class ClassifiedSamples:
    """The stepping thread's samples in the measured steps, a row for all with one stack, state and marked region."""

    stack: Numbers
    """Number of the stack of each row."""
    stratum: Numbers
    """Number of the stratum of each row in STRATA."""
    weight: Floats
    """ns of measured time that each row stands for; corrected so that every recorded stratum has its exact total."""
    ns: Floats
    """The same without that correction."""
    shares: Floats
    """For each row, the probability of each of HOST_CATEGORIES (columns), which sum to 1."""
    uncertainty: Floats
    """How far the shares may be wrong, downward and upward, because the holder of the GIL is not known (2 x
    columns)."""
    stacks: Mapping[int, Stack]
    """The stacks of the rows, by number."""
    n: float
    """The number of samples. In a program with long phases fewer of them are independent; `batches` estimates how
    many."""
    batches: Batches
    window: Window
    exact: Mapping[str, Numbers]
    """Stratum -> ns of it in each measured step, from the records alone; CALL includes all time in calls."""
    gil_known: bool


def classify_samples(stacks: Stacks, window: Window, host: HostTimeline) -> ClassifiedSamples | None:
    """The classified samples of `window`; None without any."""
    run = stacks.run
    samples, weight = weighted_samples(run, window)
    if not len(samples):
        return None
    sampled = weight.astype(np.float64)
    n = stacks.sample_count(samples, weight)
    exact = stratum_times(run, window, host)
    strata = StackStrata(stacks, host, exact)
    # samples of one stack and state are one row: hours of them are millions, of some ten thousand stacks
    shape = len(run.stack_frames), 3, REGION_KINDS + 1
    key = samples["stack"], samples["active"] + 1, strata.regions_at(samples["begin"]) + 1
    keys, row = np.unique(np.ravel_multi_index(key, shape), return_inverse=True)
    stack, state, region = np.unravel_index(keys, shape)
    stratum, ns = strata.strata(stack, region - 1), np.bincount(row, sampled).astype(np.float64)
    windows = gil_windows(run, window)
    edges = batch_edges(window, windows)
    unsampled = max(0.0, 1.0 - float(sampled.sum()) / window.wall_ns)
    batches = Batches(sum_in_batches(edges, samples["begin"], sampled, row), unsampled)

    active = _on_cpu(run, window, stack, ns, state - 1)
    rows = _Rows(stratum, strata.leaf[stack], strata.category[stack], active, native_category(run, host))
    holders, gil = GilHolders(strata, window, windows, edges) if len(windows) else None, _ASSUMED
    if holders:
        on_cpu = {(pool, kind): active[alike] @ batches.ns[alike] for pool, kind, alike in rows.pools()}
        gil = {key: holders.probability(*key, each, batches, n) for key, each in on_cpu.items()}
    shares, uncertainty = _category_shares(rows, gil, _working_share(rows, window, ns))
    in_call = np.flatnonzero(stratum == NUMBER[CALL])
    shares[in_call] = _call_shares(run, host, window, stack[in_call], region[in_call] - 1)
    return ClassifiedSamples(
        stack=stack,
        stratum=stratum,
        weight=stratum_weights(stratum, ns, exact),
        ns=ns,
        shares=shares,
        uncertainty=uncertainty,
        stacks={number: stacks[number] for number in np.unique(stack).tolist()},
        n=n,
        batches=batches,
        window=window,
        exact=exact,
        gil_known=holders is not None,
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Rows:
    """What each row shows of its category."""

    stratum: Numbers
    leaf: Numbers
    """One of LEAVES."""
    category: Numbers
    """The category that its frames stand for, or -1."""
    on_cpu: Floats
    """The probability that it was on a CPU."""
    native: int
    """The category of native work."""

    def pools(self) -> Iterator[tuple[int, int, npt.NDArray[np.bool_]]]:
        """Each divided stratum and kind of innermost frame, with the rows that have both."""
        for pool, kind in product(range(len(DIVIDED)), LEAVES):
            yield pool, kind, (self.stratum == pool) & (self.leaf == kind)


def _category_shares(rows: _Rows, gil: Mapping[tuple[int, int], Probability], working: float) -> tuple[Floats, Floats]:
    """Probabilities of the categories of each row but those in calls, and how far off they may be."""
    shares = np.zeros((len(rows.stratum), len(HOST_CATEGORIES)))
    uncertainty = np.zeros((2, *shares.shape))
    for pool, kind, alike in rows.pools():
        number = np.flatnonzero(alike & (rows.category < 0))
        in_torch, busy, holding = kind == TORCH_LEAF, rows.on_cpu[number], gil[pool, kind]
        holder = CODE["framework" if in_torch else "python"]
        shares[number, holder] += busy * holding.value
        shares[number, rows.native] += busy * (1 - holding.value)
        idle = (1 - busy) * working if in_torch else 0.0
        shares[number, rows.native] += idle
        shares[number, CODE["python"]] += 1 - busy - idle
        if holder != rows.native:
            for code, side in ((holder, 1), (rows.native, 0)):
                uncertainty[side, number, code] += busy * (holding.high - holding.value)
                uncertainty[1 - side, number, code] += busy * (holding.value - holding.low)
    by_frames = np.flatnonzero((rows.stratum < len(DIVIDED)) & (rows.category >= 0))
    shares[by_frames, rows.category[by_frames]] = 1.0
    for name, fixed in FIXED.items():
        shares[rows.stratum == NUMBER[name], CODE[fixed]] = 1.0
    return shares, uncertainty


def native_category(run: Run, host: HostTimeline) -> int:
    """Number of the category of native work: operators only launch it if the run states CUDA, or if device calls were
    recorded."""
    device = device_kind(run)
    launches = device == "cuda" or (device != "cpu" and bool((host.calls["kind"] != CallKind.WOULD_SYNC).any()))
    return CODE["framework" if launches else "compute"]


def _on_cpu(run: Run, window: Window, stack: Numbers, ns: Floats, state: Numbers) -> Floats:
    """The probability of each row to have been on a CPU.

    Where the sampler cannot tell, the thread's CPU clock, read each step or 10 ms, gives the total.
    """
    active, unknown = state.astype(np.float64), state < 0
    if not unknown.any():
        return active
    numbers, row = np.unique(stack, return_inverse=True)
    leaves = [run.stack_frames[number][-1:] for number in numbers.tolist()]
    waits = np.array([any(site.file.endswith(_WAITING_FILES) for site in leaf) for leaf in leaves])[row]
    active[unknown] = ~waits[unknown]
    clock = int(window.steps["thread_cpu"].sum()) / window.wall_ns
    known_active, possible = float(ns[state == 1].sum()), float((ns * active)[unknown].sum())
    if clock and possible:
        active[unknown] *= min(1.0, max(0.0, (clock * ns.sum() - known_active) / possible))
    return active


def _working_share(rows: _Rows, window: Window, ns: Floats) -> float:
    """Share of torch's waits off the CPU during which the process's other threads can have worked."""
    process_cpu, thread_cpu = (int(window.steps[name].sum()) for name in ("process_cpu", "thread_cpu"))
    waits = (rows.stratum < len(DIVIDED)) & (rows.leaf == TORCH_LEAF) & (rows.category < 0)
    waiting = float((ns * (1 - rows.on_cpu))[waits].sum())
    if rows.native != CODE["compute"] or not process_cpu or not waiting:
        return 1.0
    return min(1.0, max(0.0, (process_cpu - thread_cpu) * float(ns.sum()) / (waiting * window.wall_ns)))


def _call_shares(run: Run, host: HostTimeline, window: Window, stack: Numbers, region: Numbers) -> Floats:
    """For each sample, the mix of categories of the calls that its innermost line with calls made (or of all calls), or
    the category of the marked region around it (samples x categories)."""
    recorded = np.flatnonzero(host.source != REGION)
    cut = overlaps(host.segments.begin[recorded], host.segments.end[recorded], window.spans)
    row, length, kinds = recorded[cut.left], (cut.end - cut.begin).astype(np.float64), len(HOST_CATEGORIES)
    site = host.calls["site"][host.record[row]].astype(np.int64) + 1
    cells = np.bincount(site * kinds + host.category[row], length, minlength=(len(run.sites) + 1) * kinds)
    table = cells.reshape(-1, kinds)
    average = table.sum(axis=0)
    if not average.any():
        average[CODE["python"]] = 1.0
    by_line: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
    for number in np.flatnonzero(table[1:].any(axis=1)).tolist():
        line = run.sites[number].file, run.sites[number].line
        by_line[line] = by_line.get(line, np.zeros(kinds)) + table[number + 1]
    numbers, row = np.unique(stack, return_inverse=True)
    mixes = np.zeros((len(numbers), kinds))
    for mix, number in zip(mixes, numbers.tolist(), strict=True):
        lines = ((frame.file, frame.line) for frame in reversed(run.stack_frames[number]))
        ns = next((by_line[line] for line in lines if line in by_line), average)
        mix[:] = ns / ns.sum()
    shares, inside = mixes[row], region >= 0
    shares[inside] = np.eye(kinds)[region[inside] % kinds]
    return shares
