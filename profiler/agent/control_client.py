"""Lets the speed test control a program: run a number of steps, stop at the end of a step with idle devices, repeat.

The program connects to the control socket at its first possible step boundary. It first reports the boundary events it
has seen, until the other side has chosen the one that ends a step. From then on it reports at the end of each block how
long its steps took, and receives the number of steps to run next. If the program later reaches an event of higher
priority, or only other ones of the same priority, both begin anew. Each message is one line of JSON (the other end:
profiler/check/speed/control.py). While the program waits here its processes are paused from outside; nothing
here sleeps.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from time import monotonic_ns as now  # the clock of every record, as in recorder
from typing import Any, Final, Protocol

from profiler.agent.bootstrap import warn
from profiler.run.tables import ENV_VIRTUAL_CUDA, PAUSED, boundary_priority

FIRST_REPORT: Final = 4
"""Boundary events after which they are reported for the first time."""
_ABANDONED: Final = 100
"""Events of the same priority after which the chosen one counts as that of an earlier part of the program, such as a
warm-up with an optimizer of its own. A choice: the optimizers of a program that trains several networks take turns."""

_SCHEDULER: Final = "/proc/thread-self/schedstat"
"""The scheduler's clocks of a thread: ns on a core, ns in which it was runnable without one, and turns."""
_CHILDREN: Final = "/proc/self/task/*/children"
_INSTALLED: Final = ("/site-packages/", "/dist-packages/", f"{os.path.dirname(os.__file__)}/")  # noqa: PTH120


class PausableRecorder(Protocol):
    """The part of `profiler.agent.recorder.Recorder` that is used here; that module imports this one."""

    rank: int
    drains: list[Callable[[], object]]
    prefetch: int
    regions: Any
    thread: Any
    names: Any

    def flush(self) -> None: ...


class ControlClient:
    """The program's end of the control socket at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: Any = None
        self._stream: Any = None
        self._events: list[str] = []
        """Boundary events so far, until one has been chosen."""
        self._report_at = FIRST_REPORT
        self._key = ""
        """The event that ends a step; empty: not chosen yet."""
        self._others = 0
        """Events of the same priority since the last one that ended a step."""
        self._count = 0
        """Steps so far: all ranks are brought to the same number."""
        self._remaining = 0
        self._stamps: list[int] = []
        """ns: the begin of the block, then the end of each of its steps."""
        self._begin_clocks = 0, 0.0
        """What `_delay_by_others` and `_children_cpu` were at the begin of the block."""
        self._tokens = 0
        self._detached = False
        self._reported_files = False
        self._lock = threading.RLock()

    def boundary(self, recorder: PausableRecorder, key: str, tokens: int = 0) -> bool:
        """Handle an event at which a step may end; returns when the program may go on.

        :param key: tables.MARK, or kind and name of what a hook saw.
        :returns: whether the program was paused here.
        """
        if self._detached or (self._key and key != self._key and not self._replaces(key)):
            return False
        self._others = 0
        with self._lock:
            try:
                return self._handle(recorder, key, tokens)
            except (OSError, ValueError, KeyError, TypeError) as error:
                warn(f"the speed test does not answer: {type(error).__name__}: {error}; the program goes on")
            except RuntimeError as error:
                warn(f"the speed test cannot wait for the device: {error}; the program goes on")
            self._detach()
            return False

    def _replaces(self, key: str) -> bool:
        """Tell whether another event than the chosen one ends the steps of the program now."""
        priority, chosen = boundary_priority(key), boundary_priority(self._key)
        if priority == chosen:
            self._others += 1
        return priority > chosen or self._others >= _ABANDONED

    def _handle(self, recorder: PausableRecorder, key: str, tokens: int) -> bool:
        when = now()
        if self._key and key != self._key:
            # the chosen event ended no steps, as batches of a validation before the training or optimizers before a
            # mark, or ends none any more
            self._key, self._remaining, self._stamps = "", 0, []
            self._events, self._report_at = [], FIRST_REPORT
        if not self._key:
            self._events.append(key)
            if len(self._events) < self._report_at:
                return False
            self._report_events(recorder)
            self._count = self._events.count(self._key)
            if key != self._key:
                return False
        else:
            self._count += 1
            if self._stamps:
                self._remaining -= 1
                self._stamps.append(when)
                self._tokens += tokens
                if self._remaining > 0:
                    return False
        if _is_capturing():
            return False  # nothing may be waited for while a graph is captured: the next step ends the block
        return self._pause(recorder, when)

    def _pause(self, recorder: PausableRecorder, when: int) -> bool:
        """Report the block that ended at `when`, and wait for the next one."""
        message: dict[str, Any] = {"count": self._count}
        if not self._reported_files:
            message["files"] = _user_files()
            self._reported_files = True
        _wait_for_devices(recorder)
        if self._stamps:
            self._stamps[-1] = now()
            message |= {"stamps": self._stamps, "tokens": self._tokens, "kept_waiting": self._kept_waiting(recorder)}
        recorder.flush()
        answer = self._request(recorder, message)
        if answer.get("free"):
            self._detach()
            return False
        self._remaining = int(answer["steps"])
        self._begin_clocks = _delay_by_others(), _children_cpu()
        self._stamps, self._tokens = [now()], 0
        recorder.regions.write(when, self._stamps[0], recorder.thread.tid, recorder.names[PAUSED], 0)
        return True

    def _kept_waiting(self, recorder: PausableRecorder) -> int:
        """Return for how many ns of the block other programs have kept this thread from a core, at least: 0 where it
        may also have been workers, other ranks or child processes of this program."""
        delay, children_cpu = self._begin_clocks
        if recorder.prefetch or _world_size() > 1 or _has_children() or _children_cpu() > children_cpu:
            return 0
        return max(0, _delay_by_others() - delay)

    def _report_events(self, recorder: PausableRecorder) -> None:
        """Report the events so far; the answer is the one that ends a step, or after how many to report again."""
        answer = self._request(recorder, {"seen": self._events})
        self._key = str(answer.get("key", ""))
        self._report_at = int(answer.get("look", self._report_at))
        if answer.get("free"):
            self._detach()

    def _detach(self) -> None:
        """Run freely from now on; the other side sees the socket closed."""
        self._detached = True
        if self._stream is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # workers that were forked since hold it open too
            with suppress(OSError):
                self._stream.close()

    def _request(self, recorder: PausableRecorder, message: dict[str, Any]) -> dict[str, Any]:
        if self._stream is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(self._path)
            self._stream = self._socket.makefile("rw", encoding="utf-8")
            message = {**message, "pid": os.getpid(), "rank": recorder.rank, "ranks": _world_size()}
        uses_device = bool(recorder.drains) or _torch_with_gpu() is not None
        self._stream.write(json.dumps({**message, "prefetch": recorder.prefetch, "queues": uses_device}) + "\n")
        self._stream.flush()
        answer = self._stream.readline()
        if not answer:
            raise ConnectionError("it has closed the socket")
        value: dict[str, Any] = json.loads(answer)
        return value


def _world_size() -> int:
    """Processes that step together on this machine, from the launcher or else the process group."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal():
        return int(local)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1


