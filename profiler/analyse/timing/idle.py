"""Divides the device's idle time per step by what the host was doing, and at which line.

A gap is the time between two activities of the device.

- If a gap begins while the host is blocked in a call, it is charged to that call until the next call that submits work
  begins: the device had no work because the host had been waiting for it. The state says whether the call has ended;
  if a region of input, log or checkpoint ran after its end, that region is named. In a foreign trace the part in which
  input is prepared is charged to the input, because it would not be shorter if the wait before it were removed.
- Any other part of a gap is charged to the innermost region or call at that time. So is the time in which the recorder
  wrote its records.
- Time in which the stepping thread had no core is taken out of all parts alike. A device that is a thread, and so may
  lack a core too, counts how much of the waits for it was such time (`WaitsWithoutCore`): then that much is taken out
  of the waits, and the remainder out of all other parts.
- A foreign trace misses the work that was submitted before it began. So the time before its first activity is not the
  host's, as far as the host waited for the device or that activity was submitted already.
- In a foreign trace, the device may start long after its next activity was submitted. It waits for an event, another
  stream or another program then, and the rest of the gap is not charged to the host.
- In a foreign trace, launching operators and setting the device up may take far longer in a part of the trace than in
  most parts, as first calls do. What exceeds the usual there occurs once (`_unusual`).
- Python between calls has no site of its own. It gets the site of the next call or, after the last one, of the
  previous call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Indices, Intervals, Overlaps, Times, complement, overlaps, times
from profiler.analyse.model.device import HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.measures import HOST_CATEGORIES, LEAST_STEPS, UNATTRIBUTED
from profiler.analyse.timing.breakdown import busy_intervals
from profiler.analyse.timing.host_timeline import CODE, FRAME, RECORDING, REGION, SUBMITTING, HostTimeline
from profiler.analyse.window import Window, process_rows
from profiler.run.model import Run
from profiler.run.tables import CallKind

_LEAST_CORE: Final = 0.01
"""Share of the wall time from which idle time without a core is a row of its own: a choice."""
_START_NS: Final = 50_000
"""ns within which a device starts what it has; later, something else delays it. Measured in the public traces: 1 to
6 µs on NVIDIA's GPUs, 8 to 22 µs on AMD's MI300."""
_PARTS: Final = 4
"""Parts of equally many launches into which a trace with fewer than LEAST_STEPS steps is divided. A choice."""
_USUAL_SETUP: Final = 2.0
_USUAL_LAUNCHING: Final = 20.0
"""Times the median of the parts from which the time of a part occurs once: of calls that allocate or set the device up,
and of launching operators, of which a step may have very different ones. A choice."""
_LAUNCHING: Final = (CallKind.LAUNCH, CallKind.MEMSET, CallKind.EVENT)
"""Calls that torch makes in order to launch an operator. Other calls of the category `launch` set the device up."""
_NAMED_AFTER_SYNC: Final = tuple(CODE[name] for name in ("input", "log", "checkpoint"))


@dataclass(frozen=True, eq=False, slots=True)
class IdlePieces:
    """Exclusive pieces of the device's idle time, one row each."""

    gap: Indices
    begin: Times
    end: Times
    state: Indices
    subject: Indices
    """Number of the region's name or of the CallKind, as `state` requires; else 0. A call of kind OTHER has its name
    instead, counted from the last CallKind on. So has one of a foreign trace that allocates or frees memory."""
    category: Indices
    site: Indices
    origin: Indices


