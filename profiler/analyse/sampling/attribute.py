"""Attributes the time that no record explains to host categories, by the stack samples in it.

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

Recorded time keeps its exact total. The unrecorded time, and that in `backward` and in `optimizer`, is divided
among the categories of their samples, in every step alike, so that each step still sums to its wall time. The interval
of a category is the sampling error plus, if no window sampled the GIL's holder, the whole range of possible values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, Times
from profiler.analyse.model import HOST_CATEGORIES, MIN_SAMPLES
from profiler.analyse.sampling.batch_means import (
    Batches,
    batch_edges,
    covered_in_batches,
    make_batches,
    sum_in_batches,
)
from profiler.analyse.sampling.classify import (
    LEAVES,
    REGION_KINDS,
    TORCH_LEAF,
    StackClassifier,
    call_categories,
    per_sample,
    stack_classifier,
)
from profiler.analyse.sampling.frames import CALL, Stack
from profiler.analyse.sampling.gil import (
    USUAL_PERIOD_S,
    Probability,
    batched_gil_probability,
    gil_windows,
    holder_samples,
    sampling_period,
)
from profiler.analyse.sampling.stacks import weighted_samples
from profiler.analyse.sampling.strata import DIVIDED, FIXED, NUMBER, Floats, Numbers, stratum_times, stratum_weights
from profiler.analyse.statistics import share_interval
from profiler.analyse.timing.breakdown import Ledger
from profiler.analyse.timing.categories import CODE
from profiler.analyse.timing.host_timeline import HostTimeline
from profiler.analyse.window import NS_PER_S, Window, device_kind
from profiler.core.notice import Notice
from profiler.run.model import Run
from profiler.run.tables import CallKind

MIN_STRATUM_SAMPLES: Final = 5
"""Samples of a stratum below which those of all strata divide it: a few samples would miss or invent whole categories
by chance."""
_WAITING_FILES: Final = (
    "/selectors.py", "/threading.py", "/multiprocessing/connection.py", "/subprocess.py", "/queue.py",
)  # fmt: skip
"""The standard library's waits: a thread whose innermost frame is there is taken to be off the CPU if nothing else
says."""
_ALWAYS_POSSIBLE: Final = ("framework", "compute", "python")
"""Categories that have an interval though no sample was in them; any other category has an interval only if a sample
was in it."""


@dataclass(frozen=True, eq=False, slots=True)
class ClassifiedSamples:
    """The stepping thread's samples in the measured steps, a row for all with one stack and state."""

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
    n: float
    """The number of samples. In a program with long phases fewer of them are independent; `batches` estimates how
    many."""
    batches: Batches
    window: Window
    exact: Mapping[str, Numbers]
    """Stratum -> ns of it in each measured step, from the records alone; CALL includes all time in calls."""
    gil_known: bool

    def in_stratum(self, name: str) -> npt.NDArray[np.bool_]:
        """Which rows belong to the stratum `name`."""
        return np.asarray(self.stratum == NUMBER[name])


@dataclass(frozen=True, eq=False, slots=True)
class _States:
    """The stratum of each row, the owner of its innermost frame, and the probability that it was on a CPU."""

    window: Window
    stratum: Numbers
    leaf: Numbers
    """One of LEAVES."""
    active: Floats
    working: float = 1.0
    """Share of torch's waits off the CPU during which its own threads worked."""


@dataclass(frozen=True, eq=False, slots=True)
class _GilSampling:
    """When the GIL's holder was sampled, and the batches of time in which samples and holders are compared."""

    windows: Intervals
    edges: Times
    batches: Batches
    n: float
    """The number of samples in `batches`."""


