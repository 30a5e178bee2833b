"""Predicts what changes of a step give, by a simulation of the recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from profiler.analyse.finding import Cure, GainMethod, Prediction
from profiler.analyse.replay.cures import names, schedule
from profiler.analyse.replay.simulation import Schedule, Simulated, simulate
from profiler.analyse.replay.timeline import ReplayTimeline, timeline
from profiler.analyse.timing.host_timeline import HostTimeline
from profiler.analyse.window import Window, process_rows
from profiler.run.model import Run, StepKind

_MOST_ACTIVITIES: Final = 50_000
"""Activities that are simulated at most, in whole steps from the first one on: 0.1 s for each change."""


class Replay:
    """The measured steps of a run whose device's activities were recorded, to be simulated with changes."""

    def __init__(self, run: Run, window: Window, host: HostTimeline, unrecorded: str) -> None:
        """:param unrecorded: the host category of time of which nothing was recorded."""
        self._run, self._window, self._host, self._unrecorded = run, _first_steps(run, window), host, unrecorded
        self._is_whole = run.step is not None and run.step.kind is StepKind.WHOLE_TRACE

    @cached_property
    def timeline(self) -> ReplayTimeline:
        """What the replay starts from."""
        return timeline(self._run, self._window, self._host, self._unrecorded)

    @cached_property
    def unchanged(self) -> Simulated:
        """The replay without any change."""
        same = schedule(self.timeline, (), self._run, self._window)
        assert same is not None
        return simulate(same)

    @property
    def measured(self) -> float:
        """Seconds of a step as it was recorded."""
        return self._per_step(int(self._window.end[-1] - self._window.begin[0]))

    @property
    def replayed(self) -> float:
        """Seconds of a step by the replay without any change."""
        return self._per_step(self.unchanged.both if self._is_whole else self.unchanged.host)

    @property
    def explained(self) -> float:
        """The same without the delays that nothing recorded explains: only by what waits for what."""
        same = schedule(self.timeline, (), self._run, self._window)
        assert same is not None
        simulated = simulate(replace(same, delay=np.zeros_like(same.delay)))
        return self._per_step(simulated.both if self._is_whole else simulated.host)

    @property
    def unexplained(self) -> float:
        """Share of the measured time by which activities began late for an unknown reason, or calls returned late."""
        unknown = self.timeline.unexplained + int(self.timeline.delay.sum())
        return unknown / max(1, int(self._window.end[-1] - self._window.begin[0]))

    def predict(self, cures: Sequence[Cure], remaining: float = 0.0) -> Prediction | None:
        """What these changes give; None where nothing of what they change was recorded.

        :param remaining: seconds per step that the cured program needs instead.
        :raises KeyError: nothing in the run bears the name of a change.
        """
        changed = schedule(self.timeline, cures, self._run, self._window)
        if changed is None:
            return None
        before, after = self._step(self.unchanged), self._step(simulate(_longer(changed, remaining, len(self._window))))
        return Prediction(GainMethod.REPLAY, before, after, self.measured, self.replayed, self.unexplained)

    def names(self) -> Sequence[str]:
        """The names of regions, operators and functions that can be changed, those with most time first."""
        return names(self._run, self._window)

    def _step(self, simulated: Simulated) -> float:
        """A trace without steps is simulated once; others as steps that follow each other."""
        return self._per_step(simulated.both if self._is_whole else simulated.steady)

    def _per_step(self, ns: int) -> float:
        return self._window.per_step(ns)


def _first_steps(run: Run, window: Window) -> Window:
    """The first of the measured steps that have as many activities as are simulated, and at least one step."""
    begins = np.sort(process_rows(run.activities, window)["begin"])
    until = np.searchsorted(begins, window.end) - np.searchsorted(begins, window.begin[0])
    count = max(1, int(np.searchsorted(until, _MOST_ACTIVITIES, "right")))
    if count >= len(window):
        return window
    return replace(window, steps=window.steps[:count], begin=window.begin[:count], end=window.end[:count])


def _longer(changed: Schedule, seconds: float, steps: int) -> Schedule:
    """The schedule with more work of the host at the end."""
    return replace(changed, work=changed.work + round(seconds * 1e9 * steps)) if seconds else changed
