"""Lines of user code by what they asked of the device, and by which operation: calls, seconds, bytes, per step."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler.analyse.covers import hooked
from profiler.analyse.model import CallSite
from profiler.analyse.timeline import times
from profiler.analyse.window import Window, of_process
from profiler.run.model import Run, Table
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, CallKind

MAX_SITES: Final = 100
_NOTES: Final = ("dataset", "collate", WORKER_OF, TOKENIZED, RECOMPILED)
"""OTHER calls that only say where something lies, or whose a worker is: nothing was asked of a device."""


def calls_in_steps(run: Run, window: Window) -> Table:
    """Calls of all threads of the stepping process that began in a measured step."""
    calls = of_process(run.calls, window)
    inside: Table = calls[window.step_of(calls["begin"]) >= 0]
    return inside


def call_sites(run: Run, window: Window) -> tuple[CallSite, ...]:
    """One row per line and kind of call, in a hooked run per operation too; all threads, the most seconds first."""
    if not len(window):
        return ()
    calls = calls_in_steps(run, window)
    notes = [number for number, name in enumerate(run.names) if name in _NOTES]
    calls = calls[(calls["site"] >= 0) & ~((calls["kind"] == CallKind.OTHER) & np.isin(calls["name"], notes))]
    shape = (len(run.sites), len(CallKind), len(run.names) + 1)
    if not len(calls):
        return ()
    name = calls["name"] + 1 if hooked(run) else np.zeros(len(calls), np.int64)
    keys, group = np.unique(np.ravel_multi_index((calls["site"], calls["kind"], name), shape), return_inverse=True)
    length = times(calls["end"]) - times(calls["begin"])
    sums = [
        np.bincount(group, column) for column in (None, length, np.clip(calls["blocked"], 0, length), calls["bytes"])
    ]
    steps, rows = len(window), []
    parts = (part.tolist() for part in np.unravel_index(keys, shape))
    for number, (site, kind, name) in enumerate(zip(*parts, strict=True)):
        count, seconds, blocked, size = (float(column[number]) for column in sums)
        rows.append(
            CallSite(
                site=run.sites[site],
                kind=CallKind(kind).name.lower(),
                operation=run.names[name - 1] if name else "",
                calls_per_step=count / steps,
                seconds_per_step=window.per_step(seconds),
                blocked_per_step=window.per_step(blocked),
                bytes_per_step=size / steps,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site, row.kind, row.operation))[:MAX_SITES])