def idle_blame(run: Run, window: Window, host: HostTimeline, *, unrecorded_is_python: bool) -> tuple[IdleBlame, ...]:
    """Idle seconds per step by state of the host, category and site, largest first.

    :param unrecorded_is_python: time outside of any region and call is Python by stack samples, else unattributed.
    """
    category = CODE["python" if unrecorded_is_python else UNATTRIBUTED]
    pieces = idle_pieces(run, window, host, unrecorded=category)
    if not len(pieces.gap):
        return ()
    is_once = np.zeros(len(pieces.gap), np.bool_)
    if host.site is not None:
        pieces = _with_submitted(run, window, pieces)
        is_once = _occur_once(run, window, pieces)
    subjects = len(CallKind) + len(run.names)
    shape = (len(HostState), len(SiteOrigin), len(HOST_CATEGORIES), subjects, len(run.sites) + 1, 2)
    columns = (pieces.state, pieces.origin, pieces.category, pieces.subject, pieces.site + 1, times(is_once))
    keys, group = np.unique(np.ravel_multi_index(columns, shape), return_inverse=True)
    ns = np.bincount(group, pieces.end - pieces.begin)
    # in how many gaps each group has a piece (np.unique would hash, at ten times the time of this sort)
    width = int(pieces.gap.max()) + 1
    pairs = np.sort(group * width + pieces.gap)
    gaps = np.bincount(pairs[np.diff(pairs, prepend=-1) > 0] // width)
    parts = (part.tolist() for part in np.unravel_index(keys, shape))
    rows = [
        IdleBlame(
            HostState(state),
            _subject(HostState(state), run.names, subject),
            SiteOrigin(origin),
            HOST_CATEGORIES[category],
            run.sites[site - 1] if site else None,
            window.per_step(float(ns[number])),
            float(ns[number]) / window.wall_ns,
            float(gaps[number]) / len(window),
            bool(once),
        )
        for number, (state, origin, category, subject, site, once) in enumerate(zip(*parts, strict=True))
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.state, row.subject, str(row.site))))


def split_off_core(
    rows: Sequence[IdleBlame], *, delayed: float, stalled: float | None, waited: float = 0.0
) -> tuple[IdleBlame, ...]:
    """Take idle time without a core out of the other rows, as a row of its own, the last one.

    :param delayed: share of the wall time in which the stepping thread could have run and had no core.
    :param stalled: share of the wall time in which it waited for the device, and one of both had no core; `delayed` is
        without it then. None: not counted.
    :param waited: share of the wall time in which it waited for the device, whether that was idle or busy.
    """
    blocked = sum(row.share_of_wall for row in rows if row.state is HostState.BLOCKED_IN_CALL)
    waited = max(waited, blocked)
    if stalled is None:
        own = own_blocked = 1.0 - min(1.0, delayed)
    else:
        own = 1.0 - min(1.0, delayed / max(delayed, 1.0 - waited, 1e-9))
        own_blocked = 1.0 - min(1.0, stalled / max(waited, 1e-9))
    kept = []
    for row in rows:
        part = own_blocked if row.state is HostState.BLOCKED_IN_CALL else own
        kept.append(replace(row, share_of_wall=part * row.share_of_wall, seconds_per_step=part * row.seconds_per_step))
    share, seconds = (
        sum(getattr(row, name) for row in rows) - sum(getattr(row, name) for row in kept)
        for name in ("share_of_wall", "seconds_per_step")
    )
    if share < _LEAST_CORE:
        return tuple(rows)
    kept.append(IdleBlame(HostState.WITHOUT_CORE, "", SiteOrigin.ITSELF, "core", None, seconds, share, 0.0))
    return tuple(sorted(kept, key=lambda row: (row.state is HostState.WITHOUT_CORE, -row.seconds_per_step)))


def _subject(state: HostState, names: tuple[str, ...], number: int) -> str:
    """Return the kind of the call or name of the region that a state refers to."""
    if state in (HostState.AFTER_SYNC, HostState.IN_CALL, HostState.BLOCKED_IN_CALL):
        return CallKind(number).name.lower() if number < len(CallKind) else names[number - len(CallKind)]
    return names[number] if state in (HostState.AFTER_SYNC_IN_REGION, HostState.IN_REGION) else ""


