"""Records each sync or copy once, even if wrapped calls nest. Used by several hooks.

On a CPU tensor the same operation waits for nothing: it counts as an operation that would sync on a GPU. Tensors that
are neither on a GPU nor on the CPU (meta and fake tensors, accelerators of other vendors) are not counted.
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
"""Counter of operations that would sync if the tensor were on a GPU."""
_NO_VALUES: Final = "torch._subclasses"  # fake and functional tensors, used while a graph is traced


class _Open(threading.local):
    """The operation that this thread executes: nested wrappers (print calls item) are one operation of the user."""

    inside = False
    on_cpu_already = 0  # id of the last result of .cpu(): its .numpy() waits for nothing, also on a GPU


OPEN: Final = _Open()

_plain: dict[type, bool] = {}


def has_values(tensor: Any) -> bool:
    """Whether it is a tensor with values, not a stand-in while torch.compile traces a graph."""
    kind = type(tensor)
    result = _plain.get(kind)
    if result is None:
        result = _plain[kind] = hasattr(kind, "is_cuda") and not kind.__module__.startswith(_NO_VALUES)
    return result


def pinned(tensor: Any) -> bool:
    """Whether a tensor's memory on the CPU is page-locked, so that a copy can be asynchronous."""
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:  # a sparse layout
        return False


def tensor_bytes(tensor: Any) -> int:
    """Bytes; 0 for a sparse layout."""
    try:
        return int(tensor.nbytes)
    except RuntimeError:
        return 0


def waited(recorder: Recorder, name: str, tensor: Any, begin: int, frame: FrameType | None) -> None:
    """Record that the host needed values of `tensor` from `begin` until now, in a call made by `frame`."""
    if not (_plain.get(type(tensor)) or has_values(tensor)):
        return
    if on_device(tensor):
        recorder.count("syncs")
        if recorder.detailed:
            recorder.call(CallKind.SYNC, name, begin, blocked=now() - begin, site=site(recorder, frame))
    elif on_cpu(tensor):
        would_wait(recorder, name, tensor, begin, frame)


def would_wait(recorder: Recorder, name: str, tensor: Any, begin: int, frame: FrameType | None) -> None:
    """Record an operation on a CPU tensor, unless that is a result of `.cpu()`, which is on the CPU in any program."""
    already = OPEN.on_cpu_already
    if already or name == "cpu":
        OPEN.on_cpu_already = id(tensor) if name == "cpu" else 0
        if already == id(tensor):
            return
    recorder.increment((WOULD_SYNC,))
    if recorder.detailed:
        recorder.call(CallKind.WOULD_SYNC, name, begin, site=site(recorder, frame))


def copied(recorder: Recorder, name: str, ends: tuple[Any, Any], begin: int, *, waits: bool) -> None:
    """Record a copy between the memories of CPU and GPU, from `ends[0]` to `ends[1]`.

    :param waits: whether the host waited for it, for the whole call.
    """
    down = on_device(ends[0])
    direction = "d2h" if down else "h2d"
    size = tensor_bytes(ends[0])
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
    """Record a call without a tensor: a wait for the device (SYNC), or an ordering of its queues."""
    if kind is CallKind.SYNC:
        recorder.count("syncs")
    if recorder.detailed:
        blocked = now() - begin if kind is CallKind.SYNC else 0
        recorder.call(kind, name, begin, blocked=blocked, site=site(recorder, caller(2)))


_OURS, _LIBRARY, _USER = range(3)
_MAX_CODES: Final = 10_000
_kinds: Final[dict[int, tuple[CodeType, int]]] = {}
"""Owner of code, by its id: hashing code would take 1 µs, longer than all else here. Code is kept alive for its id."""


def site(recorder: Recorder, inner: FrameType | None) -> int:
    """Site of the user's innermost line at or above `inner`; of the library's if there is none."""
    frame = inner
    innermost = None
    while frame is not None:
        code = frame.f_code
        kind = (_kinds.get(id(code)) or _classify(code))[1]
        if kind == _USER:
            return recorder.site(frame)
        if innermost is None and kind == _LIBRARY:
            innermost = frame
        frame = frame.f_back
    return -1 if innermost is None else recorder.site(innermost)


def _classify(code: CodeType) -> tuple[CodeType, int]:
    if len(_kinds) >= _MAX_CODES:  # a program that makes code without end
        _kinds.clear()
    ours = code.co_filename.startswith(_HERE)
    entry = _kinds[id(code)] = code, _OURS if ours else _USER if is_user_code(code) else _LIBRARY
    return entry