def classify_samples(run: Run, window: Window, host: HostTimeline) -> ClassifiedSamples | None:
    """The classified samples of `window`; None without any."""
    samples, weight = weighted_samples(run, window)
    if not len(samples):
        return None
    sampled = weight.astype(np.float64)
    period = sampling_period(run)
    n = float(sampled.sum() / (period * NS_PER_S) if period else sampled.sum() ** 2 / (sampled**2).sum())
    exact = stratum_times(run, window, host)
    classifier = stack_classifier(run, host, exact)
    # samples of one stack and state are one row: hours of them are millions, of some ten thousand stacks
    inside = classifier.regions_at(samples["begin"])
    key = (samples["stack"].astype(np.int64) * 3 + samples["active"] + 1) * (REGION_KINDS + 1) + inside + 1
    keys, row = np.unique(key, return_inverse=True)
    region, keys = keys % (REGION_KINDS + 1) - 1, keys // (REGION_KINDS + 1)
    ns = np.bincount(row, sampled).astype(np.float64)
    number, state = keys // 3, (keys % 3 - 1).astype(np.int32)
    stacks = classifier.stacks(number)
    category = classifier.categories(stacks, number)
    states = _States(
        window,
        classifier.strata(stacks, number, region),
        classifier.leaves(stacks, number),
        _on_cpu(run, window, number, ns, state),
    )
    native = CODE["framework" if launches_only(run, host) else "compute"]
    if native == CODE["compute"]:
        states = replace(states, working=_working_share(states, ns, category))
    windows = gil_windows(run, window)
    edges = batch_edges(window, windows)
    batches = make_batches(window, edges, samples["begin"], sampled, row)
    gil = _gil_probabilities(classifier, states, _GilSampling(windows, edges, batches, n))
    calls = call_categories(run, host, window, number, region)
    shares, uncertainty = _category_shares(states, category, native, calls, gil or {})
    weights = stratum_weights(states.stratum, ns, exact)
    return ClassifiedSamples(
        number, states.stratum, weights, ns, shares, uncertainty, stacks, n, batches, window, exact, gil is not None
    )


def _working_share(states: _States, ns: Floats, category: Numbers) -> float:
    """Share of torch's waits off the CPU during which the process's other threads can have worked."""
    steps, window = states.window.steps, states.window
    process_cpu = int(steps["process_cpu"].sum())
    waits = (states.stratum < len(DIVIDED)) & (states.leaf == TORCH_LEAF) & (category < 0)
    waiting = float((ns * (1 - states.active))[waits].sum())
    if not process_cpu or not waiting:
        return 1.0
    threads_cpu = process_cpu - int(steps["thread_cpu"].sum())
    return min(1.0, max(0.0, threads_cpu * float(ns.sum()) / (waiting * window.wall_ns)))


def _on_cpu(run: Run, window: Window, number: Numbers, ns: Floats, state: npt.NDArray[np.int32]) -> Floats:
    """The probability of each row to have been on a CPU.

    Where the sampler cannot tell, the thread's CPU clock, read each step or 10 ms, gives the total.
    """
    active = state.astype(np.float64)
    unknown = state < 0
    if not unknown.any():
        return active
    waits = {
        stack: bool(run.stack_frames[stack]) and run.stack_frames[stack][-1].file.endswith(_WAITING_FILES)
        for stack in np.unique(number[unknown]).tolist()
    }
    active[unknown] = 1.0 - per_sample(number, waits)[unknown]
    clock = int(window.steps["thread_cpu"].sum()) / window.wall_ns
    known_active, possible = float(ns[state == 1].sum()), float((ns * active)[unknown].sum())
    if clock and possible:
        active[unknown] *= min(1.0, max(0.0, (clock * ns.sum() - known_active) / possible))
    return active