def idle_pieces(run: Run, window: Window, host: HostTimeline, *, unrecorded: int) -> IdlePieces:
    """Cut the gaps within the measured steps at every change of what the host was doing, and tell what that was.

    :param unrecorded: number of the category of time outside of any region and call.
    """
    gaps, low, high = _gaps(run, window)
    returned, charged_until, charged_call = _charges(gaps, host)
    # each gap in three parts: until that call returns, until more work is submitted, and the remainder
    begin = np.concatenate([gaps.begin, returned, charged_until])
    end = np.concatenate([returned, charged_until, gaps.end])
    in_steps = overlaps(begin, end, window.spans)
    stretches, segment = partition(host, low, high)
    cut = overlaps(in_steps.begin, in_steps.end, stretches)
    part, gap = np.divmod(in_steps.left[cut.left], len(gaps))
    segment, recorder = segment[cut.right], run.names.index(RECORDING) if RECORDING in run.names else -1

    recorded = segment >= 0
    source = np.where(recorded, _take(host.source, segment), -1)
    record = _take(host.record, segment)
    category = np.where(recorded, _take(host.category, segment), unrecorded)
    in_region, in_call = source == REGION, recorded & (source != REGION)
    region_name = _take(host.regions["name"], np.where(in_region, record, -1))
    by_recorder = in_region & (region_name == recorder)
    in_frame = in_region & np.array([name.startswith(FRAME) for name in run.names] or [False])[region_name]
    in_input = (part == 1) & (category == CODE["input"]) & (host.site is not None)
    charged = np.where(by_recorder | in_input | (part == 2), -1, charged_call[gap])
    by_sync = charged >= 0
    in_named_region = by_sync & (part > 0) & in_region & ~in_frame & np.isin(category, _NAMED_AFTER_SYNC)
    call = np.where(by_sync, charged, np.where(in_call, record, -1))
    waiting = (by_sync & (part == 0)) | (~by_sync & in_call & (_take(_waiting(host), segment) > 0))
    earlier = _is_earlier_work(run, window, cut, waiting) if host.site is not None else np.zeros(len(waiting), np.bool_)
    state = np.select(
        [by_recorder, earlier, waiting, in_named_region, by_sync, in_frame, in_region, in_call],
        [
            HostState.RECORDING, HostState.EARLIER_WORK, HostState.BLOCKED_IN_CALL, HostState.AFTER_SYNC_IN_REGION,
            HostState.AFTER_SYNC, HostState.IN_PYTHON, HostState.IN_REGION, HostState.IN_CALL,
        ],
        HostState.BETWEEN_CALLS,
    )  # fmt: skip
    names_region = in_named_region | (in_region & ~in_frame & ~by_sync)
    kind = _take(host.calls["kind"], call)
    named = (CallKind.OTHER,) if host.site is None else (CallKind.OTHER, CallKind.ALLOC, CallKind.FREE)
    of_call = np.where(np.isin(kind, named), len(CallKind) + _take(host.calls["name"], call), kind)
    subject = np.where(names_region, region_name, np.where(call >= 0, of_call, 0))
    site = np.where(call >= 0, _take(host.calls["site"], call), -1)
    if host.site is not None:
        site = np.where(by_sync, site, np.where(recorded, _take(host.site, segment), -1))
    between = (host.site is None) & ~by_sync & ~by_recorder & ~in_call & ((source == -1) | (category == CODE["python"]))
    origin = np.full(len(site), SiteOrigin.ITSELF, np.int64)
    site[between], origin[between] = _nearest_site(host, cut.begin[between], cut.end[between])
    return IdlePieces(
        gap, cut.begin, cut.end, times(state), times(subject),
        category=times(np.where(by_sync, CODE["sync"], category)),
        site=times(site),
        origin=origin,
    )  # fmt: skip


