"""Lines of user code by what they asked of the device: calls, seconds, seconds blocked, bytes, per step."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler.analyse.timeline import times
from profiler.analyse.window import Window, of_process
from profiler.run.model import HotSite, Run, Table
from profiler.run.tables import CallKind

MAX_SITES: Final = 100


def calls_in_steps(run: Run, window: Window) -> Table:
    """Calls of all threads of the stepping process that began in a measured step."""
    calls = of_process(run.calls, window)
    inside: Table = calls[window.step_of(calls["begin"]) >= 0]
    return inside


def hot_sites(run: Run, window: Window) -> tuple[HotSite, ...]:
    """One row per line and kind of call, all threads of the process together, the most seconds first."""
    if not len(window):
        return ()
    calls = calls_in_steps(run, window)
    calls = calls[calls["site"] >= 0]
    shape = (len(run.sites), len(CallKind))
    if not len(calls):
        return ()
    keys, group = np.unique(np.ravel_multi_index((calls["site"], calls["kind"]), shape), return_inverse=True)
    length = times(calls["end"]) - times(calls["begin"])
    sums = [
        np.bincount(group, column) for column in (None, length, np.clip(calls["blocked"], 0, length), calls["bytes"])
    ]
    steps, rows = len(window), []
    for number, (site, kind) in enumerate(zip(*(part.tolist() for part in np.unravel_index(keys, shape)), strict=True)):
        count, seconds, blocked, size = (float(column[number]) for column in sums)
        rows.append(
            HotSite(
                site=run.sites[site],
                kind=CallKind(kind).name.lower(),
                calls_per_step=count / steps,
                seconds_per_step=window.per_step(seconds),
                blocked_per_step=window.per_step(blocked),
                bytes_per_step=size / steps,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site, row.kind))[:MAX_SITES])
