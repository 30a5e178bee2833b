"""Predicts what changes of a step give, by a simulation of the recorded steps: the changes, and their schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, Times, covered_within, times, union
from profiler.analyse.model.finding import Cure, GainMethod, Prediction
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.simulation import NOTHING, Flags, ReplayTimeline, Schedule, Simulated, simulate, timeline
from profiler.analyse.timing.host_timeline import CODE, FRAME, OPERATOR, HostTimeline
from profiler.analyse.window import Window, process_rows
from profiler.run.model import Run, StepKind
from profiler.run.tables import ActivityKind, CallKind

_MOST_ACTIVITIES: Final = 50_000
"""Activities that are simulated at most, in whole steps from the first one on: 0.1 s for each change."""
Factors = npt.NDArray[np.float64]

OVERLAPPED: Final = "overlapped"
_SHORT: Final = 10_000
"""ns below which a kernel is fused with the one before it: about what the launch of one costs the host."""
_COPIES: Final = (ActivityKind.H2D, ActivityKind.D2H, ActivityKind.D2D)
_WAITS_OF_COPIES: Final = (CallKind.H2D, CallKind.D2H, CallKind.D2D, CallKind.SYNC)
_READ: Final = 1 << 14
"""Bytes below which a copy to the host is the read of a value, for which the host must wait."""
_LAUNCHING: Final = (CallKind.LAUNCH, CallKind.MEMSET, CallKind.EVENT)
"""Calls that launch; others of the category `launch` set the device up, or allocate."""


class Replay:
    """The measured steps of a run whose device's activities were recorded, to be simulated with changes."""

    def __init__(self, run: Run, window: Window, host: HostTimeline, unrecorded: str) -> None:
        """:param unrecorded: the host category of time of which nothing was recorded."""
        self._run, self._window, self._host, self._unrecorded = run, _first_steps(run, window), host, unrecorded
        self._is_whole = run.step is not None and run.step.kind is StepKind.WHOLE_TRACE

    @cached_property
    def timeline(self) -> ReplayTimeline:
        """Return what the replay starts from."""
        return timeline(self._run, self._window, self._host, self._unrecorded)

    @cached_property
    def unchanged(self) -> Simulated:
        """Return the replay without any change."""
        same = schedule(self.timeline, (), self._run, self._window)
        assert same is not None
        return simulate(same)

    @property
    def measured(self) -> float:
        """Return the seconds of a step as it was recorded."""
        return self._per_step(int(self._window.end[-1] - self._window.begin[0]))

    @property
    def replayed(self) -> float:
        """Return the seconds of a step by the replay without any change."""
        return self._per_step(self.unchanged.both if self._is_whole else self.unchanged.host)

    @property
    def explained(self) -> float:
        """Return the same without the delays that nothing recorded explains: only by what waits for what."""
        same = schedule(self.timeline, (), self._run, self._window)
        assert same is not None
        simulated = simulate(replace(same, delay=np.zeros_like(same.delay)))
        return self._per_step(simulated.both if self._is_whole else simulated.host)

    @property
    def unexplained(self) -> float:
        """Return the share of the measured time by which activities began late for an unknown reason, or calls returned
        late."""
        unknown = self.timeline.unexplained + int(self.timeline.delay.sum())
        return unknown / max(1, int(self._window.end[-1] - self._window.begin[0]))

    def predict(self, cures: Sequence[Cure], remaining: float = 0.0) -> Prediction | None:
        """Return what these changes give; None where nothing of what they change was recorded.

        :param remaining: seconds per step that the cured program needs instead.
        :raises KeyError: nothing in the run bears the name of a change.
        """
        changed = schedule(self.timeline, cures, self._run, self._window)
        if changed is None:
            return None
        if remaining:
            changed = replace(changed, work=changed.work + round(remaining * 1e9 * len(self._window)))
        before, after = self._step(self.unchanged), self._step(simulate(changed))
        return Prediction(GainMethod.REPLAY, before, after, self.measured, self.replayed, self.unexplained)

    def names(self) -> Sequence[str]:
        """Return the names of regions, operators and functions that can be changed, those with most time first."""
        return names(self._run, self._window)

    def _step(self, simulated: Simulated) -> float:
        """Return the seconds of a step. A trace without steps is simulated once, others as steps in a row."""
        return self._per_step(simulated.both if self._is_whole else simulated.steady)

    def _per_step(self, ns: int) -> float:
        return self._window.per_step(ns)


def _first_steps(run: Run, window: Window) -> Window:
    """Return the first of the measured steps that have as many activities as are simulated, and at least one step."""
    begins = np.sort(process_rows(run.activities, window)["begin"])
    until = np.searchsorted(begins, window.end) - np.searchsorted(begins, window.begin[0])
    count = max(1, int(np.searchsorted(until, _MOST_ACTIVITIES, "right")))
    if count >= len(window):
        return window
    return replace(window, steps=window.steps[:count], begin=window.begin[:count], end=window.end[:count])