def _gil_probabilities(
    classifier: StackClassifier, states: _States, sampling: _GilSampling
) -> dict[tuple[int, int], Probability] | None:
    """P(GIL | on a CPU) of each divided stratum and kind of innermost frame; None where no window sampled it."""
    if not len(sampling.windows):
        return None
    holders, ns = holder_samples(classifier.run, states.window, sampling.windows)
    number = holders["stack"].astype(np.int64)
    stacks = classifier.stacks(number)
    stratum = classifier.strata(stacks, number, classifier.regions_at(holders["begin"]))
    leaf = classifier.leaves(stacks, number)
    length = covered_in_batches(sampling.edges, sampling.windows)
    watched_n = sampling.windows.measure() / NS_PER_S / (sampling_period(classifier.run) or USUAL_PERIOD_S)
    sampled = sampling.batches.ns.sum(axis=0)
    probabilities = {}
    for pool in range(len(DIVIDED)):
        for kind in LEAVES:
            same = (stratum == pool) & (leaf == kind)
            rows = (states.stratum == pool) & (states.leaf == kind)
            holding = sum_in_batches(sampling.edges, holders["begin"][same], ns[same])
            on_cpu = states.active[rows] @ sampling.batches.ns[rows]
            probabilities[pool, kind] = batched_gil_probability(
                holding, length, on_cpu, sampled, (watched_n, sampling.n)
            )
    return probabilities


def _category_shares(
    states: _States, category: Numbers, native: int, calls: Floats, gil: Mapping[tuple[int, int], Probability]
) -> tuple[Floats, Floats]:
    """Probabilities of the categories of each row, and how far off they may be.

    :param category: the category that the frames of each row indicate, or -1.
    :param native: the category of native work.
    :param calls: for each row in calls, the shares of their categories.
    """
    shares = np.zeros((len(category), len(HOST_CATEGORIES)))
    uncertainty = np.zeros((2, *shares.shape))
    for pool in range(len(DIVIDED)):
        for kind in LEAVES:
            rows = np.flatnonzero((states.stratum == pool) & (states.leaf == kind) & (category < 0))
            in_torch, busy = kind == TORCH_LEAF, states.active[rows]
            holder = CODE["framework" if in_torch else "python"]
            holding = gil.get((pool, kind), Probability(0.0 if in_torch else 1.0, 0.0, 1.0))
            shares[rows, holder] += busy * holding.value
            shares[rows, native] += busy * (1 - holding.value)
            idle = (1 - busy) * states.working if in_torch else 0.0
            shares[rows, native] += idle
            shares[rows, CODE["python"] if in_torch else holder] += 1 - busy - idle
            if holder != native:
                for code, side in ((holder, 1), (native, 0)):
                    uncertainty[side, rows, code] += busy * (holding.high - holding.value)
                    uncertainty[1 - side, rows, code] += busy * (holding.value - holding.low)
    by_frames = np.flatnonzero((states.stratum < len(DIVIDED)) & (category >= 0))
    shares[by_frames, category[by_frames]] = 1.0
    for name, fixed in FIXED.items():
        shares[states.stratum == NUMBER[name], CODE[fixed]] = 1.0
    rows = states.stratum == NUMBER[CALL]
    shares[rows] = calls[rows]
    return shares, uncertainty


def launches_only(run: Run, host: HostTimeline) -> bool:
    """Whether operators only launch work: the run states CUDA, or device calls were recorded."""
    device = device_kind(run)
    return device == "cuda" or (device != "cpu" and bool((host.calls["kind"] != CallKind.WOULD_SYNC).any()))


# ---------------------------------------------------------------- the ledger


@dataclass(frozen=True, eq=False, slots=True)
class _Division:
    """How one stratum is divided: its shares, and how far they may be below and above (2 x categories)."""

    shares: Floats
    error: Floats
    """The sampling error."""
    uncertainty: Floats
    """The error because the holder of the GIL is not known."""


