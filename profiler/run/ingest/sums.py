"""The counters of a run that nobody counted: its syncs, copies, bytes, launches and allocations, from its calls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from profiler.run.ingest.rows import NameOf, filled
from profiler.run.ingest.words import waits_by_itself
from profiler.run.model import Table
from profiler.run.tables import CallKind, ValueKind


def counters(calls: Table, steps: Table, names: Mapping[str, int], name_of: NameOf) -> Table:
    """One value a counter and step, at the step's end; what lies in no step counts nowhere.

    A sync is a call that waited until the device was done. torch follows a pageable copy by a sync of its stream: only
    that one counts.
    """
    order = np.argsort(steps["begin"], kind="stable")
    begin, end = steps["begin"][order].astype(np.int64), steps["end"][order].astype(np.int64)
    at = np.searchsorted(begin, calls["begin"].astype(np.int64), "right") - 1
    inside = (at >= 0) & (calls["begin"] < end[np.maximum(at, 0)])
    kind = calls["kind"]
    amounts: dict[str, npt.NDArray[np.float64]] = {}
    waiting = [number for text, number in names.items() if waits_by_itself(text)]
    amounts["syncs"] = _per_step(at, inside & np.isin(calls["name"], waiting), np.ones(len(calls)), len(steps))
    for name, kinds in (
        ("h2d", (CallKind.H2D,)),
        ("d2h", (CallKind.D2H,)),
        ("launches", (CallKind.LAUNCH,)),
        ("allocations", (CallKind.ALLOC,)),
    ):
        amounts[name] = _per_step(at, inside & np.isin(kind, kinds), np.ones(len(calls)), len(steps))
    for name, one in (("h2d_bytes", CallKind.H2D), ("d2h_bytes", CallKind.D2H)):
        amounts[name] = _per_step(at, inside & (kind == one), calls["bytes"].astype(np.float64), len(steps))
    parts = [
        filled(
            "values", len(steps), loaded=True, time=end, step=steps["index"][order], value=value,
            name=name_of(name), kind=ValueKind.COUNTER,
        )
        for name, value in amounts.items()
    ]  # fmt: skip
    return np.concatenate(parts)


def _per_step(
    at: npt.NDArray[np.intp], mask: npt.NDArray[np.bool_], amount: npt.NDArray[np.float64], steps: int
) -> npt.NDArray[np.float64]:
    return np.bincount(at[mask], amount[mask], minlength=steps).astype(np.float64)
