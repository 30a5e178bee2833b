"""How often each line of a program makes the host wait for a device, or copies between memories, in each step.

Counts of a run with virtual devices are exact: two runs of a program that does the same have equal ones.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from profiler.analyse.model import DeviceCount
from profiler.run.model import Run
from profiler.run.tables import CallKind

KINDS = (CallKind.SYNC, CallKind.H2D, CallKind.D2H, CallKind.D2D)


def device_counts(run: Run) -> tuple[DeviceCount, ...]:
    """The counts of every line, the most frequent first.

    Events after the last step are not counted: a program that is stopped ends within a step.
    """
    ends = np.sort(run.steps["end"])
    calls = run.calls[np.isin(run.calls["kind"], KINDS)]
    numbers = np.searchsorted(ends, calls["begin"], side="left")
    counts = []
    for kind, name, site in sorted({(int(row["kind"]), int(row["name"]), int(row["site"])) for row in calls}):
        chosen = (calls["kind"] == kind) & (calls["name"] == name) & (calls["site"] == site)
        own = numbers[chosen]
        later = (own > 0) & (own < len(ends))
        each = np.bincount(own[later], minlength=len(ends))[1:]
        size = float(calls["bytes"][chosen][later].sum()) / max(1, len(each))
        counts.append(
            DeviceCount(
                CallKind(kind),
                run.names[name],
                run.sites[site] if site >= 0 else None,
                int((own == 0).sum()),
                Counter(each.tolist()),
                size,
            )
        )
    return tuple(sorted(counts, key=lambda count: (-count.mean, -count.before, count.kind, count.name)))
