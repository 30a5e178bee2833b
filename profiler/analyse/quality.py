"""The tool doubts itself aloud: what about this run makes its numbers less sure, one line each, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler.analyse.categories import RECORDING
from profiler.analyse.model import OTHER_MACHINES, OTHER_PROGRAMS
from profiler.analyse.resources import process_tree_sum, sample_rows
from profiler.analyse.stats import variation
from profiler.analyse.timeline import overlaps, times
from profiler.analyse.window import NS_PER_S, Window, of_thread
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


def doubts(run: Run, window: Window) -> tuple[str, ...]:
    """Notes about the run as a whole; what its tables lack, how it ended, how steady its steps and machine were."""
    measured = (*_own_time(run, window), *_machine(run, window)) if len(window) else ()
    return (*_recording(run), *_steps(window), *measured)


def _recording(run: Run) -> Iterator[str]:
    if run.info.state in ("failed", "interrupted"):
        code = "" if run.info.exit_code is None else f" (exit code {run.info.exit_code})"
        ended = "failed" if run.info.state == "failed" else "was interrupted"
        yield f"the run {ended}{code}: only its first part is here"
    yield from run.problems
    if note := run.info.facts.get("device_note"):
        yield str(note)
    for status in run.info.collectors:
        complete = status.name == HOOKS and status.values.get("python") == status.values.get("torch")
        if status.state == "ok" and status.reason and not complete:
            yield f"collector {status.name}: {status.reason}"
        if status.dropped > MAX_DROPPED * (status.records + status.dropped):
            yield f"collector {status.name} dropped {status.dropped:,} of {status.records + status.dropped:,} records"
    if DROPPED in run.names:
        values = run.values["value"][run.values["name"] == run.names.index(DROPPED)]
        if len(values) and values.max() > 0:
            yield f"the device dropped {int(values.max()):,} activity records: its idle time is overstated"


def _own_time(run: Run, window: Window) -> Iterator[str]:
    """What recording took of the steps that it recorded; it is in the ledger as python."""
    if RECORDING not in run.names:
        return
    regions = run.regions[run.regions["name"] == run.names.index(RECORDING)]
    regions = of_thread(regions, window)
    cut = overlaps(times(regions["begin"]), times(regions["end"]), window.spans)
    share = float((cut.end - cut.begin).sum()) / window.wall_ns
    if share >= MIN_OWN_TIME:
        yield f"recording itself took {100 * share:.1f}% of the steps, counted as python; it slows calls besides"


def _steps(window: Window) -> Iterator[str]:
    if not len(window):
        yield f"nothing was measured: {window.reason}"
        return
    count, seconds = len(window), window.wall_ns / NS_PER_S
    if count < MIN_STEPS:
        yield f"only {count} measured step{'s' * (count != 1)}: {MIN_STEPS} or more make a mean"
    if seconds < MIN_SECONDS:
        yield f"only {seconds:.3g} s were measured: below {MIN_SECONDS:g} s a single interruption shows"
    if window.others:
        yield f"{window.others:,} measured steps were closed by other threads or processes; they are in no figure"
    walls = window.wall.astype(np.float64)
    third = count // 3
    if third:
        drift = float(walls[-third:].mean() / walls[:third].mean()) - 1
        if abs(drift) > MAX_DRIFT:
            change = f"{abs(drift):.0%} {'more' if drift > 0 else 'less'}"
            yield f"steps drift: the last third takes {change} time than the first"
    spread = variation(walls)
    if spread > MAX_SPREAD:
        yield f"step times spread by {spread:.0%} of their mean (standard deviation)"


def _machine(run: Run, window: Window) -> Iterator[str]:
    first, last = int(window.begin[0]), int(window.end[-1])
    steal = _mean_within(run, "machine.steal", first, last)
    if steal is not None and steal > MAX_STEAL:
        yield f"{OTHER_MACHINES} {steal:.1%} of the CPU time of this one (steal)"
    used = _mean_within(run, "machine.cpu_util", first, last)
    moments, own = process_tree_sum(run, "process.cpu")
    inside = (moments >= first) & (moments <= last)
    cores = run.info.host.get("cores")
    if used is None or not inside.any() or not isinstance(cores, (int, float)):
        return
    others = used * cores - float(own[inside].mean())
    if others > MAX_OTHER_LOAD:
        yield f"{OTHER_PROGRAMS} {others:.2g} of the machine's {cores:g} cores meanwhile"


def _mean_within(run: Run, name: str, first: int, last: int) -> float | None:
    rows = sample_rows(run, name)
    inside = (times(rows["time"]) >= first) & (times(rows["time"]) <= last)
    return float(rows["value"][inside].mean()) if inside.any() else None
