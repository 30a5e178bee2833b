"""The device's idle gaps, cut wherever the host's doing changed: the pieces that `blame` adds up.

A gap that begins while the host is blocked in a call is charged to that call until the next call that puts work on the
queue begins: the device ran dry because the host had been waiting for it. (Up to the call's end it is blocked in it,
then it is after it; where a region of input, log or checkpoint ran then, it is named.) Any other part of a gap goes to
the innermost region or call of that moment, and so does the time in which the recorder wrote its own records. Python
between calls has no site of its own: it gets that of the call that follows or, after the last one, of the call before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.categories import CODE, RECORDING, SUBMITTING
from profiler.analyse.device import busy_intervals
from profiler.analyse.host import REGION, HostTimeline
from profiler.analyse.model import HostState, SiteOrigin
from profiler.analyse.timeline import Indices, Intervals, Times, complement, intersect, overlaps, times
from profiler.analyse.window import Window
from profiler.run.model import Run

_NAMED_AFTER_SYNC: Final = tuple(CODE[name] for name in ("input", "log", "checkpoint"))


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """Exclusive pieces of the device's idle time, one row each."""

    gap: Indices
    begin: Times
    end: Times
    doing: Indices
    subject: Indices
    """Number of the region's name or of the CallKind, as `doing` wants; else 0."""
    category: Indices
    site: Indices
    near: Indices


@dataclass(frozen=True, eq=False, slots=True)
class _Cut:
    """The same pieces before they are explained."""

    begin: Times
    end: Times
    gap: Indices
    charged: Indices
    """Row of the call that the piece is charged to, -1 for none."""
    inside: npt.NDArray[np.bool_]
    """Whether that call had not ended yet."""
    segment: Indices
    """Row of the host's segment, -1 for uncovered time."""


def idle_pieces(run: Run, window: Window, host: HostTimeline, *, uncovered: int) -> Pieces:
    """Cut the gaps within the measured steps at every change of what the host was doing, and say what that was."""
    busy, spans = busy_intervals(run, window), window.spans
    low, high = int(window.begin[0]), int(window.end[-1])
    if len(busy):  # whole gaps, also where they reach out of the window: their beginning decides
        low, high = min(low, int(busy.begin[0])), max(high, int(busy.end[-1]))
    gaps = complement(busy, low, high)
    returned, charged_until, charged_call = _charges(gaps, host)
    begin = np.concatenate([gaps.begin, returned, charged_until])
    end = np.concatenate([returned, charged_until, gaps.end])
    call = np.concatenate([charged_call, charged_call, np.full(len(gaps), -1)])
    in_steps = overlaps(begin, end, spans)
    doing, segment = _partition(host, low, high)
    cut = overlaps(in_steps.begin, in_steps.end, doing)
    part = in_steps.left[cut.left]
    rows = _Cut(cut.begin, cut.end, part % len(gaps), call[part], part < len(gaps), segment[cut.right])
    recording = run.names.index(RECORDING) if RECORDING in run.names else -1
    return _explain(host, rows, uncovered, recording)


def _charges(gaps: Intervals, host: HostTimeline) -> tuple[Times, Times, Indices]:
    """For each gap: when the call in which the host was blocked as it began ended, until when it is charged to that
    call, and the call; without one both times are its beginning."""
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
    """Segments in which the host was blocked on the device: sync calls, and the blocked part of any other call."""
    waiting: npt.NDArray[np.bool_] = (host.source != REGION) & (host.category == CODE["sync"])
    return waiting


def _partition(host: HostTimeline, low: int, high: int) -> tuple[Intervals, Indices]:
    """All of [low, high): the host's segments and, between them, uncovered stretches with segment number -1."""
    segments = host.segments
    between = complement(Intervals(segments.begin, segments.end), low, high)
    begin = np.concatenate([segments.begin, between.begin])
    end = np.concatenate([segments.end, between.end])
    number = np.concatenate([np.arange(len(segments.begin)), np.full(len(between), -1)])
    order = np.argsort(begin, kind="stable")
    return Intervals(begin[order], end[order]), times(number[order])


def _explain(host: HostTimeline, cut: _Cut, uncovered: int, recording: int) -> Pieces:
    segment = cut.segment
    covered = segment >= 0
    source = np.where(covered, _at(host.source, segment), -1)
    category = np.where(covered, _at(host.category, segment), uncovered)
    record = _at(host.record, segment)
    in_region = source == REGION
    in_call = covered & ~in_region
    region_name = _at(host.regions["name"], np.where(in_region, record, -1))
    own = in_region & (region_name == recording)
    charged = np.where(own, -1, cut.charged)
    of_sync = charged >= 0
    named = of_sync & ~cut.inside & in_region & np.isin(category, _NAMED_AFTER_SYNC)
    call = np.where(of_sync, charged, np.where(in_call, record, -1))
    waiting = (of_sync & cut.inside) | (~of_sync & in_call & (_at(_waiting(host), segment) > 0))
    doing = np.select(
        [own, waiting, named, of_sync, in_region, in_call],
        [
            HostState.RECORDING, HostState.BLOCKED_IN_CALL, HostState.AFTER_SYNC_IN_REGION, HostState.AFTER_SYNC,
            HostState.IN_REGION, HostState.IN_CALL,
        ],
        HostState.BETWEEN_CALLS,
    )  # fmt: skip
    of_region = named | (in_region & ~of_sync)
    subject = np.where(of_region, region_name, np.where(call >= 0, _at(host.calls["kind"], call), 0))
    site = np.where(call >= 0, _at(host.calls["site"], call), -1)
    between = ~of_sync & ~own & ~in_call & ((source == -1) | (category == CODE["python"]))
    near = np.full(len(site), SiteOrigin.ITSELF, np.int64)
    site[between], near[between] = _nearest_site(host, cut.begin[between], cut.end[between])
    return Pieces(
        cut.gap, cut.begin, cut.end, times(doing), times(subject),
        category=times(np.where(of_sync, CODE["sync"], category)),
        site=times(site),
        near=near,
    )  # fmt: skip


def _at(values: npt.NDArray[np.generic], index: Indices) -> npt.NDArray[np.int64]:
    """values[index], and 0 where there is nothing to take; where that matters the caller masks it."""
    return np.append(times(values), 0)[np.where(index >= 0, index, len(values))]


def _nearest_site(host: HostTimeline, begin: Times, end: Times) -> tuple[Indices, Indices]:
    """Site of the first call that begins at or after `end`; where there is none, of the last before `begin`."""
    known = np.flatnonzero(host.calls["site"] >= 0)
    known = known[np.argsort(host.call_begin[known], kind="stable")]
    starts, sites = host.call_begin[known], times(host.calls["site"])[known]
    if not len(known):
        return np.full(len(begin), -1, np.int64), np.full(len(begin), SiteOrigin.ITSELF, np.int64)
    following = np.searchsorted(starts, end, "left")
    preceding = np.maximum(np.searchsorted(starts, begin, "left") - 1, 0)
    is_following = following < len(known)
    site = np.where(is_following, sites[np.minimum(following, len(known) - 1)], sites[preceding])
    return site, np.where(is_following, SiteOrigin.FOLLOWING_CALL, SiteOrigin.PRECEDING_CALL)


def idle_ns(run: Run, window: Window) -> int:
    """ns of the measured time in which no activity ran."""
    return window.wall_ns - intersect(busy_intervals(run, window), window.spans).measure()
