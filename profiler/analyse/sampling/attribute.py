"""Attributes the time that no record explains to host categories, by their shares of the samples.

Recorded time keeps its exact total. In runs with hooks (`attribute_unrecorded`) the unrecorded time, and that in
`backward` and in `optimizer`, is divided among the categories of their samples, in every step alike, so that each step
still sums to its wall time. The interval of a category is the sampling error plus, if no window sampled the GIL's
holder, the whole range of possible values.

In runs that mark everything themselves (`move_active_python`) samples only prove that the thread ran Python:

    Samples cannot be matched with single gaps of microseconds, since their clock is accurate to milliseconds. So the
    proof is statistical, over the measured window. The active time is what samples saw on a CPU in Python frames (by
    samples that know it, else by the thread's CPU clock). Less the recorded time in which the host was not blocked,
    it is active time that no record explains. That much of the unrecorded time (never more than there is) becomes
    `python`, in each step in proportion to its unrecorded time; the remainder stays unattributed. This is cautious:
    idleness that recorded waits do not explain, and time in which other programs had the CPU, is charged to the
    unrecorded time first. It is blind where the host spins while it waits: as much idleness can then hide. Nothing is
    moved where no record shows the waits of a device for which hosts spin (CUDA without its calls), where little time
    is unrecorded (SUBSTANTIAL), and where samples are few (MIN_SAMPLES).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from profiler.analyse.intervals import Floats
from profiler.analyse.model.measures import HOST_CATEGORIES, MIN_SAMPLES, UNATTRIBUTED
from profiler.analyse.sampling.frames import BACKWARD
from profiler.analyse.sampling.shares import ClassifiedSamples, classify_samples, native_category
from profiler.analyse.sampling.stacks import DIVIDED, FIXED, NUMBER, Numbers, Stacks, has_hooked_steps, stratum_times
from profiler.analyse.statistics import Z, share_interval
from profiler.analyse.timing.breakdown import Strip, recorded_strip, take_core, take_stalls
from profiler.analyse.timing.host_timeline import CODE, HostTimeline, full_timeline
from profiler.analyse.timing.scheduler import step_delays, waits_without_core
from profiler.analyse.window import NS_PER_S, Window, device_kind
from profiler.core.errors import Notice
from profiler.run.model import Run

MIN_STRATUM_SAMPLES: Final = 5
"""Samples of a stratum below which those of all strata divide it: a few samples would miss or invent whole categories
by chance."""
SUBSTANTIAL: Final = 0.002
"""Share of wall time below which unrecorded time stays unattributed: a few seconds of samples cannot tell it from 0."""
MIN_STATE_SHARE: Final = 0.9
"""Share of the sampled time with a recorded CPU state from which samples alone tell how active a thread was."""
_MUCH_GIL: Final = 0.01
"""Share of the steps from which waits for the GIL are taken out of recorded time: less is not worth an interval for
what is known exactly."""
_BLOCKED: Final = ("sync", "waiting", "ranks", "gil")
_HOLDING: Final = [CODE["framework"], CODE["python"]]
"""Categories of the time in which the GIL is held."""
_ALWAYS_POSSIBLE: Final = ("framework", "compute", "python")
"""Categories that have an interval though no sample was in them; any other category has an interval only if a sample
was in it."""


def host_time(stacks: Stacks, window: Window) -> tuple[HostTimeline | None, Strip | None, ClassifiedSamples | None]:
    """Return what the stepping thread did, its steps divided among the categories, and its samples; None at level
    light."""
    run = stacks.run
    if not len(window) or run.info.level == "light":
        return None, None, None
    host = full_timeline(run, window)
    samples, ledger = classify_samples(stacks, window, host), recorded_strip(host, window)
    if run.is_trace:  # it has no stack samples
        return host, ledger, samples
    if has_hooked_steps(run):
        ledger = attribute_unrecorded(ledger, run, window, host, samples)
    else:
        ledger = move_active_python(ledger, stacks, window, host)
    delays, clock = step_delays(run, window), stacks.thread_time(window)
    waits = waits_without_core(run, window)
    if waits is not None:
        ledger = take_stalls(ledger, waits.stalled)
    if delays is not None and clock is not None:
        delays = waits.remaining(delays) if waits is not None else delays
        ledger = take_core(ledger, delays, clock.throttling, _core_weights(samples))
    return host, ledger, samples


def _core_weights(samples: ClassifiedSamples | None) -> Floats:
    """For each category, how much of its time is without a core, relative to the category with most; without enough
    samples, all categories but syncs and waits are alike."""
    usual = np.array([float(name not in _BLOCKED) for name in HOST_CATEGORIES])
    if samples is None or samples.n < MIN_SAMPLES or not samples.without_core.any():
        return usual
    total, without = (samples.weight @ each for each in (samples.shares, samples.without_core))
    rates = np.divide(without, total, out=np.zeros(len(total)), where=total > 0)
    return np.asarray(np.where(total > 0, rates / rates.max(), usual), np.float64)


# ---------------------------------------------------------------- runs with hooks


def attribute_unrecorded(
    ledger: Strip, run: Run, window: Window, host: HostTimeline, samples: ClassifiedSamples | None
) -> Strip:
    """Return the ledger with all unrecorded time attributed, as far as there are samples.

    :param ledger: from the records alone.
    :param samples: None or fewer than MIN_STRATUM_SAMPLES: the unrecorded time stays unattributed. The time in torch's
        backward and optimizer is attributed to torch even then. A few samples give wide intervals.
    """
    exact = samples.exact if samples else stratum_times(run, window, host)
    usable = samples if samples is not None and samples.n >= MIN_STRATUM_SAMPLES else None
    native = native_category(run, host)
    ns = ledger.ns.copy()
    ns[:, CODE["python"]] -= sum(exact[pool] for pool in DIVIDED) - ns[:, CODE[UNATTRIBUTED]]
    ns[:, CODE[UNATTRIBUTED]] = 0
    squares, sums = np.zeros((2, len(HOST_CATEGORIES))), np.zeros((2, len(HOST_CATEGORIES)))
    python_share, backward = 0.0, None
    for pool in DIVIDED:
        undivided = native if pool else CODE[UNATTRIBUTED]
        divided = usable is not None and (
            not pool or usable.n >= MIN_SAMPLES or _count(usable, pool) >= MIN_STRATUM_SAMPLES
        )
        shares, error, uncertainty = _divide(usable, pool) if usable and divided else _single(undivided)
        total = float(exact[pool].sum())
        part = _spread(exact[pool], shares)
        backward = part if pool == BACKWARD else backward
        ns += part
        if usable and usable.gil_coincides:
            error[0, _HOLDING] = np.where(uncertainty[0, _HOLDING] > 0, 0.0, error[0, _HOLDING])
        squares += (error * total) ** 2
        if usable and usable.gil_known:
            squares += (uncertainty * total) ** 2
        else:  # it is the same error in all strata, so it adds up and does not average out
            sums += uncertainty * total
        python_share = python_share if pool else float(shares[CODE["python"]])
    if usable and usable.gil_known:
        _take_gil_waits(ns, squares, usable, window)
    if usable and not usable.gil_known:
        warning = Notice("no-gil-samples")
    elif usable and usable.n >= MIN_SAMPLES:
        warning = None
    elif usable:
        warning = Notice("few-samples", {"samples": round(usable.n), "seconds": seconds_more(usable.n, window)})
    else:
        warning = _too_few(int(exact[""].sum()) / window.wall_ns, 0, "anything")
    spread = _category_intervals(ns, np.sqrt(squares) + sums, window)
    return replace(ledger, ns=ns, python_share=python_share, warning=warning, spread=spread, backward=backward)


def _take_gil_waits(ns: Numbers, squares: Floats, samples: ClassifiedSamples, window: Window) -> None:
    """Take waits for the GIL out of recorded stretches of time, such as a call of the data loader, as the samples in
    each tell.

    :param squares: of the errors of each category, to which those of what is taken are added.
    """
    gil = CODE["gil"]
    for stratum, category in FIXED.items():
        if _count(samples, stratum) < MIN_STRATUM_SAMPLES:
            continue
        shares, error, _ = _divide(samples, stratum)
        total = float(samples.exact[stratum].sum())
        if shares[gil] * total < _MUCH_GIL * window.wall_ns:
            continue
        taken = np.minimum(ns[:, CODE[category]], np.floor(samples.exact[stratum] * shares[gil]).astype(np.int64))
        ns[:, CODE[category]] -= taken
        ns[:, gil] += taken
        squares[:, gil] += (error[:, gil] * total) ** 2
        squares[:, CODE[category]] += (error[::-1, gil] * total) ** 2


def seconds_more(samples: float, window: Window) -> int:
    """For how much longer the program should be recorded until there are MIN_SAMPLES samples in its steps."""
    rate = max(1.0, samples) / (window.wall_ns / NS_PER_S)
    return max(1, math.ceil((MIN_SAMPLES - samples) / rate))


def _too_few(share: float, samples: int, what: str) -> Notice:
    return Notice("unrecorded-time", {"share": share, "samples": samples, "needed": MIN_SAMPLES, "of": what})


def _category_intervals(ns: Numbers, errors: Floats, window: Window) -> Mapping[str, tuple[float, float]]:
    """Return the lowest and highest ns over the window, for each category that depends on samples."""
    sums = ns.sum(axis=0).astype(np.float64)
    low, high = np.maximum(0.0, sums - errors[0]), np.minimum(window.wall_ns, sums + errors[1])
    return {name: (float(low[code]), float(high[code])) for name, code in CODE.items() if errors[:, code].any()}


def _single(code: int) -> tuple[Floats, Floats, Floats]:
    """Return the division of a stratum that is of one category."""
    return np.eye(len(HOST_CATEGORIES))[code], *np.zeros((2, 2, len(HOST_CATEGORIES)))


def _divide(samples: ClassifiedSamples, pool: str) -> tuple[Floats, Floats, Floats]:
    """Divide a stratum by its own samples, or by those of all divided strata if it has only a few.

    :returns: the shares, and how far they may be below and above (2 x categories): the sampling error, and the error
        because the holder of the GIL is not known.
    """
    rows, n = samples.stratum == NUMBER[pool], _count(samples, pool)
    if n < MIN_STRATUM_SAMPLES:
        rows = samples.stratum < len(DIVIDED)
    weight = samples.ns[rows]
    if not weight.sum():
        return _single(CODE[UNATTRIBUTED])
    shares = np.asarray(weight @ samples.shares[rows] / weight.sum(), np.float64)
    uncertainty = np.asarray(weight @ samples.uncertainty[:, rows] / weight.sum(), np.float64)
    ends = np.stack([shares, shares])
    for code, name in enumerate(HOST_CATEGORIES):
        if shares[code] > 0 or name in _ALWAYS_POSSIBLE:
            size = samples.batches.effective_size(rows, samples.shares[rows, code], n)
            ends[:, code] = share_interval(float(shares[code]), size)
    return shares, np.abs(ends - shares), uncertainty


def _count(samples: ClassifiedSamples, pool: str) -> float:
    """Return the number of samples of a stratum."""
    return samples.n * float(samples.ns[samples.stratum == NUMBER[pool]].sum() / samples.ns.sum())


def _spread(ns: Numbers, shares: Floats) -> Numbers:
    """Return integer ns of each step in each category, which sum to `ns`; the rounding remainder goes to the largest
    share."""
    parts = np.floor(ns[:, None] * shares).astype(np.int64)
    parts[:, int(shares.argmax())] += ns - parts.sum(axis=1)
    return parts


# ---------------------------------------------------------------- runs that mark everything themselves


def move_active_python(ledger: Strip, stacks: Stacks, window: Window, host: HostTimeline) -> Strip:
    """Move the unrecorded time that stack samples prove to be active Python to `python`."""
    unrecorded = ledger.ns[:, CODE[UNATTRIBUTED]]
    total, wall = int(unrecorded.sum()), window.wall_ns
    if total < SUBSTANTIAL * wall:
        return ledger
    activity, samples, error = _python_activity(stacks, window)
    if samples < MIN_SAMPLES:
        return replace(ledger, warning=_too_few(total / wall, samples, "calls"))
    if device_kind(stacks.run) == "cuda" and not len(host.calls):  # it may spin in waits, in Python frames and on a CPU
        return replace(ledger, warning=Notice("python-or-cuda-wait", {"share": total / wall}))
    recorded = wall - total - int(ledger.ns[:, CODE["sync"]].sum())
    share = min(1.0, max(0.0, (activity * wall - recorded) / total))
    # cumulative rounding: each step's part is an integer, and the parts sum to the rounded total
    running = np.rint(np.cumsum(unrecorded) * share).astype(np.int64)
    moved = np.minimum(np.diff(running, prepend=0), unrecorded)
    ns = ledger.ns.copy()
    ns[:, CODE[UNATTRIBUTED]] -= moved
    ns[:, CODE["python"]] += moved
    return replace(ledger, ns=ns, python_share=share, python_error=window.per_step(min(error * wall, total)))


def _python_activity(stacks: Stacks, window: Window) -> tuple[float, int, float]:
    """Return the share of the measured time that the thread spent on a CPU in Python frames, the number of samples that
    tell it (0: nothing does), and half of its 95% interval (0: a clock measured it).

    If most samples know whether the thread was on a CPU, they give the share directly. Otherwise (a sampler outside the
    process cannot tell in a fast loop), the thread's CPU clock, read at every step, tells how long it was active, and
    the samples only prove that it was in Python.
    """
    samples, weight = stacks.weighted_samples(window)
    if not len(samples):
        return 0.0, 0, 0.0
    framed = np.array([len(frames) > 0 for frames in stacks.run.stack_frames])[samples["stack"]]
    has_state = samples["active"] >= 0
    if weight[has_state].sum() >= MIN_STATE_SHARE * weight.sum():
        count, active = int(has_state.sum()), framed & (samples["active"] == 1)
        share = float(weight[active].sum() / weight[has_state].sum())
        return share, count, Z * math.sqrt(share * (1 - share) / count)
    cpu = int(window.steps["thread_cpu"].sum())
    if not cpu:
        return 0.0, 0, 0.0
    return float(weight[framed].sum() / weight.sum()) * min(1.0, cpu / window.wall_ns), len(samples), 0.0
