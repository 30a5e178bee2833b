"""Turns stack samples into shares of host categories.

The innermost Python frame of a sample is torch's or other code (frames of hooks do not count). Together with the state
of the thread it gives the category:

- Active with the GIL, torch's frame gives `framework` and any other frame gives `python`. A sampler calls a thread
  active that is on a core or could be: how much of it was without a core is known from the scheduler's clocks, and
  `core` is taken out of all active time.
- Active without the GIL, the thread does native work. It gives `compute`, or `framework` on CUDA, where native work
  only launches kernels.
- Blocked at a line that is never active, or in a wait of the standard library, it is `waiting`: a sleep, a lock or a
  file, as the line shows.
- Blocked elsewhere, it waits for the GIL, for threads of torch's pool, or for what is not known
  (`profiler.analyse.sampling.blocked`). In backward of one of several ranks the latter is a wait for other ranks.

Frames of libraries that log, save or load data have a category of their own, which takes precedence, and so has a
function of the user that mostly tokenizes. If no window sampled the GIL's holder, torch's frames are assumed to do
native work and other frames to run Python, and the interval covers all possible values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, overlaps
from profiler.analyse.model.measures import CORELESS_CATEGORIES, HOST_CATEGORIES
from profiler.analyse.sampling.blocked import (
    BlockedCalls,
    BlockedRows,
    GilHolders,
    Probability,
    Waits,
    blocked_calls,
    divide_waits,
    is_own_wait,
    shows_wait,
)
from profiler.analyse.sampling.frames import BACKWARD, BETWEEN, CALL, DATA, TOKENIZE, Stack
from profiler.analyse.sampling.stacks import (
    DIVIDED,
    FIXED,
    LEAVES,
    NUMBER,
    REGION_KINDS,
    STRATA,
    TORCH_LEAF,
    Function,
    Numbers,
    Stacks,
    StackStrata,
    function_of,
    gil_windows,
    has_hooked_steps,
    stratum_times,
    stratum_weights,
)
from profiler.analyse.statistics import Batches, batch_edges, sum_in_batches
from profiler.analyse.timing.host_timeline import CODE, REGION, HostTimeline
from profiler.analyse.timing.scheduler import ThreadTime, delays_in_regions
from profiler.analyse.window import Window, device_kind, has_ranks
from profiler.run.model import Run, Site

_CLOCKED: Final = (DATA, TOKENIZE)
"""Strata whose regions the agent has clocked: at both ends of some, it reads how long the thread has waited for a core.
Clocking backward passes and optimizers as well changed no share."""
MOST: Final = 0.5
"""Share of a function's time that a tokenizer must exceed for the function to prepare input."""
_NO_CORE: Final = tuple(CODE[name] for name in CORELESS_CATEGORIES)
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
    """For each row, the probability of each of HOST_CATEGORIES (columns), which sum to 1. Active time includes time
    without a core."""
    without_core: Floats
    """The part of `shares` in which the thread could have run and had no core: of recorded stretches of time whose
    begin and end have readings of the clocks, their own rate, else one rate of all active time."""
    line_shares: Floats
    """`shares` with that part moved to the categories of time without a core, and with the calls that a program marks
    itself."""
    unrecorded: Floats
    """The part of each row that lies in no recorded region or call."""
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
    gil_coincides: bool
    """Whether samples of the GIL's holder are of the same time: the time in which it was held is then at least what
    they alone tell, however long the thread was on a CPU."""


