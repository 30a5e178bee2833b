"""Tells what rules can judge of an attached program, whose steps were not seen: a second of its main thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from profiler.analyse.model import UNATTRIBUTED, Analysis, Measure, ThreadState
from profiler.analyse.statistics import share_interval

_CATEGORIES: Final[Mapping[ThreadState, str]] = {
    ThreadState.PYTHON: "python",
    ThreadState.TORCH: "compute",
    ThreadState.NATIVE: "compute",
    ThreadState.CHECKPOINTING: "checkpoint",
    ThreadState.LOGGING: "log",
    ThreadState.WAITING_FOR_RANKS: "ranks",
    ThreadState.LOCK: "waiting",
    ThreadState.NETWORK: "waiting",
    ThreadState.IDLE: "waiting",
    ThreadState.GIL: "gil",
    ThreadState.CORE: "core",
}
"""Sampled state of a thread -> the category of a step. Rules about input need the batches of steps, and rules about
synchronizations a device that was recorded."""


def second_of_main_thread(analysis: Analysis) -> Analysis | None:
    """A second of the main thread of a program without steps, in the form of a step that rules can judge; None where it
    was not sampled, or where a device may be busy meanwhile."""
    thread = next((thread for thread in analysis.threads if thread.tid == thread.pid), None)
    if thread is None or analysis.info.facts.get("device") != "cpu" or analysis.info.devices:
        return None

    def seconds(states: Mapping[ThreadState, float]) -> dict[str, float]:
        parts: dict[str, float] = {}
        for state, share in states.items():
            category = _CATEGORIES.get(state, UNATTRIBUTED)
            parts[category] = parts.get(category, 0.0) + share
        return parts

    breakdown = {
        name: Measure(name, share, "s/step", *share_interval(share, thread.samples))
        for name, share in seconds(dict(thread.states)).items()
    }
    lines = tuple(
        replace(
            line,
            seconds_per_step=line.share,
            categories={
                name: part * line.share / (sum(line.categories.values()) or 1.0)
                for name, part in seconds({ThreadState(state): part for state, part in line.categories.items()}).items()
            },
        )
        for line in thread.lines
    )
    measures = {"step_time": Measure("step_time", 1.0, "s")}
    return Analysis(analysis.info, measures, breakdown, {}, lines=lines, threads=analysis.threads)