def attribute_unrecorded(
    ledger: Ledger, run: Run, window: Window, host: HostTimeline, samples: ClassifiedSamples | None
) -> Ledger:
    """Return the ledger with all unrecorded time attributed, as far as there are samples.

    :param ledger: from the records alone.
    :param samples: None or with few samples (MIN_SAMPLES): the unrecorded time stays unattributed. The time in torch's
        backward and optimizer is attributed to torch even then.
    """
    exact = samples.exact if samples else stratum_times(run, window, host)
    native = CODE["framework" if launches_only(run, host) else "compute"]
    ns = ledger.ns.copy()
    ns[:, CODE["python"]] -= sum(exact[pool] for pool in DIVIDED) - ns[:, CODE["unattributed"]]
    ns[:, CODE["unattributed"]] = 0
    error, uncertainty = np.zeros((2, len(HOST_CATEGORIES))), np.zeros((2, len(HOST_CATEGORIES)))
    python_share = 0.0
    for pool in DIVIDED:
        if samples is not None and samples.n >= MIN_SAMPLES:
            division = _divide(samples, pool)
        else:
            division = _undivided(native if pool else CODE["unattributed"])
        total = float(exact[pool].sum())
        ns += _spread(exact[pool], division.shares)
        error += (division.error * total) ** 2
        if samples is not None and samples.gil_known:
            error += (division.uncertainty * total) ** 2
        else:  # it is the same error in all strata, so it adds up and does not average out
            uncertainty += division.uncertainty * total
        python_share = python_share if pool else float(division.shares[CODE["python"]])
    spread = _category_intervals(ns, np.sqrt(error) + uncertainty, window)
    warning = _warning(samples, exact, window)
    return replace(ledger, ns=ns, python_share=python_share, warning=warning, spread=spread)


def _category_intervals(ns: Numbers, errors: Floats, window: Window) -> dict[str, tuple[float, float]]:
    """The lowest and highest ns over the window, for each category that depends on samples."""
    sums = ns.sum(axis=0).astype(np.float64)
    low, high = np.maximum(0.0, sums - errors[0]), np.minimum(window.wall_ns, sums + errors[1])
    return {name: (float(low[code]), float(high[code])) for name, code in CODE.items() if errors[:, code].any()}


def _undivided(code: int) -> _Division:
    return _Division(np.eye(len(HOST_CATEGORIES))[code], *np.zeros((2, 2, len(HOST_CATEGORIES))))


def _divide(samples: ClassifiedSamples, pool: str) -> _Division:
    """Divide a stratum by its own samples, or by those of all divided strata if it has only a few."""
    rows = samples.in_stratum(pool)
    n = samples.n * float(samples.ns[rows].sum() / samples.ns.sum())
    if n < MIN_STRATUM_SAMPLES:
        rows = np.isin(samples.stratum, range(len(DIVIDED)))
    weight = samples.ns[rows]
    if not weight.sum():
        return _undivided(CODE["unattributed"])
    shares = np.asarray(weight @ samples.shares[rows] / weight.sum(), np.float64)
    uncertainty = np.asarray(weight @ samples.uncertainty[:, rows] / weight.sum(), np.float64)
    has_interval = (shares > 0) | np.isin(np.arange(len(shares)), [CODE[name] for name in _ALWAYS_POSSIBLE])
    sizes = [samples.batches.effective_size(rows, column, n) for column in samples.shares[rows].T]
    each = zip(shares.tolist(), sizes, has_interval.tolist(), strict=True)
    ends = np.array([share_interval(share, size) if possible else (share, share) for share, size, possible in each])
    return _Division(shares, np.abs(ends.T - shares), uncertainty)


def _spread(ns: Numbers, shares: Floats) -> Numbers:
    """Integer ns of each step in each category, which sum to `ns`; the rounding remainder goes to the largest share."""
    parts = np.floor(ns[:, None] * shares).astype(np.int64)
    parts[:, int(shares.argmax())] += ns - parts.sum(axis=1)
    return parts


def _warning(samples: ClassifiedSamples | None, exact: Mapping[str, Numbers], window: Window) -> Notice | None:
    if samples is not None and samples.n >= MIN_SAMPLES:
        return None if samples.gil_known else Notice("no-gil-samples")
    values = {
        "share": int(exact[""].sum()) / window.wall_ns,
        "samples": round(samples.n) if samples else 0,
        "needed": MIN_SAMPLES,
        "of": "anything",
    }
    return Notice("unrecorded-time", values)
