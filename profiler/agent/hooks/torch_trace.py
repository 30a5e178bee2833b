"""torch's own trace (Kineto) of some steps, at level full: begun and ended between steps, beside the other records."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.hooks._alarm import Alarm
from profiler.agent.hooks._kineto import KinetoSession, program_profiles
from profiler.agent.installation import report_failure
from profiler.agent.patching import STATE, on_unpatch, patch
from profiler.agent.recorder import Recorder, now
from profiler.run.tables import BoundaryKind

SKIP: Final = 5
"""Steps before the window: compilers, caches and allocators settle in them."""
STEPS: Final = 5
"""Steps in the window; the environment variable ENV_STEPS says otherwise."""
ENV_STEPS: Final = "PROFILER_TRACE_STEPS"
_MOST_NS: Final = 10_000_000_000  # a trace grows by up to 200 MB/s of short operators: slow steps get fewer of them
CUT_NS: Final = 5_000_000_000
"""After so long a window ends in the middle of a step too, where memory has grown by CUT_BYTES: it is those operators,
whose writing takes longer than they did."""
CUT_BYTES: Final = 1 << 29

_Boundary = tuple[BoundaryKind, str] | None


class TorchTrace:
    """Opens one window in the life of a recorder, unless the program has a profiler of torch's of its own."""

    name: ClassVar[str] = "torch-trace"
    modules: ClassVar[tuple[str, ...]] = ("torch.autograd.profiler",)
    levels: ClassVar[tuple[str, ...]] = ("full",)

    def __init__(self) -> None:
        self.window: Window | None = None

    def install(self, module: ModuleType) -> None:
        """Every way of starting a profiler of torch's in Python goes through two functions of `module`."""
        if STATE.recorder is not None:
            self.window = window = Window(STATE.recorder)
            on_unpatch(window.taken_back)
            patch(module, "_prepare_profiler", window.watched)
            patch(module, "_enable_profiler", window.watched)
            os.register_at_fork(after_in_child=window.forked)


