"""Device idle time by what the host was doing and at which line, per step: why the device had nothing to do."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler.analyse.categories import CODE
from profiler.analyse.gaps import Doing, Near, idle_pieces
from profiler.analyse.host import HostTimeline
from profiler.analyse.model import HOST_CATEGORIES, RECORDING_ITSELF, IdleBlame
from profiler.analyse.timeline import Indices
from profiler.analyse.window import Window
from profiler.run.model import Run
from profiler.run.tables import CallKind


def idle_blame(run: Run, window: Window, host: HostTimeline, *, uncovered_is_python: bool) -> tuple[IdleBlame, ...]:
    """Idle seconds per step by (doing, category, site), largest first.

    :param uncovered_is_python: time outside of any region and call is Python by stack samples, else unattributed.
    """
    pieces = idle_pieces(run, window, host, uncovered=CODE["python" if uncovered_is_python else "unattributed"])
    if not len(pieces.gap):
        return ()
    shape = (len(Doing), len(Near), len(HOST_CATEGORIES), max(len(run.names), len(CallKind)), len(run.sites) + 1)
    columns = (pieces.doing, pieces.near, pieces.category, pieces.subject, pieces.site + 1)
    keys, group = np.unique(np.ravel_multi_index(columns, shape), return_inverse=True)
    ns = np.bincount(group, pieces.end - pieces.begin)
    gaps = _distinct_gaps(group, pieces.gap)
    steps, wall = len(window), window.wall_ns
    rows = []
    for number, (doing, near, category, subject, site) in enumerate(
        zip(*(column.tolist() for column in np.unravel_index(keys, shape)), strict=True)
    ):
        name = HOST_CATEGORIES[category]
        text = describe(Doing(doing), Near(near), name, run.names, subject)
        where = run.sites[site - 1] if site else None
        amount = float(ns[number])
        rows.append(IdleBlame(text, name, where, window.per_step(amount), amount / wall, float(gaps[number]) / steps))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.doing, str(row.site))))


def _distinct_gaps(group: Indices, gap: Indices) -> Indices:
    """For each group, in how many gaps it has a piece. (np.unique would hash, at ten times the time of this sort.)"""
    width = int(gap.max()) + 1
    pairs = np.sort(group * width + gap)
    first = np.concatenate([[True], pairs[1:] != pairs[:-1]])
    return np.bincount(pairs[first] // width)


def describe(doing: Doing, near: Near, category: str, names: tuple[str, ...], subject: int) -> str:
    """In words. `the call` is the one at the site of the row."""
    kind = CallKind(subject).name.lower() if doing in _ABOUT_CALLS else ""
    if doing is Doing.AFTER_SYNC:
        return "after the sync" if kind == "sync" else f"after the sync in the {kind} call"
    if doing is Doing.AFTER_SYNC_IN_REGION:
        return f"after the sync, in region {names[subject]}"
    if doing is Doing.IN_CALL:
        return f"in the {kind} call"
    if doing is Doing.BLOCKED_IN_CALL:
        return f"blocked in the {kind} call"
    if doing is Doing.RECORDING:
        return RECORDING_ITSELF
    if doing is Doing.IN_REGION:
        return f"in region {names[subject]}{_NEAR[near]}"
    what = "python" if category == "python" else "outside of any region"
    return what + (_NEAR[near] or " between calls")


_ABOUT_CALLS: Final = (Doing.AFTER_SYNC, Doing.IN_CALL, Doing.BLOCKED_IN_CALL)
_NEAR: Final = {Near.ITSELF: "", Near.FOLLOWING_CALL: " before the call", Near.PRECEDING_CALL: " after the call"}
