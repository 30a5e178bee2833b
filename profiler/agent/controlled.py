"""Lets a program run so many steps at a time, at the word of the gate, and stand still in between, its device idle.

It connects to the socket that the environment names at the first moment at which a step may end. First the gate hears
which moments there are and says which of them ends a step; then it says how many steps to run, and hears how long each
took. Where what ends a step turns out to be something else, both begin anew. One line of JSON each way. While the
program stands still the gate stops its processes; nothing here sleeps.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns as now  # the clock of every record, as in recorder
from typing import Any, Final, Protocol

from profiler.agent.bootstrap import warn
from profiler.run.tables import PAUSED, boundary_priority

FIRST_LOOK: Final = 4
"""Moments after which the gate hears of them for the first time."""

_INSTALLED: Final = ("/site-packages/", "/dist-packages/", f"{os.path.dirname(os.__file__)}/")  # noqa: PTH120


class Recorder(Protocol):
    """What of `profiler.agent.recorder.Recorder` is used here."""

    rank: int
    drains: list[Callable[[], object]]
    prefetch: int
    regions: Any
    thread: Any
    names: Any

    def flush(self) -> None: ...


class ControlledProgram:
    """The program's end of the line.

    :param path: of the gate's socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: Any = None
        self._line: Any = None
        self._seen: list[str] = []
        self._wanted = FIRST_LOOK
        self._key = ""
        self._count = 0
        """Moments with that key until now: ranks are brought to the same one."""
        self._left = 0
        self._stamps: list[int] = []
        self._tokens = 0
        self._free = False
        self._begun = False
        self._lock = threading.RLock()

    def boundary(self, recorder: Recorder, key: str, tokens: int = 0) -> bool:
        """A step may have ended; returns when the next one may begin.

        :param key: what ends it: tables.MARK, or the kind and name of what a hook saw.
        :returns: whether the program stood still here.
        """
        if self._free or (key != self._key and self._key and boundary_priority(key) <= boundary_priority(self._key)):
            return False
        with self._lock:
            try:
                return self._at(recorder, key, tokens)
            except (OSError, ValueError, KeyError, TypeError) as error:
                warn(f"the gate does not answer: {type(error).__name__}: {error}; the program goes on")
            except RuntimeError as error:
                warn(f"the gate cannot wait for the device: {error}; the program goes on")
            self._leave()
            return False

    def _at(self, recorder: Recorder, key: str, tokens: int) -> bool:
        when = now()
        if self._key and key != self._key:
            # what was taken for a step was none: batches of a validation before the training, optimizers before a mark
            self._key, self._left, self._stamps, self._seen, self._wanted = "", 0, [], [], FIRST_LOOK
        if not self._key:
            self._seen.append(key)
            if len(self._seen) < self._wanted:
                return False
            self._choose(recorder)
            self._count = self._seen.count(self._key)
            if key != self._key:
                return False
        else:
            self._count += 1
            if self._stamps:
                self._left -= 1
                self._stamps.append(when)
                self._tokens += tokens
                if self._left > 0:
                    return False
        if _captures():
            return False  # nothing may be waited for while a graph is captured: the next step ends the turn
        said: dict[str, Any] = {"count": self._count} if self._begun else {"count": self._count, "files": _files()}
        self._begun = True
        _drain(recorder)
        if self._stamps:
            self._stamps[-1] = now()
            said |= {"stamps": self._stamps, "tokens": self._tokens}
        recorder.flush()
        answer = self._ask(recorder, said)
        if answer.get("free"):
            self._leave()
            return False
        self._left = int(answer["steps"])
        self._stamps, self._tokens = [now()], 0
        recorder.regions.write(when, self._stamps[0], recorder.thread.tid, recorder.names[PAUSED], 0)
        return True

    def _choose(self, recorder: Recorder) -> None:
        """Tell the gate what was seen until it has seen enough to say what a step is."""
        answer = self._ask(recorder, {"seen": self._seen})
        self._key = str(answer.get("key", ""))
        self._wanted = int(answer.get("look", self._wanted))
        if answer.get("free"):
            self._leave()

    def _leave(self) -> None:
        """Take no more turns; a gate that waits for this program sees that the line is closed."""
        self._free = True
        if self._line is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # workers that were forked since hold it open too
            with suppress(OSError):
                self._line.close()

    def _ask(self, recorder: Recorder, said: dict[str, Any]) -> dict[str, Any]:
        if self._line is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(self._path)
            self._line = self._socket.makefile("rw", encoding="utf-8")
            said = {**said, **_who(recorder)}
        self._line.write(json.dumps({**said, "prefetch": recorder.prefetch, "queues": _queues(recorder)}) + "\n")
        self._line.flush()
        answer = self._line.readline()
        if not answer:
            raise ConnectionError("it has closed the line")
        value: dict[str, Any] = json.loads(answer)
        return value


def _who(recorder: Recorder) -> dict[str, Any]:
    return {"pid": os.getpid(), "rank": recorder.rank, "ranks": _ranks()}


def _ranks() -> int:
    """Processes that step together on this machine: as a launcher says, else as the process group does."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal():
        return int(local)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1


def _files() -> list[str]:
    """Files of the modules that the program has loaded, but for the standard library's and those installed.

    torch has modules that were made up, with a bare name for a file.
    """
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files = [file for file in found if isinstance(file, str) and os.path.isabs(file)]  # noqa: PTH117
    return [file for file in files if not any(part in file for part in _INSTALLED)]


def _torch() -> Any:
    """torch where the program uses a GPU through it; never imported here."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_available() and cuda.is_initialized() else None


def _queues(recorder: Recorder) -> bool:
    """Whether a device works behind the program's back."""
    return bool(recorder.drains) or _torch() is not None


def _captures() -> bool:
    """Whether what the program launches now goes into a CUDA graph."""
    torch = _torch()
    return torch is not None and bool(torch.cuda.is_current_stream_capturing())


def _drain(recorder: Recorder) -> None:
    """Wait until all devices are idle, by ways that count as no wait of the program's.

    :raises RuntimeError: a device has failed.
    """
    for drain in recorder.drains:
        drain()
    torch = _torch()
    if torch is None:
        return
    for device in range(torch.cuda.device_count()):
        if torch._C._cuda_hasPrimaryContext(device):  # to wait for another one would make a context there
            with torch.cuda.device(device):
                torch._C._cuda_synchronize()