class Window:
    """The steps that are traced.

    Steps that it touches are left out of what is measured; the fact `trace` says when it was, or why it was not:
    state (waiting | open | recorded | skipped | failed), reason, began <= begin <= end <= ended (ns; the trace covers
    begin to end, the rest is its starting and writing), and the clock pairs of KinetoSession.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._session: KinetoSession | None = None
        self._recorder: Recorder | None = recorder
        self._tid = 0
        self._counts: dict[_Boundary, int] = {}
        self._counted: _Boundary = None
        self._left = 0
        self._memory = 0
        self._alarm: Alarm | None = None
        self._ours = False
        self._facts: dict[str, Any] = {}
        recorder.on_step.append(self._boundary)
        self._say("waiting", f"the program ended before its {SKIP}th step")

    def _boundary(self) -> None:
        """A step may end here: begin the window, or end it."""
        recorder = self._recorder
        if recorder is None or recorder is not STATE.recorder:
            return
        if _capturing(sys.modules["torch"]):  # a graph would be lost: nothing else may be asked of the GPU meanwhile
            return
        at = recorder.open_boundary
        if self._session is None:
            count = self._counts[at] = self._counts.get(at, 0) + 1
            if count >= self._needed(at):
                self._begin(recorder, at)
        elif recorder.thread.tid == self._tid:
            if at == self._counted:
                self._left -= 1
            elif at is None or (self._counted and at[0] < self._counted[0]):  # a better word for what a step is
                self._counted, self._left = at, _steps()
            if self._left <= 0 or now() - self._session.begin > _MOST_NS:
                self._end(recorder)

    def _needed(self, at: _Boundary) -> float:
        """How many boundaries of this name come before the window; batches count where no optimizer steps."""
        if at is None or at[0] == BoundaryKind.OPTIMIZER:
            return SKIP
        steps = any(seen and seen[0] == BoundaryKind.OPTIMIZER for seen in self._counts)
        return math.inf if steps else 2 * SKIP

    def _begin(self, recorder: Recorder, at: _Boundary) -> None:
        began = now()
        if program_profiles(sys.modules["torch"]):
            self._give_up("skipped", "a profiler of torch's of the program's own was running")
            return
        self._ours = True
        try:
            self._session = KinetoSession(sys.modules["torch"])
        except Exception as error:  # noqa: BLE001 - the edge to torch's profiler, and it reports
            self._give_up("failed", f"{type(error).__name__}: {error}")
            report_failure(PLUGIN.name, error)
            return
        finally:
            self._ours = False
        self._tid, self._counted, self._left = recorder.thread.tid, at, _steps()
        atexit.register(self.taken_back)
        self._memory = _resident()
        if threading.current_thread() is threading.main_thread():
            self._alarm = Alarm(self._too_much, self._cut)
        self._own_time(recorder, began)
        self._say("open", "the program ended inside of the window, and not by itself", began=began)

    def _too_much(self) -> bool:
        """Whether the window has to end where it is, at a boundary or not."""
        session = self._session
        if session is None or now() - session.begin < CUT_NS:
            return False
        return _resident() - self._memory >= CUT_BYTES

    def _cut(self) -> None:
        recorder = self._recorder
        if recorder is not None and recorder is STATE.recorder and not _capturing(sys.modules["torch"]):
            self._end(recorder, "ended early: its steps were too long for a trace")

    def _end(self, recorder: Recorder, reason: str = "") -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._silence()
        began = now()
        try:
            clock = session.finish(recorder.directory)
        except Exception as error:  # noqa: BLE001 - the edge to torch's profiler and to the disk, and it reports
            self._give_up("failed", f"{type(error).__name__}: {error}")
            report_failure(PLUGIN.name, error)
        else:
            self._give_up("recorded", reason, begin=session.begin, end=session.end, clock=clock)
        self._own_time(recorder, began)

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            if not self._ours and self._recorder is not None and self._recorder is STATE.recorder:
                self._make_way(self._recorder)
            return original(*args, **kwargs)

        return start

    def _make_way(self, recorder: Recorder) -> None:
        """torch knows one session at a time, and a second one would lose its events, or crash at its end."""
        if self._session is None:
            if self._facts.get("state") == "waiting":
                self._give_up("skipped", "the program uses a profiler of torch's itself")
        elif recorder.thread.tid == self._tid:
            self._end(recorder, "ended early: the program started a profiler of torch's itself")
        else:  # only the thread that began a session may end it: it is lost, and left alone
            self._session = None
            self._silence()
            self._give_up("failed", "another thread of the program started a profiler of torch's")

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.stop()

    def forked(self) -> None:
        """A child would go on collecting events that nobody takes; and what its parent traced is no fact of its own."""
        if self._session is not None:
            self._session.forget()
        if self._recorder is not None and STATE.recorder is not None:
            skipped = {"state": "skipped", "reason": "a fork of a process that had torch already"}
            STATE.recorder.add_hook_facts(trace=skipped)
        self._session = self._recorder = None

    def taken_back(self) -> None:
        """The recording ends, or the program does."""
        recorder = self._recorder
        if recorder is None or recorder.pid != os.getpid():
            return
        if self._session is not None and recorder.thread.tid == self._tid:
            self._end(recorder, "ended early: the program or its recording ended")
        recorder.on_step = [call for call in recorder.on_step if call != self._boundary]
        self._recorder = None

    def _give_up(self, state: str, reason: str, **more: Any) -> None:
        """Nothing more to do at boundaries."""
        if self._recorder is not None:
            self._recorder.on_step = [call for call in self._recorder.on_step if call != self._boundary]
        self._say(state, reason, **more, ended=now())

    def _say(self, state: str, reason: str, **more: Any) -> None:
        self._facts |= {"state": state, "reason": reason, **more}
        if self._recorder is not None:
            self._recorder.add_hook_facts(trace=self._facts)

    def _own_time(self, recorder: Recorder, began: int) -> None:
        thread = recorder.thread
        recorder.regions.write(began, now(), thread.tid, recorder.names.intern("recording"), thread.depth)


def _capturing(torch: ModuleType) -> bool:
    """Whether this thread is recording a CUDA graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _steps() -> int:
    asked = os.environ.get(ENV_STEPS, "")
    return int(asked) if asked.isdecimal() and int(asked) else STEPS


PLUGIN = TorchTrace()
