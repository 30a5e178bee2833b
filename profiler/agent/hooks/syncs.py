"""Records each sync or copy once, even if wrapped calls nest. Used by several hooks.

On a CPU tensor the same operation waits for nothing. It counts as a read that may wait on a GPU, since nothing here
knows where the tensor would lie. In a program that uses a GPU that is known, and such a read does not count. Tensors
that are neither on a GPU nor on the CPU (meta and fake tensors, accelerators of other vendors) are not counted.

On CUDA, torch's sync debug mode is a second source of syncs, which includes those without a wrapper. torch warns at
each of its syncs; our warnings filter, the first one, counts and swallows the warning. The mode does not cover
torch.cuda.synchronize, events and torch.distributed: there only wrappers count. As soon as the program sets the mode
itself, it is left to the program. Its counters are debug_syncs, and debug_syncs_seen: those within one of our wrappers.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.installation import report_failure
from profiler.agent.patching import (
    DETAILED,
    PACKAGE,
    STATE,
    Hook,
    caller,
    is_beneath_libraries,
    is_user_code,
    on_unpatch,
    patch,
)
from profiler.agent.recorder import Recorder, Tally
from profiler.run.tables import CallKind

on_device: Callable[[Any], bool] = attrgetter("is_cuda")
"""Whether a tensor lies on a GPU."""
on_cpu: Callable[[Any], bool] = attrgetter("is_cpu")

_NO_VALUES: Final = "torch._subclasses"  # fake and functional tensors, used while a graph is traced


NESTED: Final = 1
"""A wrapper is open: what it calls belongs to it (print calls item)."""
LOADING: Final = 2
"""A loader makes a batch: its tensors are on the CPU in any program."""


class _Open(threading.local):
    """The operation that this thread executes: 0, NESTED or LOADING."""

    inside: int = 0
    is_worker = False
    """Whether this process is a loader's worker; the same for all threads."""


OPEN: Final = _Open()


def enter_worker() -> None:
    """This process is a loader's worker: all that its threads do belongs to a loader."""
    _Open.inside = OPEN.inside = LOADING
    _Open.is_worker = True


_plain: dict[type, bool] = {}


def has_values(tensor: Any) -> bool:
    """Tell whether it is a tensor with values, not a stand-in while torch.compile traces a graph."""
    kind = type(tensor)
    result = _plain.get(kind)
    if result is None:
        result = _plain[kind] = hasattr(kind, "is_cuda") and not kind.__module__.startswith(_NO_VALUES)
    return result


def pinned(tensor: Any) -> bool:
    """Tell whether a tensor's memory on the CPU is page-locked, so that a copy can be asynchronous."""
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
    """Record that the host needed values of `tensor` from `begin` until now, in a call made by `frame`.

    :param name: of the operation in the run.
    """
    if not (_plain.get(type(tensor)) or has_values(tensor)):
        return
    if on_device(tensor):
        recorder.count("syncs")
        if recorder.detailed:
            recorder.call(CallKind.SYNC, name, begin, blocked=now() - begin, **sites(recorder, frame))
    elif on_cpu(tensor) and not OPEN.inside:
        tally = tally_of(recorder, frame, name)
        if tally:
            tally[1] += now() - begin
            tally[0] += 1


# ---------------------------------------------------------------- reads of tensors on the CPU

not_a_read: CodeType | None = None
"""Code of torch's function by which optimizers read their step count. That is on the CPU wherever the model is. (ASGD's
is on the model's device: it counts on a GPU, and not on a CPU.)"""
_uses_gpu = False
"""Whether the program has initialized CUDA: what lies on the CPU then waits for nothing."""


def begin_reads(torch: Any) -> None:
    """Count reads of tensors on the CPU until the program initializes CUDA."""
    global _uses_gpu
    _uses_gpu = False
    torch.cuda._lazy_call(_end_reads)  # called right after that, or at once if it has happened