def _has_children() -> bool:
    """Tell whether this process has child processes, or the kernel does not tell."""
    known = False
    for file in glob(_CHILDREN):  # noqa: PTH207 - pathlib takes longer to import
        with suppress(OSError), open(file, "rb") as children:  # the thread may have ended
            if children.read(1):
                return True
            known = True
    return not known


def _children_cpu() -> float:
    """Return the CPU time in s of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _delay_by_others() -> int:
    """Return for how many ns this thread could run and had no core so far, less the most that the other threads of this
    process may have caused. 0 where the kernel does not tell."""
    try:
        with open(_SCHEDULER, "rb") as file:
            delay = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    others = time.process_time_ns() - time.thread_time_ns()
    return delay - others // len(os.sched_getaffinity(0))


def _user_files() -> list[str]:
    """Files of the modules that the program has loaded, except installed ones and the standard library.

    torch makes modules up whose file is a bare name; they are left out.
    """
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    absolute = [file for file in files if isinstance(file, str) and os.path.isabs(file)]  # noqa: PTH117
    return [file for file in absolute if not any(part in file for part in _INSTALLED)]


def _torch_with_gpu() -> Any:
    """Return torch if the program uses a GPU through it; never imported here. A virtual device queues nothing."""
    if os.environ.get(ENV_VIRTUAL_CUDA):
        return None
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_available() and cuda.is_initialized() else None


def _is_capturing() -> bool:
    """Tell whether a CUDA graph is being captured."""
    torch = _torch_with_gpu()
    return torch is not None and bool(torch.cuda.is_current_stream_capturing())


def _wait_for_devices(recorder: PausableRecorder) -> None:
    """Wait until all devices are idle, by ways that do not count as waits of the program.

    :raises RuntimeError: a device has failed.
    """
    for drain in recorder.drains:
        drain()
    torch = _torch_with_gpu()
    if torch is None:
        return
    for device in range(torch.cuda.device_count()):
        if torch._C._cuda_hasPrimaryContext(device):  # waiting for another one would make a context there
            with torch.cuda.device(device):
                torch._C._cuda_synchronize()