def schedule(timeline: ReplayTimeline, cures: Sequence[Cure], run: Run, window: Window) -> Schedule | None:
    """Return the schedule of a timeline with changes; None if they change nothing of it.

    :raises KeyError: nothing in the run bears the name of a change.
    """
    state = _Changes.unchanged(timeline)
    for cure in cures:
        state = _apply(state, timeline, cure, run, window)
    same = _Changes.unchanged(timeline)
    if cures and all(np.array_equal(getattr(state, name), getattr(same, name)) for name in _Changes.__slots__):
        return None
    return _schedule(timeline, state)


@dataclass(frozen=True, eq=False, slots=True)
class _Changes:
    """What remains of each piece of the host's time, of each wait, and of each activity."""

    pieces: Factors
    waits: Flags
    activities: Factors
    gaps: Factors
    queue: npt.NDArray[np.int64]

    @classmethod
    def unchanged(cls, timeline: ReplayTimeline) -> _Changes:
        pieces, activities = len(timeline.begin), len(timeline.activities)
        return cls(
            np.ones(pieces), timeline.waiting.copy(), np.ones(activities), np.ones(activities), timeline.queue.copy()
        )


def _apply(state: _Changes, timeline: ReplayTimeline, cure: Cure, run: Run, window: Window) -> _Changes:
    kind = timeline.activities["kind"]
    if cure.name == "sync":
        numbers = [number for number, site in enumerate(run.sites) if site in cure.sites]
        is_at = np.isin(np.append(timeline.calls["site"], -1)[timeline.call], numbers) | (not cure.sites)
        return _without_waits(state, timeline.waiting & is_at)
    if cure.name == "copies":
        return _copies(state, timeline, cure.word)
    if cure.name == "kernels":
        return _fused(state, timeline)
    if cure.name == "copy":
        return replace(
            state,
            pieces=_scaled(state.pieces, _is_category(timeline, "copy"), cure.factor),
            activities=_scaled(state.activities, np.isin(kind, _COPIES), cure.factor),
        )
    if cure.name == "communication":
        return replace(state, activities=_scaled(state.activities, kind == ActivityKind.COMMUNICATION, cure.factor))
    if cure.name == "compute":
        state = replace(state, activities=_scaled(state.activities, kind == ActivityKind.KERNEL, cure.factor))
    if cure.name in ("launch", "allocation"):
        chosen = _is_launching(timeline) if cure.name == "launch" else _is_set_up(timeline)
        return replace(state, pieces=_scaled(state.pieces, chosen, cure.factor))
    if cure.name in HOST_CATEGORIES:
        return replace(state, pieces=_scaled(state.pieces, _is_category(timeline, cure.name), cure.factor))
    return _named(state, timeline, cure, run, window)


def _scaled(values: Factors, chosen: Flags, factor: float) -> Factors:
    return np.where(chosen, factor * values, values)


def _is_category(timeline: ReplayTimeline, name: str) -> Flags:
    return np.asarray(timeline.category == CODE[name])


def _is_launching(timeline: ReplayTimeline) -> Flags:
    """Return what the host needs to launch: torch's work around operators, and the calls themselves."""
    return _is_category(timeline, "framework") | (_is_category(timeline, "launch") & ~_is_set_up(timeline))


def _is_set_up(timeline: ReplayTimeline) -> Flags:
    """Return the calls that allocate memory, free it, or set the device up."""
    kinds = np.append(timeline.calls["kind"], CallKind.OTHER)[timeline.call]
    return _is_category(timeline, "launch") & ~np.isin(kinds, _LAUNCHING)


def _without_waits(state: _Changes, dropped: Flags) -> _Changes:
    """Without these waits, and without the rest of the calls that make them."""
    rest = np.zeros(len(dropped), np.bool_)
    rest[1:] = dropped[:-1]
    return replace(state, waits=state.waits & ~dropped, pieces=np.where(rest, 0.0, state.pieces))


def _copies(state: _Changes, timeline: ReplayTimeline, word: str) -> _Changes:
    """Return copies for which the host does not wait; overlapped ones have queues of their own, too."""
    activities = timeline.activities
    is_copy = np.isin(activities["kind"], _COPIES)
    is_read = (activities["kind"] == ActivityKind.D2H) & (activities["bytes"] < _READ)
    # torch waits for the stream after a copy of pageable memory: that wait goes, too
    target = np.append(is_copy & ~is_read, False)[np.where(timeline.wait_for >= 0, timeline.wait_for, -1)]
    kinds = np.append(timeline.calls["kind"], CallKind.OTHER)[timeline.call]
    state = _without_waits(state, timeline.waiting & target & np.isin(kinds, _WAITS_OF_COPIES))
    if word == OVERLAPPED:
        queue = np.where(is_copy, state.queue.max(initial=0) + 1 + activities["kind"], state.queue)
        state = replace(state, queue=times(queue))
    return state


