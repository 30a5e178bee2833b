"""Device idle time by what the host was doing and at which line, per step: why the device had nothing to do."""

from __future__ import annotations

import numpy as np

from profiler.analyse.categories import CODE
from profiler.analyse.gaps import idle_pieces
from profiler.analyse.host import HostTimeline
from profiler.analyse.model import HOST_CATEGORIES, HostState, IdleBlame, SiteOrigin
from profiler.analyse.timeline import Indices
from profiler.analyse.window import Window
from profiler.run.model import Run
from profiler.run.tables import CallKind


def idle_blame(run: Run, window: Window, host: HostTimeline, *, uncovered_is_python: bool) -> tuple[IdleBlame, ...]:
    """Idle seconds per step by (state of the host, category, site), largest first.

    :param uncovered_is_python: time outside of any region and call is Python by stack samples, else unattributed.
    """
    pieces = idle_pieces(run, window, host, uncovered=CODE["python" if uncovered_is_python else "unattributed"])
    if not len(pieces.gap):
        return ()
    shape = (
        len(HostState),
        len(SiteOrigin),
        len(HOST_CATEGORIES),
        max(len(run.names), len(CallKind)),
        len(run.sites) + 1,
    )
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
        where = run.sites[site - 1] if site else None
        amount = float(ns[number])
        state = HostState(doing)
        rows.append(
            IdleBlame(
                state,
                _subject(state, run.names, subject),
                SiteOrigin(near),
                name,
                where,
                window.per_step(amount),
                amount / wall,
                float(gaps[number]) / steps,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.state, row.subject, str(row.site))))


def _distinct_gaps(group: Indices, gap: Indices) -> Indices:
    """For each group, in how many gaps it has a piece. (np.unique would hash, at ten times the time of this sort.)"""
    width = int(gap.max()) + 1
    pairs = np.sort(group * width + gap)
    first = np.concatenate([[True], pairs[1:] != pairs[:-1]])
    return np.bincount(pairs[first] // width)


def _subject(state: HostState, names: tuple[str, ...], number: int) -> str:
    """Kind of the call or name of the region that a state refers to."""
    if state in (HostState.AFTER_SYNC, HostState.IN_CALL, HostState.BLOCKED_IN_CALL):
        return CallKind(number).name.lower()
    return names[number] if state in (HostState.AFTER_SYNC_IN_REGION, HostState.IN_REGION) else ""
