"""How a wait or a copy that a wrapper saw becomes a record, once however the wrappers nest. A helper of the hooks.

On a CPU tensor the same operation waits for nothing: it counts as one that would on a GPU. What lies on no device and
not on the CPU either (meta and fake tensors, another vendor's accelerator) is not counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, Final

from profiler.agent.patching import caller, is_user_code
from profiler.agent.recorder import Recorder, now
from profiler.run.tables import CallKind

on_device: Callable[[Any], bool] = attrgetter("is_cuda")
"""Whether a tensor lies on a GPU."""
on_cpu: Callable[[Any], bool] = attrgetter("is_cpu")

_HERE: Final = __file__.rpartition("/")[0]
WOULD_SYNC: Final = "would_sync"
"""Counter of waits that there would be if the tensor lay on a GPU."""
_NO_VALUES: Final = "torch._subclasses"  # fake and functional tensors: they stand for others while a graph is made


class _Open(threading.local):
    """What this thread is in: nested wrappers (print calls item) are one operation of the user's."""

    inside = False
    on_cpu_already = 0  # id of the tensor that .cpu() gave last: on a GPU its .numpy() waits for nothing any more


OPEN: Final = _Open()

_plain: dict[type, bool] = {}


def has_values(tensor: Any) -> bool:
    """Whether it is a tensor with values, not one that stands for another while torch.compile makes a graph."""
    kind = type(tensor)
    known = _plain.get(kind)
    if known is None:
        known = _plain[kind] = hasattr(kind, "is_cuda") and not kind.__module__.startswith(_NO_VALUES)
    return known


def pinned(tensor: Any) -> bool:
    """Whether a tensor's memory on the CPU is page-locked, so that a copy can go on behind the host's back."""
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:  # a layout without one memory
        return False


def size_of(tensor: Any) -> int:
    """Bytes; 0 where the layout (sparse) does not say."""
    try:
        return int(tensor.nbytes)
    except RuntimeError:
        return 0


def waited(recorder: Recorder, name: str, tensor: Any, begin: int, frame: FrameType | None) -> None:
    """The host needed values of `tensor` in a call that `frame` made: on a GPU it waited for them from `begin` until
    now."""
    if not (_plain.get(type(tensor)) or has_values(tensor)):
        return
    if on_device(tensor):
        recorder.count("syncs")
        if recorder.detailed:
            recorder.call(CallKind.SYNC, name, begin, blocked=now() - begin, site=site(recorder, frame))
    elif on_cpu(tensor):
        would_wait(recorder, name, tensor, begin, frame)


def would_wait(recorder: Recorder, name: str, tensor: Any, begin: int, frame: FrameType | None) -> None:
    """A tensor on the CPU. What `.cpu()` gave, is on the CPU in a program for a GPU too."""
    already = OPEN.on_cpu_already
    if already or name == "cpu":
        OPEN.on_cpu_already = id(tensor) if name == "cpu" else 0
        if already == id(tensor):
            return
    recorder.increment((WOULD_SYNC,))
    if recorder.detailed:
        recorder.call(CallKind.WOULD_SYNC, name, begin, site=site(recorder, frame))


def copied(recorder: Recorder, name: str, ends: tuple[Any, Any], begin: int, *, waits: bool) -> None:
    """A copy between the memories of CPU and GPU, from `ends[0]` to `ends[1]`.

    :param waits: the host waited for it; the whole call counts as the wait.
    """
    down = on_device(ends[0])
    direction = "d2h" if down else "h2d"
    size = size_of(ends[0])
    recorder.count(direction)
    recorder.count(direction + "_bytes", size)
    if waits:
        recorder.count("syncs")
    if recorder.detailed:
        recorder.call(
            CallKind.D2H if down else CallKind.H2D,
            name,
            begin,
            blocked=now() - begin if waits else 0,
            size=size,
            site=site(recorder, caller(2)),
        )


def explicit(recorder: Recorder, kind: CallKind, name: str, begin: int) -> None:
    """A call without a tensor: a wait for the device (SYNC), or one that only orders its queues."""
    if kind is CallKind.SYNC:
        recorder.count("syncs")
    if recorder.detailed:
        blocked = now() - begin if kind is CallKind.SYNC else 0
        recorder.call(kind, name, begin, blocked=blocked, site=site(recorder, caller(2)))


_OURS, _LIBRARY, _USER = range(3)
_MOST_KNOWN: Final = 10_000
_kinds: Final[dict[int, tuple[CodeType, int]]] = {}
"""Whose code it is, by its id: a hash of code takes longer (1 µs) than all else here. Kept alive, so that ids hold."""


def site(recorder: Recorder, inner: FrameType | None) -> int:
    """The line of the user's that led to `inner`; where there is none, the library's."""
    frame = inner
    innermost = None
    while frame is not None:
        code = frame.f_code
        kind = (_kinds.get(id(code)) or _learn(code))[1]
        if kind == _USER:
            return recorder.site(frame)
        if innermost is None and kind == _LIBRARY:
            innermost = frame
        frame = frame.f_back
    return -1 if innermost is None else recorder.site(innermost)


def _learn(code: CodeType) -> tuple[CodeType, int]:
    if len(_kinds) >= _MOST_KNOWN:  # a program that makes code as it goes
        _kinds.clear()
    ours = code.co_filename.startswith(_HERE)
    known = _kinds[id(code)] = code, _OURS if ours else _USER if is_user_code(code) else _LIBRARY
    return known
