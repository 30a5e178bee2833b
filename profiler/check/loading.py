"""What loaders do, apart from the training loop: in their workers, and in the stepping process where it asks them.

Batches are made of tensors that lie on the host for good, as samplers' random numbers do: an `.item()` there would not
wait on a GPU either. So it has a counter of its own, that gates only where a limit names it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.window import Window, of_process
from profiler.run.model import Run, Table
from profiler.run.tables import WORKER_OF

WOULD_SYNC: Final = "would_sync"
IN_LOADER: Final = "would_sync_in_loader"
"""Those of WOULD_SYNC that a loader's worker did, or the stepping process while it asked a loader."""
_ASKED: Final = ("data", "loader start")
"""Regions of the hook of loaders: around the next batch, and around the start of an epoch."""
_FETCH: Final = "dataset"
"""Region of a loader's worker around the making of a batch."""
_PACKAGE: Final = "torch/utils/data/"
"""A site in it has no line of the user's above it."""


def fetched(run: Run, window: Window) -> tuple[Table, float] | None:
    """Calls of the loader's workers in the batches that were looked at, and how many times too few these are for as
    many batches as there are steps; None: no worker made any.

    A worker is ahead of the steps by some batches, by how many is left to chance. So what is counted is the mean of
    the batches that it finished meanwhile, each whole.
    """
    says = run.calls["name"] == number(run, WORKER_OF)
    pids = np.unique(run.calls["pid"][says & (run.calls["bytes"] == window.pid)])
    fetches = run.regions[(run.regions["name"] == number(run, _FETCH)) & np.isin(run.regions["pid"], pids)]
    fetches = fetches[fetches["depth"] == 0]
    meanwhile = fetches[(fetches["end"] > window.begin[0]) & (fetches["end"] <= window.end[-1])]
    fetches = meanwhile if len(meanwhile) else fetches
    if not len(fetches):
        return None
    return run.calls[_within(run.calls, fetches)], len(window) / len(fetches)


def in_loader(run: Run, window: Window, calls: Table) -> npt.NDArray[np.bool_]:
    """Which of these calls of the stepping process it made while it asked a loader."""
    asked = np.isin(run.regions["name"], [number(run, name) for name in _ASKED])
    of_torch = np.array([*(_PACKAGE in site.file for site in run.sites), False])  # the last one: of site -1
    inside: npt.NDArray[np.bool_] = of_torch[calls["site"]]
    return inside | _within(calls, of_process(run.regions[asked], window))


def number(run: Run, name: str) -> int:
    """Of a name in the run's tables; -2, which none has, where it is not there."""
    return run.names.index(name) if name in run.names else -2


def _within(calls: Table, regions: Table) -> npt.NDArray[np.bool_]:
    """Calls that began in a region of their own thread's; the regions of a thread do not overlap."""
    inside = np.zeros(len(calls), np.bool_)
    for pid, tid in np.unique(regions[["pid", "tid"]]).tolist():
        own = regions[(regions["pid"] == pid) & (regions["tid"] == tid)]
        own = own[np.argsort(own["begin"], kind="stable")]
        rows = np.flatnonzero((calls["pid"] == pid) & (calls["tid"] == tid))
        at = np.searchsorted(own["begin"], calls["begin"][rows], "right") - 1
        inside[rows] = (at >= 0) & (calls["begin"][rows] <= own["end"][at])
    return inside
