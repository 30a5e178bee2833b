"""How the stacks of one run are read: by where its packages lie, what hooks recorded in it, and its own regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler.analyse.categories import CODE
from profiler.analyse.covers import NUMBER, Numbers, cover_of, per_stack
from profiler.analyse.frames import CALL, OURS, Stack, kind_of, read_stack
from profiler.analyse.host import HostTimeline
from profiler.analyse.model import HOST_CATEGORIES
from profiler.analyse.places import Places, places_of
from profiler.analyse.recorded import own_regions
from profiler.run.model import Run
from profiler.run.tables import CallKind

LEAVES: Final = (OTHER := 0, OF_TORCH := 1, OF_HOOK := 2)
"""Whose Python the innermost frame is. Of a hook: what it calls leaves no frame, and may be native or under the GIL."""
_COPIES: Final = (CallKind.H2D, CallKind.D2H, CallKind.D2D)


@dataclass(frozen=True, eq=False, slots=True)
class Reader:
    """How stacks of this run are read."""

    run: Run
    host: HostTimeline
    places: Places
    recorded: Mapping[str, Numbers]
    """The covers that hooks recorded."""
    copies: bool
    """Whether copies to or from a device were recorded."""
    own: Numbers
    """Of segments in the user's own regions, which no frame shows, their number in KINDS; else -1."""

    def covers(self, stacks: Mapping[int, Stack], number: Numbers, region: Numbers) -> Numbers:
        """Of each sample, of the stack `number` and within the region `region` of KINDS (-1: none)."""
        read = {one: cover_of(said, self.recorded, copies=self.copies)[0] for one, said in stacks.items()}
        cover = per_stack(number, read).astype(np.int64)
        return np.where((cover == NUMBER[""]) & (region >= 0), region // len(HOST_CATEGORIES), cover)

    def doing(self, one: int, stack: Stack) -> int:
        """Category that frames of a stack stand for, or -1; without a frame it says nothing."""
        if not self.run.stack_frames[one]:
            return CODE["unattributed"]
        return CODE.get(cover_of(stack, self.recorded, copies=self.copies)[1], -1)

    def stacks(self, number: Numbers) -> dict[int, Stack]:
        return {one: read_stack(self.run.stack_frames[one], self.places) for one in np.unique(number).tolist()}

    def leaves(self, number: Numbers, stacks: Mapping[int, Stack]) -> Numbers:
        """Of each sample whose Python its innermost frame is."""
        found = {}
        for one, stack in stacks.items():
            frames = self.run.stack_frames[one]
            ours = bool(frames) and kind_of(frames[-1].file, self.places) == OURS
            found[one] = OF_TORCH if stack.torch else OF_HOOK if ours else OTHER
        return per_stack(number, found).astype(np.int64)


def reader_of(run: Run, host: HostTimeline, exact: Mapping[str, Numbers]) -> Reader:
    """What is needed to read the stacks of `run`.

    :param exact: what was recorded of each cover.
    """
    places = places_of(run)
    copies = bool(np.isin(host.calls["kind"], _COPIES).any())
    recorded = {name: ns for name, ns in exact.items() if name != CALL or len(host.calls)}
    seen = np.unique(np.concatenate([run.stacks["stack"], run.gil_stacks["stack"]])).tolist()
    framed = {
        NUMBER[name] for one in seen for name, _ in read_stack(run.stack_frames[one], places).covers if name in NUMBER
    }
    return Reader(run, host, places, recorded, copies, own_regions(run, host, framed))
