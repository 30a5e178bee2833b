"""The tool doubts itself aloud: what about this run makes its numbers less sure, one line each, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler.analyse.categories import RECORDING
from profiler.analyse.resources import process_tree_sum, sample_rows
from profiler.analyse.stats import variation
from profiler.analyse.timeline import overlaps, times
from profiler.analyse.window import NS_PER_S, Window, of_thread
from profiler.core.notice import Notice
from profiler.run.model import HOOKS, Run

MIN_STEPS: Final = 5
"""Below this a mean of steps has no useful interval (t > 2.7 standard errors)."""
MIN_SECONDS: Final = 1.0
"""Below this a single interruption of some 10 ms shows in the second digit."""
MAX_DRIFT: Final = 0.2
MAX_SPREAD: Final = 0.3
MAX_STEAL: Final = 0.02
MAX_OTHER_LOAD: Final = 0.5
"""Cores used by other programs, on average; from half a core on they compete on a machine of few cores."""
MIN_OWN_TIME: Final = 0.01
MAX_DROPPED: Final = 0.01
"""Share of a collector's records: shares of time by samples are not better than that anyway."""
DROPPED: Final = "activities_dropped"


def doubts(run: Run, window: Window) -> tuple[Notice, ...]:
    """Notes about the run as a whole; what its tables lack, how it ended, how steady its steps and machine were."""
    measured = (*_own_time(run, window), *_machine(run, window)) if len(window) else ()
    return (*_recording(run), *_steps(window), *measured)


def _recording(run: Run) -> Iterator[Notice]:
    if run.info.state in ("failed", "interrupted"):
        yield Notice("ended-early", {"state": run.info.state, "exit_code": run.info.exit_code})
    yield from run.problems
    if note := run.info.facts.get("device_note"):
        yield Notice("text", {"text": str(note)})
    for status in run.info.collectors:
        complete = status.name == HOOKS and status.values.get("python") == status.values.get("torch")
        if status.state == "ok" and status.reason and not complete:
            yield Notice("collector", {"name": status.name, "reason": status.reason})
        if status.dropped > MAX_DROPPED * (status.records + status.dropped):
            values = {"name": status.name, "dropped": status.dropped, "records": status.records + status.dropped}
            yield Notice("collector-dropped", values)
    if DROPPED in run.names:
        values = run.values["value"][run.values["name"] == run.names.index(DROPPED)]
        if len(values) and values.max() > 0:
            yield Notice("activities-dropped", {"count": int(values.max())})


def _own_time(run: Run, window: Window) -> Iterator[Notice]:
    """What recording took of the steps that it recorded; it is in the ledger as python."""
    if RECORDING not in run.names:
        return
    regions = run.regions[run.regions["name"] == run.names.index(RECORDING)]
    regions = of_thread(regions, window)
    cut = overlaps(times(regions["begin"]), times(regions["end"]), window.spans)
    share = float((cut.end - cut.begin).sum()) / window.wall_ns
    if share >= MIN_OWN_TIME:
        yield Notice("recording-time", {"share": share})


def _steps(window: Window) -> Iterator[Notice]:
    if not len(window):
        yield Notice("nothing-measured", {"reason": window.reason})
        return
    count, seconds = len(window), window.wall_ns / NS_PER_S
    if count < MIN_STEPS:
        yield Notice("few-steps", {"steps": count, "needed": MIN_STEPS})
    if seconds < MIN_SECONDS:
        yield Notice("short-window", {"seconds": seconds, "needed": MIN_SECONDS})
    if window.others:
        yield Notice("steps-of-others", {"steps": window.others})
    walls = window.wall.astype(np.float64)
    third = count // 3
    if third:
        drift = float(walls[-third:].mean() / walls[:third].mean()) - 1
        if abs(drift) > MAX_DRIFT:
            yield Notice("drift", {"change": drift})
    spread = variation(walls)
    if spread > MAX_SPREAD:
        yield Notice("spread", {"spread": spread})


def _machine(run: Run, window: Window) -> Iterator[Notice]:
    first, last = int(window.begin[0]), int(window.end[-1])
    steal = _mean_within(run, "machine.steal", first, last)
    if steal is not None and steal > MAX_STEAL:
        yield Notice("other-machines", {"share": steal})
    used = _mean_within(run, "machine.cpu_util", first, last)
    moments, own = process_tree_sum(run, "process.cpu")
    inside = (moments >= first) & (moments <= last)
    cores = run.info.host.get("cores")
    if used is None or not inside.any() or not isinstance(cores, (int, float)):
        return
    others = used * cores - float(own[inside].mean())
    if others > MAX_OTHER_LOAD:
        yield Notice("other-programs", {"used": others, "cores": cores})


def _mean_within(run: Run, name: str, first: int, last: int) -> float | None:
    rows = sample_rows(run, name)
    inside = (times(rows["time"]) >= first) & (times(rows["time"]) <= last)
    return float(rows["value"][inside].mean()) if inside.any() else None