def classify_samples(stacks: Stacks, window: Window, host: HostTimeline) -> ClassifiedSamples | None:
    """Return the classified samples of `window`; None without any."""
    run = stacks.run
    samples, weight = stacks.weighted_samples(window)
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

    clock = stacks.thread_time(window)
    calls = blocked_calls(stacks, strata, window)
    active = _active(stacks, window, calls, (stack, ns, state - 1))
    category = _with_tokenizing(stacks, strata.category[stack], (stack, stratum, ns))
    rows = _Rows(stratum, strata.leaf[stack], category, active, native_category(run, host))
    holders, gil = GilHolders(strata, window, windows, edges) if len(windows) else None, _ASSUMED
    if holders:
        on_cpu = {(pool, kind): active[alike] @ batches.ns[alike] for pool, kind, alike in rows.pools()}
        gil = {key: holders.probability(*key, each, batches, n) for key, each in on_cpu.items()}
    shares, busy, uncertainty = _category_shares(rows, gil)
    blocked, is_divided = ns * (1 - active) * (window.wall_ns / float(ns.sum())), rows.is_divided()
    is_fixed = ~is_divided & (stratum != NUMBER[CALL])
    shown, own = _own_waits(stacks, stack, ns, active)
    in_torch = rows.leaf == TORCH_LEAF
    blocked_rows = BlockedRows(stack, blocked * is_divided, blocked * is_fixed, shown, own, in_torch)
    waits = divide_waits(run, window, calls, blocked_rows)
    _add_waits((shares, uncertainty), rows, waits, several_ranks=has_ranks(run))
    in_call = np.flatnonzero(stratum == NUMBER[CALL])
    shares[in_call] = _call_shares(run, host, window, stack[in_call], region[in_call] - 1)
    whole = (stratum >= len(DIVIDED)) | (rows.category >= 0)  # rows of one category, or a mix of those of calls
    busy[whole] = shares[whole] * active[whole, None]
    _move_gil_waits(shares, is_fixed, (1 - active) * waits.gil)
    weights = stratum_weights(stratum, ns, exact)
    without_core = _without_core(run, window, (stratum, weights, busy), clock)
    line_shares = _take_core(shares, without_core, clock)
    unrecorded = (stratum == NUMBER[""]).astype(np.float64)
    if not has_hooked_steps(run):
        in_calls = _marked_calls(run, host, window, (stack, weights))
        line_shares = _replaced(line_shares, in_calls)
        unrecorded *= 1.0 - in_calls.sum(axis=1)
    return ClassifiedSamples(
        stack=stack,
        stratum=stratum,
        weight=weights,
        ns=ns,
        shares=shares,
        without_core=without_core,
        line_shares=line_shares,
        unrecorded=unrecorded,
        uncertainty=uncertainty,
        stacks={number: stacks[number] for number in np.unique(stack).tolist()},
        n=n,
        batches=batches,
        window=window,
        exact=exact,
        gil_known=holders is not None,
        gil_coincides=holders is not None and holders.coincide,
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Rows:
    """What each row shows of its category."""

    stratum: Numbers
    leaf: Numbers
    """One of LEAVES."""
    category: Numbers
    """The category that its frames stand for, or -1."""
    active: Floats
    """The probability that it was on a core, or without one though it could have run."""
    native: int
    """The category of native work."""

    def is_divided(self) -> npt.NDArray[np.bool_]:
        """Return which rows no record and no frame gives a category."""
        return np.asarray((self.stratum < len(DIVIDED)) & (self.category < 0))

    def pools(self) -> Iterator[tuple[int, int, npt.NDArray[np.bool_]]]:
        """Yield each divided stratum and kind of innermost frame, with the rows that have both."""
        for pool, kind in product(range(len(DIVIDED)), LEAVES):
            yield pool, kind, (self.stratum == pool) & (self.leaf == kind)


def _with_tokenizing(stacks: Stacks, category: Numbers, rows: tuple[Numbers, Numbers, Floats]) -> Numbers:
    """Return the categories of rows, with `input` for what a function of the user does around a tokenizer, if it mostly
    tokenizes and is no part of the model or of the loop: it makes tensors of the tokens, for example.

    :param rows: of each row the number of its stack, its stratum, and its ns.
    """
    stack, stratum, ns = rows
    if not (stratum == NUMBER[TOKENIZE]).any():
        return category
    functions = {number: tuple(map(function_of, stacks.user_frames(number))) for number in np.unique(stack).tolist()}
    training = {name for number, names in functions.items() if stacks[number].phase != BETWEEN for name in names}
    times: defaultdict[Function, Floats] = defaultdict(lambda: np.zeros(2))
    for number, part, amount in zip(stack.tolist(), stratum.tolist(), ns.tolist(), strict=True):
        for name in functions[number][-1:]:
            times[name] += amount * (part == NUMBER[TOKENIZE]), amount
    mostly = {name for name, (inside, total) in times.items() if inside > MOST * total} - training
    tokenizes = np.array([bool(mostly.intersection(functions[number][-1:])) for number in stack.tolist()])
    return np.where(tokenizes & (category < 0), CODE["input"], category)


def _category_shares(rows: _Rows, gil: Mapping[tuple[int, int], Probability]) -> tuple[Floats, Floats, Floats]:
    """Return the probabilities of the categories of each row but those in calls, without blocked time at lines of
    divided strata; the part of them in which the thread was active, and how far off they may be."""
    shares = np.zeros((len(rows.stratum), len(HOST_CATEGORIES)))
    uncertainty = np.zeros((2, *shares.shape))
    for pool, kind, alike in rows.pools():
        number = np.flatnonzero(alike & (rows.category < 0))
        busy, holding = rows.active[number], gil[pool, kind]
        holder = CODE["framework" if kind == TORCH_LEAF else "python"]
        shares[number, holder] += busy * holding.value
        shares[number, rows.native] += busy * (1 - holding.value)
        if holder != rows.native:
            for code, side in ((holder, 1), (rows.native, 0)):
                uncertainty[side, number, code] += busy * (holding.high - holding.value)
                uncertainty[1 - side, number, code] += busy * (holding.value - holding.low)
    active = shares.copy()
    by_frames = np.flatnonzero((rows.stratum < len(DIVIDED)) & (rows.category >= 0))
    shares[by_frames, rows.category[by_frames]] = 1.0
    for name, fixed in FIXED.items():
        shares[rows.stratum == NUMBER[name], CODE[fixed]] = 1.0
    return shares, active, uncertainty


def _own_waits(stacks: Stacks, stack: Numbers, ns: Floats, active: Floats) -> list[npt.NDArray[np.bool_]]:
    """Return whether the frames of each row show a wait of the program's own, and whether its blocked time is one."""
    share = np.bincount(stack, ns * active) / np.maximum(np.bincount(stack, ns), 1.0)
    numbers = np.unique(stack).tolist()
    shown = {number: shows_wait(stacks[number]) for number in numbers}
    own = {number: is_own_wait(stacks[number], float(share[number])) for number in numbers}
    return [np.array([each[number] for number in stack.tolist()], np.bool_) for each in (shown, own)]


def _move_gil_waits(shares: Floats, rows: npt.NDArray[np.bool_], gil: Floats) -> None:
    """Take waits for the GIL out of the category that the frames of these rows stand for.

    :param gil: the part of each row in which it waits for the GIL.
    """
    part = np.where(rows, gil, 0.0)
    shares *= 1 - part[:, None]
    shares[:, CODE["gil"]] += part


def _add_waits(sums: tuple[Floats, Floats], rows: _Rows, waits: Waits, *, several_ranks: bool) -> None:
    """Add the blocked time of divided strata to the shares and to their uncertainty."""
    (shares, uncertainty), blocked = sums, (1 - rows.active) * rows.is_divided()
    launches = (rows.native == CODE["framework"]) & (
        rows.leaf == TORCH_LEAF
    )  # another thread launches operators for it
    shares[launches, rows.native] += blocked[launches]
    blocked[launches] = 0.0
    for code, share in (
        (CODE["waiting"], waits.own), (CODE["gil"], waits.gil), (CODE["core"], waits.core), (rows.native, waits.native)
    ):  # fmt: skip
        shares[:, code] += blocked * share
    in_backward = several_ranks & (rows.stratum == NUMBER[BACKWARD])
    shares[np.arange(len(shares)), np.where(in_backward, CODE["ranks"], CODE["waiting"])] += blocked * waits.unknown
    below, above = waits.gil_error
    for code, ends in ((CODE["gil"], (below, above)), (rows.native, (above, below))):
        for side, error in enumerate(ends):
            uncertainty[side, :, code] += blocked * error


def _without_core(run: Run, window: Window, rows: tuple[Numbers, Floats, Floats], clock: ThreadTime | None) -> Floats:
    """Return the part of the shares of each row in which the thread could have run and had no core.

    :param rows: of each its stratum, its weight, and the active part of its shares.
    """
    stratum, weight, active = rows
    if clock is None or not clock.runnable:
        return np.zeros(active.shape)
    known_rates = np.full(len(STRATA), math.nan)
    for name, share in delays_in_regions(run, window, _CLOCKED).items():
        known_rates[NUMBER[name]] = share
    rate = np.divide(
        known_rates[stratum], active.sum(axis=1), out=np.full(len(stratum), math.nan), where=active.any(axis=1)
    )
    total, other = clock.runnable / clock.wall * float(weight.sum()), np.isnan(rate)
    ns = weight * active.sum(axis=1)
    known = float(ns[~other] @ rate[~other])
    rate[~other] *= min(1.0, total / known) if known else 0.0
    rate[other] = max(0.0, total - known) / max(1.0, float(ns[other].sum()))
    return np.asarray(active * np.minimum(1.0, rate)[:, None])


def _take_core(shares: Floats, without_core: Floats, clock: ThreadTime | None) -> Floats:
    """Return `shares` with the time without a core in its own categories."""
    throttled = clock.throttling.share if clock else 0.0
    remaining, lost = shares - without_core, without_core.sum(axis=1)
    remaining[:, CODE["core"]] += lost * (1 - throttled)
    remaining[:, CODE["throttled"]] += lost * throttled
    return remaining


def native_category(run: Run, host: HostTimeline) -> int:
    """Return the number of the category of native work: operators only launch it if the run states CUDA, or if device
    calls were recorded."""
    device = device_kind(run)
    launches = device == "cuda" or (device != "cpu" and bool(len(host.calls)))
    return CODE["framework" if launches else "compute"]


def _active(
    stacks: Stacks, window: Window, calls: BlockedCalls | None, rows: tuple[Numbers, Floats, Numbers]
) -> Floats:
    """Return the probability of each row to have been active: on a core, or without one though it could have run.

    Where the sampler cannot tell, samples of system calls tell it of each stack, else the file of its innermost frame,
    and the thread's clocks, read each step or 10 ms, give the total.

    :param rows: of each the number of its stack, its ns, and its state (-1: the sampler cannot tell).
    """
    stack, ns, state = rows
    active, unknown = state.astype(np.float64), state < 0
    if not unknown.any():
        return active
    if calls is not None:
        active[unknown] = calls.active(stack)[unknown]
    else:
        numbers, row = np.unique(stack, return_inverse=True)
        leaves = [stacks.run.stack_frames[number][-1:] for number in numbers.tolist()]
        waits = np.array([any(site.file.endswith(_WAITING_FILES) for site in leaf) for leaf in leaves])[row]
        active[unknown] = ~waits[unknown]
    clock = stacks.thread_time(window)
    total = int(window.steps["thread_cpu"].sum()) / window.wall_ns
    if clock is not None:
        total = (clock.on_core + clock.runnable) / clock.wall
    known_active, possible = float(ns[state == 1].sum()), float((ns * active)[unknown].sum())
    if total and possible:
        active[unknown] = np.minimum(1.0, active[unknown] * max(0.0, total * ns.sum() - known_active) / possible)
    return active


def calls_by_line(run: Run, host: HostTimeline, window: Window) -> tuple[dict[tuple[str, int], Floats], Floats]:
    """Return the ns of the recorded calls by category: for each line, by file and line, and for all lines."""
    recorded = np.flatnonzero(host.source != REGION)
    cut = overlaps(host.segments.begin[recorded], host.segments.end[recorded], window.spans)
    row, length, kinds = recorded[cut.left], (cut.end - cut.begin).astype(np.float64), len(HOST_CATEGORIES)
    site = host.calls["site"][host.record[row]].astype(np.int64) + 1
    cells = np.bincount(site * kinds + host.category[row], length, minlength=(len(run.sites) + 1) * kinds)
    table = cells.reshape(-1, kinds)
    by_line: dict[tuple[str, int], Floats] = {}
    for number in np.flatnonzero(table[1:].any(axis=1)).tolist():
        line = run.sites[number].file, run.sites[number].line
        by_line[line] = by_line.get(line, np.zeros(kinds)) + table[number + 1]
    return by_line, table.sum(axis=0)


def _call_line(frames: tuple[Site, ...], lines: Container[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the innermost of these lines among the frames of a stack."""
    return next(((frame.file, frame.line) for frame in reversed(frames) if (frame.file, frame.line) in lines), None)


def _call_shares(run: Run, host: HostTimeline, window: Window, stack: Numbers, region: Numbers) -> Floats:
    """For each sample, the mix of categories of the calls that its innermost line with calls made (or of all calls), or
    the category of the marked region around it (samples x categories)."""
    by_line, average = calls_by_line(run, host, window)
    if not average.any():
        average[CODE["python"]] = 1.0
    numbers, row = np.unique(stack, return_inverse=True)
    mixes = np.zeros((len(numbers), len(HOST_CATEGORIES)))
    for mix, number in zip(mixes, numbers.tolist(), strict=True):
        line = _call_line(run.stack_frames[number], by_line)
        ns = average if line is None else by_line[line]
        mix[:] = ns / ns.sum()
    shares, inside = mixes[row], region >= 0
    shares[inside] = np.eye(len(HOST_CATEGORIES))[region[inside] % len(HOST_CATEGORIES)]
    return shares


def _marked_calls(run: Run, host: HostTimeline, window: Window, rows: tuple[Numbers, Floats]) -> Floats:
    """Return the part of each row that calls take which the program marks itself, by category (rows x categories). No
    frame of a hook shows whether a sample lies in one, so they are spread over the samples at their line.

    :param rows: of each row the number of its stack, and its weight.
    """
    stack, weight = rows
    by_line, _ = calls_by_line(run, host, window)
    lines = {number: _call_line(run.stack_frames[number], by_line) for number in np.unique(stack).tolist()}
    row_lines, parts = [lines[number] for number in stack.tolist()], np.zeros((len(stack), len(HOST_CATEGORIES)))
    for line, ns in by_line.items():
        at_line = np.array([each == line for each in row_lines])
        parts[at_line] = ns / max(float(ns.sum()), float(weight[at_line].sum()))
    return parts


def _replaced(shares: Floats, parts: Floats) -> Floats:
    """Return the shares with these parts in place of as much of the other categories; time without a core stays."""
    others = shares.copy()
    others[:, _NO_CORE] = 0.0
    part = parts.sum(axis=1)[:, None]
    return np.asarray(shares - part * others + parts * others.sum(axis=1)[:, None])