def _fused(state: _Changes, timeline: ReplayTimeline) -> _Changes:
    """Return short kernels that follow each other in a queue are launched as one, without gaps between them."""
    activities = timeline.activities
    length = times(activities["end"]) - times(activities["begin"])
    is_short = (activities["kind"] == ActivityKind.KERNEL) & (length < _SHORT)
    order = np.lexsort((np.arange(len(length)), timeline.queue))
    follows = np.zeros(len(length), np.bool_)
    same = (timeline.queue[order][1:] == timeline.queue[order][:-1]) & is_short[order][1:] & is_short[order][:-1]
    follows[order[1:]] = same
    # the host's time in launching, from each kernel to the next one that is fused with it
    begin = timeline.submitted[order[:-1][same]]
    end = timeline.submitted[order[1:][same]]
    saved = union(begin, end)
    parts = covered_within(saved, timeline.begin, timeline.end) / np.maximum(timeline.end - timeline.begin, 1)
    chosen = _is_launching(timeline)
    return replace(
        state,
        pieces=np.where(chosen, state.pieces * (1.0 - parts), state.pieces),
        gaps=np.where(follows, 0.0, state.gaps),
    )


def _named(state: _Changes, timeline: ReplayTimeline, cure: Cure, run: Run, window: Window) -> _Changes:
    """Return a region, an operator or a function, with the work that it submits; or kernels."""
    spans = named_spans(run, window, cure.name)
    if spans is None:
        raise KeyError(cure.name)
    parts = covered_within(spans, timeline.begin, timeline.end) / np.maximum(timeline.end - timeline.begin, 1)
    at = np.searchsorted(spans.begin, timeline.submitted, "right") - 1
    inside = (at >= 0) & (timeline.submitted < np.append(spans.end, 0)[at])
    left = 1.0 - parts * (1.0 - cure.factor)
    waits = state.waits & ~((parts > 0.5) & (cure.factor == 0.0))
    return replace(
        state, pieces=state.pieces * left, waits=waits, activities=_scaled(state.activities, inside, cure.factor)
    )


def named_spans(run: Run, window: Window, name: str) -> Intervals | None:
    """Return when regions, operators or functions of this name ran; None if there are none."""
    numbers = [number for number, text in enumerate(run.names) if name in _plain_names(text)]
    regions = process_rows(run.regions, window)
    rows = regions[np.isin(regions["name"], numbers)]
    rows = rows[(rows["end"] > window.begin[0]) & (rows["begin"] < window.end[-1])]
    return union(rows["begin"], rows["end"]) if len(rows) else None


def _plain_names(text: str) -> Sequence[str]:
    """Return the names by which a region can be called: its own, an operator's, and those of a function."""
    if text.startswith(OPERATOR):
        return text, text.removeprefix(OPERATOR)
    if text.startswith(FRAME):
        frame = text.removeprefix(FRAME)
        return frame, frame.rpartition("): ")[2]
    return (text,)


def names(run: Run, window: Window) -> tuple[str, ...]:
    """Return the names of regions, operators and functions in the measured steps, those with most time first."""
    regions = process_rows(run.regions, window)
    regions = regions[(regions["end"] > window.begin[0]) & (regions["begin"] < window.end[-1])]
    total = np.bincount(regions["name"], times(regions["end"]) - times(regions["begin"]), minlength=len(run.names))
    return tuple(_plain_names(run.names[number])[-1] for number in np.argsort(-total).tolist() if total[number] > 0)


def _schedule(timeline: ReplayTimeline, state: _Changes) -> Schedule:
    """Return the schedule of a timeline of which these parts remain."""
    length = np.where(timeline.waiting, 0.0, (timeline.end - timeline.begin) * state.pieces)
    clock = np.concatenate([[0.0], np.cumsum(length)])
    is_wait = state.waits & timeline.waiting
    at = np.maximum(np.searchsorted(timeline.begin, timeline.submitted, "right") - 1, 0)
    into = timeline.submitted - timeline.begin[at]
    scale = np.where(timeline.waiting[at], 0.0, state.pieces[at])
    meanwhile = np.where(is_wait[at], into, 0)  # another thread submits it during a wait
    waits_so_far = np.concatenate([[0], np.cumsum(is_wait)])
    duration = times(timeline.activities["end"]) - times(timeline.activities["begin"])
    return Schedule(
        work=round(float(clock[-1])),
        wait_at=_rounded(clock[:-1][is_wait]),
        wait_for=np.where(is_wait, timeline.wait_for, NOTHING)[is_wait],
        wait_lead=timeline.wait_lead[is_wait],
        submitted=_rounded(clock[at] + into * scale),
        waits_before=times(waits_so_far[at]),
        queue=state.queue,
        duration=_rounded(duration * state.activities),
        latency=times(timeline.latency + meanwhile),
        gap=_rounded(timeline.gap * state.gaps),
        after=timeline.after,
        delay=_rounded(timeline.delay * state.gaps),
        busy_until=timeline.busy_until,
    )


def _rounded(values: Factors) -> Times:
    return times(np.rint(values))