def _end_reads() -> None:
    global _uses_gpu
    _uses_gpu = True
    if STATE.recorder is not None:
        STATE.recorder.forget_lines()


def tally_of(recorder: Recorder, frame: FrameType | None, name: str) -> Tally:
    """Return the tally of reads of the line that `frame` is at; empty if its tensors stay on the CPU in any program.

    It depends on the callers between this line and the user's, which the run names.
    """
    lines: Any = recorder.lines
    if frame is None:  # a call from C code, which has no line
        if name not in lines:
            lines[name] = recorder.no_tally if _uses_gpu else recorder.tally(name, -1)
        unknown: Tally = lines[name]
        return unknown
    for current in _frames(frame):
        lines = lines.get(id(current.f_code) + current.f_lasti)
        if lines.__class__ is list:
            tally: Tally = lines
            return tally
        if lines is None:
            break
    return _add_tally(recorder, frame, name)


def _add_tally(recorder: Recorder, frame: FrameType, name: str) -> Tally:
    if len(recorder.lines) >= _MAX_CODES:  # a program that makes code without end
        recorder.forget_lines()
    path, tally = [frame], recorder.no_tally
    if frame.f_code is not not_a_read and not _uses_gpu:
        tally = recorder.tally(name, site(recorder, frame) if recorder.detailed else -1)
        path = _path_to_user(frame)
    lines: dict[int, Any] = recorder.lines
    for current in path:
        recorder.codes[id(current.f_code)] = current.f_code
        key = id(current.f_code) + current.f_lasti
        if current is path[-1]:
            lines[key] = tally
            break
        inner = lines.get(key)
        if type(inner) is not dict:
            inner = lines[key] = {}
        lines = inner
    return tally


def _path_to_user(frame: FrameType) -> list[FrameType]:
    """Return the frame and its callers up to the user's line; the frame alone if there is no such line."""
    path = []
    for current in _frames(frame):
        path.append(current)
        if _owner(current.f_code) == _USER:
            return path
    return [frame]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frame, then its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


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
            **sites(recorder, caller(2)),
        )


def explicit(recorder: Recorder, kind: CallKind, name: str, begin: int) -> None:
    """Record a call without a tensor: a wait for the device (SYNC), or an ordering of its queues."""
    if kind is CallKind.SYNC:
        recorder.count("syncs")
    if recorder.detailed:
        blocked = now() - begin if kind is CallKind.SYNC else 0
        recorder.call(kind, name, begin, blocked=blocked, **sites(recorder, caller(2)))


_OURS, _BENEATH, _LIBRARY, _USER = range(4)
"""Who wrote code: this package, torch and the standard library, another library, the user."""
_MAX_CODES: Final = 10_000
_kinds: Final[dict[int, tuple[CodeType, int]]] = {}
"""Owner of code, by its id: hashing code would take 1 µs, longer than all else here. Code is kept alive for its id."""


def site(recorder: Recorder, inner: FrameType | None) -> int:
    """Site of the user's innermost line at or above `inner`; of the library's if there is none."""
    return sites(recorder, inner)["site"]


def sites(recorder: Recorder, inner: FrameType | None) -> dict[str, int]:
    """Return the same, and as `frame` the site of the innermost library that this line calls, without torch and the
    standard library; -1 if there is none."""
    innermost = library = None
    for frame in _frames(inner):
        kind = _owner(frame.f_code)
        if kind == _USER:
            return {"site": recorder.site(frame), "frame": -1 if library is None else recorder.site(library)}
        if innermost is None and kind != _OURS:
            innermost = frame
        if library is None and kind == _LIBRARY:
            library = frame
    return {"site": -1 if innermost is None else recorder.site(innermost), "frame": -1}


def _owner(code: CodeType) -> int:
    entry = _kinds.get(id(code))
    if entry is None:
        if len(_kinds) >= _MAX_CODES:  # a program that makes code without end
            _kinds.clear()
        file = code.co_filename
        kind = _OURS if file.startswith(PACKAGE) else _USER if is_user_code(code) else _LIBRARY
        if kind == _LIBRARY and is_beneath_libraries(file):
            kind = _BENEATH
        entry = _kinds[id(code)] = code, kind
    return entry[1]


