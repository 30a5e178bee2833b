"""Virtual CUDA devices in a program that was started for it: every wait and copy becomes a record of the run.

Calls have no length, since a CPU's times tell nothing about a GPU.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from profiler.agent.hooks import _syncs
from profiler.agent.patching import STATE, Hook, on_unpatch
from profiler.agent.recorder import now
from profiler.run.tables import ENV_VIRTUAL_CUDA, CallKind


def requested() -> bool:
    """Whether this program is to see virtual devices."""
    return bool(os.environ.get(ENV_VIRTUAL_CUDA))


def record(event: Any, frame: FrameType) -> None:
    """Record an event with the line of the program."""
    recorder = STATE.recorder
    if recorder is None:
        return
    if event.waits:
        recorder.count("syncs")
    if event.kind in ("h2d", "d2h"):
        recorder.count(str(event.kind))
        recorder.count(f"{event.kind}_bytes", event.size)
    if recorder.detailed:
        kind = CallKind.SYNC if event.kind == "sync" else CallKind[event.kind.upper()]
        name = event.name if kind is CallKind.SYNC else _copy_name(event)
        recorder.call(kind, name, now(), size=event.size, site=_syncs.site(recorder, frame))


def _copy_name(event: Any) -> str:
    memory = "" if event.kind == "d2d" else " pinned" if event.pinned else " pageable"
    return f"{event.name}{memory}{'' if event.waits else ' non-blocking'}"


def _install(_: Any) -> None:
    if not requested():
        return
    from profiler.virtual.installation import VirtualCuda

    count, _, card = os.environ[ENV_VIRTUAL_CUDA].partition(":")
    devices = VirtualCuda(record, count=int(count), card=card)
    try:
        devices.install()
    except RuntimeError as error:
        devices.remove()
        sys.exit(f"profiler: {error}")
    on_unpatch(devices.remove)
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(virtual_cuda=int(count), virtual_card=devices.mode.machine.card.name)


PLUGIN = Hook("virtual_cuda", {"torch": _install})