def _is_earlier_work(
    run: Run, window: Window, pieces: Overlaps, waiting: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which pieces precede the first activity of a trace, while the host waits or that activity is submitted."""
    activities, calls = process_rows(run.activities, window), process_rows(run.calls, window)
    first = activities[np.argmin(activities["begin"])] if len(activities) else None
    if first is None:
        return np.zeros(len(waiting), np.bool_)
    submitting = calls[(calls["correlation"] == first["correlation"]) & (first["correlation"] > 0)]
    submitted = int(submitting["end"].max()) if len(submitting) else int(first["begin"])
    return np.asarray((pieces.end <= int(first["begin"])) & (waiting | (pieces.begin >= submitted)))


def _gaps(run: Run, window: Window) -> tuple[Intervals, int, int]:
    """Return the gaps in the device's work, and the begin and the end of the time in which they are. They are entire
    also where they reach out of the window: their beginning decides."""
    busy = busy_intervals(run, window)
    low, high = int(window.begin[0]), int(window.end[-1])
    if len(busy):
        low, high = min(low, int(busy.begin[0])), max(high, int(busy.end[-1]))
    return complement(busy, low, high), low, high


def _with_submitted(run: Run, window: Window, pieces: IdlePieces) -> IdlePieces:
    """Cut the pieces of a foreign trace where the device had its next work: from then on they are not the host's."""
    until, in_graph = _submissions(run, window, _gaps(run, window)[0])
    cut = np.where(pieces.state == HostState.EARLIER_WORK, pieces.end, until[pieces.gap])
    cut = np.clip(cut, pieces.begin, pieces.end)
    of_host, of_device = np.flatnonzero(cut > pieces.begin), np.flatnonzero(cut < pieces.end)
    gap = pieces.gap[of_device]
    state = np.where(in_graph[gap], HostState.WITHIN_GRAPH, HostState.SUBMITTED)

    def both(mine: Indices, theirs: npt.ArrayLike) -> Indices:
        return np.concatenate([mine[of_host], np.broadcast_to(times(theirs), len(of_device))])

    return IdlePieces(
        both(pieces.gap, gap), both(pieces.begin, cut[of_device]), both(cut, pieces.end[of_device]),
        both(pieces.state, state), both(pieces.subject, 0), both(pieces.category, CODE[UNATTRIBUTED]),
        both(pieces.site, -1), both(pieces.origin, SiteOrigin.ITSELF),
    )  # fmt: skip


def _submissions(run: Run, window: Window, gaps: Intervals) -> tuple[Times, npt.NDArray[np.bool_]]:
    """For each gap from when on something else than the host delays the activity that ends it, at most the end of the
    gap; and whether the call that submitted that activity also submitted the one before the gap."""
    activities, calls = process_rows(run.activities, window), process_rows(run.calls, window)
    calls = calls[calls["correlation"] > 0]
    calls = calls[np.argsort(calls["correlation"], kind="stable")]
    until, in_graph = gaps.end.copy(), np.zeros(len(gaps), np.bool_)
    if not len(calls) or not len(activities):
        return until, in_graph
    first = activities[np.argsort(activities["begin"], kind="stable")]
    last = activities[np.argsort(activities["end"], kind="stable")]
    following = np.minimum(np.searchsorted(first["begin"], gaps.end), len(first) - 1)
    before = np.maximum(np.searchsorted(last["end"], gaps.begin, "right") - 1, 0)
    number = first["correlation"][following]
    at = np.minimum(np.searchsorted(calls["correlation"], number), len(calls) - 1)
    is_known = (first["begin"][following] == gaps.end) & (calls["correlation"][at] == number)
    in_graph = is_known & (last["correlation"][before] == number)
    submitted = np.maximum(times(calls["end"])[at], gaps.begin)
    is_late = is_known & ((gaps.end - submitted > _START_NS) | (in_graph & (submitted < gaps.end)))
    until[is_late] = submitted[is_late]
    return until, in_graph


def _parts(run: Run, window: Window, moments: Times) -> Indices:
    """Return the part of the measured time in which each moment lies: its step, or with few steps a part of equally
    many launches. Without launches all of it is one part."""
    if len(window) >= LEAST_STEPS:
        return window.step_rows(moments)
    calls = process_rows(run.calls, window)
    launches = np.sort(times(calls["begin"][calls["kind"] == CallKind.LAUNCH]))
    launches = launches[window.step_rows(launches) >= 0]
    if len(launches) < _PARTS:
        return np.zeros(len(moments), np.int64)
    return times(np.searchsorted(launches, moments, "left") * _PARTS // (len(launches) + 1))


def _occur_once(run: Run, window: Window, pieces: IdlePieces) -> npt.NDArray[np.bool_]:
    """Return which pieces of launching operators, and of setting the device up, occur once."""
    in_call = pieces.category == CODE["launch"]
    is_launching = (pieces.category == CODE["framework"]) | (in_call & np.isin(pieces.subject, _LAUNCHING))
    ns = np.where(pieces.state == HostState.EARLIER_WORK, 0, pieces.end - pieces.begin)
    parts = _parts(run, window, pieces.begin)
    setting_up = _unusual(np.where(in_call & ~is_launching, ns, 0), parts, _USUAL_SETUP)
    return setting_up | _unusual(np.where(is_launching, ns, 0), parts, _USUAL_LAUNCHING)


def _unusual(ns: Times, parts: Indices, times_usual: float) -> npt.NDArray[np.bool_]:
    """Return the longest pieces of parts that take many times as long as the median part. There are none if LEAST_STEPS
    parts or more do, because that recurs.

    :param ns: the length of each piece, 0 where it does not count.
    :param times_usual: times the median from which a part is no usual one.
    """
    is_once = np.zeros(len(ns), np.bool_)
    sums = np.bincount(parts, ns, minlength=int(parts.max(initial=0)) + 1)
    usual = times_usual * float(np.quantile(sums, 0.5, method="lower"))
    unusual = np.flatnonzero(sums > usual)
    if len(sums) < LEAST_STEPS or len(unusual) >= LEAST_STEPS:
        return is_once
    for number in unusual.tolist():
        rows = np.flatnonzero((parts == number) & (ns > 0))
        rows = rows[np.argsort(-ns[rows], kind="stable")]
        left = sums[number] - np.cumsum(ns[rows]) + ns[rows]
        is_once[rows[left > usual]] = True
    return is_once


def _charges(gaps: Intervals, host: HostTimeline) -> tuple[Times, Times, Indices]:
    """For each gap that begins while the host is blocked in a call: the end of that call, the time until which the gap
    is charged to it, and the call. For other gaps both times are the beginning of the gap, and the call is -1."""
    segments, calls = host.segments, host.calls
    if not len(segments.begin) or not len(calls):
        return gaps.begin, gaps.begin, np.full(len(gaps), -1, np.int64)
    at = np.maximum(np.searchsorted(segments.begin, gaps.begin, "right") - 1, 0)
    inside = (segments.begin[at] <= gaps.begin) & (gaps.begin < segments.end[at])
    call = np.where(inside & _waiting(host)[at], host.record[at], -1)
    submits = np.sort(host.call_begin[np.isin(calls["kind"], SUBMITTING)])
    following = np.searchsorted(submits, gaps.begin, "right")
    submitted = np.append(submits, np.iinfo(np.int64).max)[following]
    until = np.where(call >= 0, np.minimum(submitted, gaps.end), gaps.begin)
    return np.minimum(until, np.where(call >= 0, times(calls["end"])[call], gaps.begin)), until, call


def _waiting(host: HostTimeline) -> npt.NDArray[np.bool_]:
    """Return whether the host was blocked on the device, for each segment: in sync calls and in the blocked part of any
    other call."""
    return np.asarray((host.source != REGION) & (host.category == CODE["sync"]))


def partition(host: HostTimeline, low: int, high: int) -> tuple[Intervals, Indices]:
    """Return all of [low, high): the host's segments and, between them, unrecorded stretches with segment number -1."""
    segments = host.segments
    between = complement(Intervals(segments.begin, segments.end), low, high)
    begin = np.concatenate([segments.begin, between.begin])
    end = np.concatenate([segments.end, between.end])
    number = np.concatenate([np.arange(len(segments.begin)), np.full(len(between), -1)])
    order = np.argsort(begin, kind="stable")
    return Intervals(begin[order], end[order]), times(number[order])


def _take(values: npt.NDArray[np.generic], index: Indices) -> npt.NDArray[np.int64]:
    """Return values[index], with 0 for an index of -1, which callers mask out."""
    return np.append(times(values), 0)[np.where(index >= 0, index, len(values))]


def _nearest_site(host: HostTimeline, begin: Times, end: Times) -> tuple[Indices, Indices]:
    """Return the site of the first call that begins at or after `end`; where there is none, of the last before
    `begin`."""
    with_site = np.flatnonzero(host.calls["site"] >= 0)
    with_site = with_site[np.argsort(host.call_begin[with_site], kind="stable")]
    starts, sites = host.call_begin[with_site], times(host.calls["site"])[with_site]
    if not len(with_site):
        return np.full(len(begin), -1, np.int64), np.full(len(begin), SiteOrigin.ITSELF, np.int64)
    following = np.searchsorted(starts, end, "left")
    preceding = np.maximum(np.searchsorted(starts, begin, "left") - 1, 0)
    is_following = following < len(with_site)
    site = np.where(is_following, sites[np.minimum(following, len(with_site) - 1)], sites[preceding])
    return site, np.where(is_following, SiteOrigin.FOLLOWING_CALL, SiteOrigin.PRECEDING_CALL)