# ---------------------------------------------------------------- torch's sync debug mode


MESSAGE: Final = "called a synchronizing CUDA operation"
"""The text is in c10/cuda/CUDAFunctions.cpp; torch appends the place in its source."""
PROTOTYPE: Final = "Synchronization debug mode is a prototype feature"
"""torch warns so once in a process, when the mode is first set (torch/csrc/cuda/Module.cpp): a program that sets it
later does not get this warning."""
_OFF: Final = 0
_WARN: Final = 1


class _SyncFilter:
    """Stands as `message` in the first entry of warnings.filters, and so sees each warning of the program."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.entry: Final = ("ignore", self, UserWarning, None, 0)
        self.active = True
        """Whether the mode is ours to control."""
        self.on = False
        self.turning_on = False

    def match(self, text: str) -> bool:
        """Tell whether to swallow a warning, which is then counted."""
        if self.turning_on and text.startswith(PROTOTYPE):
            return True
        recorder = STATE.recorder
        if not self.active or recorder is None or not text.startswith(MESSAGE):
            return False
        recorder.count("debug_syncs")
        if OPEN.inside == NESTED:
            recorder.count("debug_syncs_seen")
        else:
            explicit(recorder, CallKind.SYNC, "other", now())
        return True

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        """Libraries pass warnings.filters to their workers: there it becomes an expression that matches nothing."""
        return re.compile, ("(?!)",)

    def move_first(self) -> None:
        """Become the first filter, whatever the program has inserted or restored."""
        filters: Any = warnings.filters
        if not filters or filters[0] is not self.entry:
            filters[:] = [self.entry, *(entry for entry in filters if entry is not self.entry)]

    def begin(self) -> None:
        """Turn the mode on: the program is initializing CUDA."""
        if not self.active:
            return
        try:
            self.move_first()
            patch(warnings, "_filters_mutated", self.staying)
            self.turning_on = True
            self.torch._C._cuda_set_sync_debug_mode(_WARN)
            self.on = True
        except Exception as error:  # noqa: BLE001 - the program is initializing CUDA and must go on; it reports
            self.leave()
            report_failure(PLUGIN.name, error)
        finally:
            self.turning_on = False

    def end(self) -> None:
        """Turn the mode off, because the recording ends before the program."""
        if self.active and self.on:
            self.torch._C._cuda_set_sync_debug_mode(_OFF)
        self.leave()

    def leave(self) -> None:
        """Remove the filter."""
        self.active = False
        filters: Any = warnings.filters
        filters[:] = [entry for entry in filters if entry is not self.entry]

    def staying(self, original: Callable[[], None]) -> Callable[[], None]:
        def _filters_mutated() -> None:
            if self.active:
                self.move_first()
            original()

        return _filters_mutated

    def setting(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def set_sync_debug_mode(debug_mode: Any) -> None:
            self.active = False  # from now on the program controls it
            original(debug_mode)

        return set_sync_debug_mode

    def getting(self, original: Callable[[], int]) -> Callable[[], int]:
        def get_sync_debug_mode() -> int:
            mode = original()
            return _OFF if self.active else mode

        return get_sync_debug_mode


def _install(torch: Any) -> None:
    if not hasattr(torch._C, "_cuda_set_sync_debug_mode"):
        return  # torch without CUDA
    ours = _SyncFilter(torch)
    patch(torch.cuda, "set_sync_debug_mode", ours.setting)
    patch(torch.cuda, "get_sync_debug_mode", ours.getting)
    on_unpatch(ours.end)
    if STATE.recorder is not None:
        STATE.recorder.on_release.append(ours.end)
    torch.cuda._lazy_call(ours.begin)


PLUGIN = Hook("cuda_syncs", {"torch": _install}, levels=DETAILED)
