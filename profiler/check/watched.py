"""Which counters a run would have said, had there been anything to count: 0 is said of these and of no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profiler.core.metrics import COUNTERS
from profiler.run.model import Run
from profiler.run.tables import RECOMPILED, TOKENIZED

ON_DEVICE: Final = tuple(counter.name for counter in COUNTERS if counter.needs_device)
"""What only a device can be asked for."""
HOOKED: Final = {
    "syncs": "tensors",
    "would_sync": "tensors",
    "h2d": "tensors",
    "d2h": "tensors",
    "h2d_bytes": "tensors",
    "d2h_bytes": "tensors",
    TOKENIZED: "",
    RECOMPILED: "dynamo",
}
"""Counters of the hooks, with the hook that must have come in. Launches and memory of plain torch have none."""
NO_DEVICE: Final = "cpu"
"""Of the fact `device`, and of that part of a baseline's key."""


def watched(run: Run) -> tuple[str, ...]:
    """Counters that hooks would have counted, had there been anything to count."""
    if "package" not in run.info.facts:  # no hook says anything: none came in
        return ()
    failed = {status.name.removeprefix("hook ") for status in run.info.collectors if status.state == "failed"}
    absent = without_device(run)
    return tuple(name for name, hook in HOOKED.items() if hook not in failed and name not in absent)


def without_device(run: Run, counted: Iterable[str] = ()) -> tuple[str, ...]:
    """Counters that say nothing of this run, not even 0: it had no device, and did not count them itself.

    :param counted: what it did count.
    """
    if run.info.facts.get("device") != NO_DEVICE:
        return ()
    return tuple(name for name in ON_DEVICE if name not in set(counted))
