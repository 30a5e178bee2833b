"""How often each line of a program makes the host wait for a device, or copies between memories, in each step.

Counts of a run with virtual devices are exact: two runs of a program that does the same have equal ones.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from profiler.analyse.model import DeviceCount
from profiler.run.model import Run
from profiler.run.tables import CallKind

KINDS = (CallKind.SYNC, CallKind.H2D, CallKind.D2H, CallKind.D2D)

_NO_STEPS: Final = np.zeros(0, np.int64)


def device_counts(run: Run) -> tuple[DeviceCount, ...]:
    """The counts of every line, the most frequent first.

    Of several ranks, a step is one step of one rank. Events after the last step are not counted: a program that is
    stopped ends within a step.
    """
    calls = run.calls[np.isin(run.calls["kind"], KINDS)]
    ends = {pid: np.sort(run.steps["end"][run.steps["pid"] == pid]) for pid in np.unique(run.steps["pid"])}
    counts = []
    for kind, name, site in sorted({(int(row["kind"]), int(row["name"]), int(row["site"])) for row in calls}):
        chosen = calls[(calls["kind"] == kind) & (calls["name"] == name) & (calls["site"] == site)]
        before, moved, each = 0, 0, []
        for pid in np.unique(chosen["pid"]):  # each process has steps of its own
            own_ends, own = ends.get(pid, _NO_STEPS), chosen[chosen["pid"] == pid]
            numbers = np.searchsorted(own_ends, own["begin"], side="left")
            later = (numbers > 0) & (numbers < len(own_ends))
            before += int((numbers == 0).sum())
            moved += int(own["bytes"][later].sum())
            each += np.bincount(numbers[later], minlength=len(own_ends))[1 : len(own_ends)].tolist()
        counts.append(
            DeviceCount(
                CallKind(kind),
                run.names[name],
                run.sites[site] if site >= 0 else None,
                before,
                Counter(each),
                moved / max(1, len(each)),
            )
        )
    return tuple(sorted(counts, key=lambda count: (-count.mean, -count.before, count.kind, count.name)))
