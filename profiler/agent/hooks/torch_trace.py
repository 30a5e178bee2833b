"""Opens a window of steps under one of torch's profilers, and records torch's own trace (Kineto) of one at level full.

The window gives way to the program's own profilers.
"""

from __future__ import annotations

import _thread
import atexit
import gzip
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from profiler.agent.clocks import now
from profiler.agent.installation import report_failure
from profiler.agent.patching import STATE, Hook, on_unpatch, patch
from profiler.agent.recorder import Recorder
from profiler.run.tables import ENV_TRACE_SECONDS, ENV_TRACE_STEPS, STEP_BOUNDARIES, BoundaryKind

_MAX_NS: Final = 10_000_000_000  # short operators make up to 200 MB/s of trace: slow steps get a shorter window
CUT_NS: Final = 5_000_000_000
"""After so long a window may end within a step, if memory has grown by CUT_BYTES: writing such a trace takes longer
than its operators took."""
CUT_BYTES: Final = 1 << 29
ALARM_PERIOD_S: Final = 0.5

_alarm_callbacks: Final[list[object]] = []
"""Kept alive, because the interpreter may still have to call them."""

_Boundary = tuple[BoundaryKind, str] | None
_RANKS: Final = STEP_BOUNDARIES.index
"""The precedence of a kind of boundary as the end of a step: 0 is the first."""


class TorchProfilerSession(Protocol):
    """A session of one of torch's profilers; it runs from its creation, with the module torch, to `finish`."""

    begin: int
    """The moment, ns, at which it had started."""
    end: int
    """The moment at which `finish` was called."""

    def next_step(self) -> None:
        """A step of the window has ended, and another one follows."""

    def finish(self, directory: Path) -> dict[str, Any]:
        """End it in the thread that created it.

        :return: facts about it.
        """

    def abandon(self) -> None:
        """Stop collecting in a forked child, which does not have the session."""


class ProfilerWindow:
    """Some steps under a session of one of torch's profilers; they are excluded from measurements.

    The fact `fact` describes it: state (waiting | open | recorded | skipped | failed), reason, began <= begin <= end <=
    ended in ns (the session covers begin to end; before and after it is started and read), and the session's facts.

    :param skip: the number of steps before the window, and `steps` in it.
    :param enough_ns: where steps are long, the window begins at the first end of a step so long after the first one,
        and is cut off after about as long. It does not begin at the end of a step that the program marked as a warm-up:
        so short a window would show nothing else. 0: none of this.
    """

    is_starting = False
    """Whether any window is starting its session, and not the program."""

    def __init__(
        self,
        recorder: Recorder,
        fact: str,
        session: Callable[[ModuleType], TorchProfilerSession],
        *,
        skip: int,
        steps: int,
        enough_ns: int = 0,
    ) -> None:
        self._fact, self._make_session, self._skip, self._steps = fact, session, skip, steps
        self._session: TorchProfilerSession | None = None
        self._enough_ns = enough_ns
        self._recorder: Recorder | None = recorder
        self._torch: Any = sys.modules["torch"]  # the program may remove it there
        self._tid = 0
        self._counts: dict[_Boundary, int] = {}
        self._first: dict[_Boundary, int] = {}
        self._counted: _Boundary = None
        self._left = 0
        self._memory = 0
        self._alarm: Alarm | None = None
        self._facts: dict[str, Any] = {}
        recorder.on_step.append(self._boundary)
        self._set_state("waiting", f"the program ended before its {skip}th step")

    def install(self, module: ModuleType) -> ProfilerWindow:
        """Give way to the program's own profilers, which start through two functions of `module`, and to forks."""
        on_unpatch(self.close)
        patch(module, "_prepare_profiler", self.before_program_profiler)
        patch(module, "_enable_profiler", self.before_program_profiler)
        os.register_at_fork(after_in_child=self.after_fork)
        return self

    def _boundary(self) -> None:
        """Begin or end the window here, where a step may end."""
        recorder = self._recorder
        if recorder is None or recorder is not STATE.recorder:
            return
        if _capturing(self._torch):  # any other use of the GPU would invalidate the graph
            return
        at = recorder.open_boundary
        if self._session is None:
            if self._enough_ns and recorder.is_warmup:
                return
            count = self._counts[at] = self._counts.get(at, 0) + 1
            since, needed = now() - self._first.setdefault(at, now()), self._needed(at)
            if count >= needed or (needed < math.inf and 0 < self._enough_ns <= since):
                self._begin(recorder, at)
        elif recorder.thread.tid == self._tid:
            if at == self._counted:
                self._left -= 1
            elif self._counted and (
                at is None or _RANKS(at[0]) < _RANKS(self._counted[0])
            ):  # a better boundary of steps
                self._counted, self._left = at, self._steps
            if self._left <= 0 or now() - self._session.begin > (self._enough_ns or _MAX_NS):
                self._end(recorder)
            elif at == self._counted:
                self._next_step(recorder)

    def _needed(self, at: _Boundary) -> float:
        """Return the number of boundaries of this name before the window; batches count if nothing better ends
        steps."""
        if at is None or at[0] == BoundaryKind.OPTIMIZER:
            return self._skip
        better = any(seen and _RANKS(seen[0]) < _RANKS(at[0]) for seen in self._counts)
        return math.inf if better else 2 * self._skip

    def _begin(self, recorder: Recorder, at: _Boundary) -> None:
        began = now()
        if program_profiles(self._torch):
            self._finish("skipped", "torch's profiler was running already, started by the program")
            return
        ProfilerWindow.is_starting = True
        try:
            self._session = self._make_session(self._torch)
        except Exception as error:  # noqa: BLE001 - the edge to torch's profiler, and it reports
            self._fail(error)
            return
        finally:
            ProfilerWindow.is_starting = False
        recorder.open_windows += 1
        self._tid, self._counted, self._left = recorder.thread.tid, at, self._steps
        atexit.register(self.close)
        self._memory = _resident()
        if threading.current_thread() is threading.main_thread():
            self._alarm = Alarm(self._is_too_large, self._cut)
        recorder.record_overhead(began)
        self._set_state("open", "the program was ended within the window", began=began)

    def _is_too_large(self) -> bool:
        """Tell whether the window must end now, at a boundary or not."""
        session = self._session
        if session is None:
            return False
        lasted = now() - session.begin
        if 0 < self._enough_ns <= lasted:
            return True
        return lasted >= CUT_NS and _resident() - self._memory >= CUT_BYTES

    def _cut(self) -> None:
        recorder = self._recorder
        if recorder is not None and recorder is STATE.recorder and not _capturing(self._torch):
            self._end(recorder, "ended early: its steps were too long for a trace")

    def _end(self, recorder: Recorder, reason: str = "") -> None:
        session = self._take_session()
        if session is None:
            return
        began = now()
        try:
            facts = session.finish(recorder.directory)
        except Exception as error:  # noqa: BLE001 - the edge to torch's profiler and to the disk, and it reports
            self._fail(error)
        else:
            self._finish("recorded", reason, begin=session.begin, end=session.end, **facts)
        recorder.record_overhead(began)

    def _next_step(self, recorder: Recorder) -> None:
        began = now()
        try:
            if self._session is not None:
                self._session.next_step()
        except Exception as error:  # noqa: BLE001 - the edge to torch's profiler, and it reports
            self._take_session()
            self._fail(error)
        recorder.record_overhead(began)

    def _take_session(self) -> TorchProfilerSession | None:
        session, self._session = self._session, None
        if session is not None and self._recorder is not None:
            self._recorder.open_windows -= 1
        if self._alarm is not None:
            self._alarm.stop()
        return session

    def before_program_profiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            if not ProfilerWindow.is_starting and self._recorder is not None and self._recorder is STATE.recorder:
                self._make_way(self._recorder)
            return original(*args, **kwargs)

        return start

    def _make_way(self, recorder: Recorder) -> None:
        """End our session before the program begins one: torch supports one, and a second one may crash at its end."""
        if self._session is None:
            if self._facts.get("state") == "waiting":
                self._finish("skipped", "the program uses torch's profiler itself")
        elif recorder.thread.tid == self._tid:
            self._end(recorder, "ended early: the program started torch's profiler itself")
        else:  # only the thread that began a session may end it: it is lost
            self._take_session()
            self._finish("failed", "another thread of the program started torch's profiler")

    def after_fork(self) -> None:
        """A child must not collect events for its parent's session, nor report what its parent traced."""
        if self._session is not None:
            self._session.abandon()
        if self._recorder is not None and STATE.recorder is not None:
            skipped = {"state": "skipped", "reason": "forked from a process that had torch already"}
            STATE.recorder.add_hook_facts(**{self._fact: skipped})
        self._session = self._recorder = None

    def close(self) -> None:
        """End an open window, because the recording or the program ends."""
        recorder = self._recorder
        if recorder is None or recorder.pid != os.getpid():
            return
        if self._session is not None and recorder.thread.tid == self._tid:
            self._end(recorder, "ended early: the program or its recording ended")
        self._leave_boundaries()
        self._recorder = None

    def _leave_boundaries(self) -> None:
        if self._recorder is not None:
            self._recorder.on_step = [call for call in self._recorder.on_step if call != self._boundary]

    def _fail(self, error: Exception) -> None:
        self._finish("failed", f"{type(error).__name__}: {error}")
        report_failure(self._fact, error)

    def _finish(self, state: str, reason: str, **more: Any) -> None:
        """Set the final state; boundaries need no attention any more."""
        self._leave_boundaries()
        self._set_state(state, reason, **more, ended=now())

    def _set_state(self, state: str, reason: str, **more: Any) -> None:
        self._facts |= {"state": state, "reason": reason, **more}
        if self._recorder is not None:
            self._recorder.add_hook_facts(**{self._fact: self._facts})


def _capturing(torch: ModuleType) -> bool:
    """Tell whether this thread is recording a CUDA graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _resident() -> int:
    """Return the resident bytes of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def program_profiles(torch: ModuleType) -> bool:
    """Tell whether torch's profiler runs already."""
    return bool(torch.autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled)


class Alarm:
    """Calls a function in the main thread, between two bytecodes of the program, when a condition holds.

    Without it a program that runs no hook for a while (operators in a loop, and no boundary) would never end a window
    that grows meanwhile. The condition is checked every ALARM_PERIOD_S until `stop`; the function may be called again
    and again, since it may not be able to act at the first moment. The thread is not one of `threading`, so that the
    program does not see it in its list of threads; a fork does not have it.

    :param due: the condition, evaluated in the alarm's thread.
    :param ring: called as a signal's handler is; it must not raise.
    """

    def __init__(self, due: Callable[[], bool], ring: Callable[[], None]) -> None:
        import ctypes  # some ms: only where it is needed

        def call(_: int | None) -> int:
            if not self._stopped:
                ring()
            return 0

        self._stopped = False
        self._due = due
        self._add = ctypes.pythonapi.Py_AddPendingCall
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
        _alarm_callbacks.append(self._call)
        self._end = threading.Lock()
        self._end.acquire()
        _thread.start_new_thread(self._watch, ())

    def stop(self) -> None:
        """Ring no more."""
        if not self._stopped:
            self._stopped = True
            self._end.release()

    def _watch(self) -> None:
        while not self._end.acquire(timeout=ALARM_PERIOD_S):
            if self._due():
                self._add(self._call, None)


# ---------------------------------------------------------------- torch's trace


SKIP: Final = 5
"""Steps before the window: compilers, caches and allocators settle in them."""
STEPS: Final = 5
"""Steps in the window, unless the environment variable ENV_TRACE_STEPS is set."""
TRACE: Final = "kineto.json.gz"
_LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
_SILENT: Final = "99"
_READINGS: Final = 5
_COMPRESSION: Final = 1  # of gzip: 5 times smaller at 100 MB/s; level 9 makes it 7 times, and takes ten times as long


def install(module: ModuleType) -> ProfilerWindow | None:
    """Trace one window in the life of the recorder, unless the program uses torch's profiler itself."""
    if STATE.recorder is None:
        return None
    enough = round(_number(ENV_TRACE_SECONDS, 0.0) * 1e9)
    steps = round(_number(ENV_TRACE_STEPS, STEPS))
    window = ProfilerWindow(STATE.recorder, "trace", KinetoSession, skip=SKIP, steps=steps, enough_ns=enough)
    return window.install(module)


def _number(variable: str, default: float) -> float:
    """Return a variable's value above 0, else the default."""
    text = os.environ.get(variable, "")
    return (float(text) if text.replace(".", "", 1).isdecimal() else 0.0) or default


class KinetoSession:
    """One session of torch's profiler, with the pairs that tie its clock to ours.

    It runs from its creation to `finish`, which only the same thread may call.

    :param torch: the module. GPU activity is traced if the program has used a GPU by now.
    """

    def __init__(self, torch: ModuleType) -> None:
        kinds = torch.profiler.ProfilerActivity
        wanted = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_initialized() else [])]
        known = torch.profiler.supported_activities()
        self._torch = torch
        self._profile: Any = torch.profiler._KinetoProfile(activities=[kind for kind in wanted if kind in known])
        with _quiet(torch):
            self._profile.start()
        self.begin = now()
        self.end = 0
        self._pair = clock_pair()

    def next_step(self) -> None:
        """The trace goes on."""

    def finish(self, directory: Path) -> dict[str, Any]:
        """End the session and write `directory`/TRACE, completely or not at all.

        :return: `clock`: pairs (our clock, time of day) in ns, from the start and from the end; the trace has the time
            of day.
        :raises OSError: the disk is full. torch may raise other errors.
        """
        pairs = [self._pair, clock_pair()]
        self.end = now()
        self._profile.stop()
        plain, packed = directory / "kineto.json.new", directory / (TRACE + ".new")
        try:
            self._profile.export_chrome_trace(str(plain))
            self._profile = None
            with open(plain, "rb") as source, gzip.open(packed, "wb", _COMPRESSION) as target:
                source.seek(max(0, plain.stat().st_size - 64))
                if not source.read().rstrip().endswith(b"}"):  # torch does not report a full disk
                    raise OSError(f"{plain.name} is cut off: is the disk full?")
                source.seek(0)
                shutil.copyfileobj(source, target, 1 << 20)
            packed.replace(directory / TRACE)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        return {"clock": pairs}

    def abandon(self) -> None:
        """Stop collecting in a forked child, which does not have the session."""
        self._torch._C._autograd._enable_record_function(False)


def clock_pair() -> tuple[int, int]:
    """Return the same moment on our clock and as time of day, ns: the fastest of some readings, exact to less than a
    µs."""
    readings = []
    for _ in range(_READINGS):
        before, day, after = now(), time.time_ns(), now()
        readings.append((after - before, (before + after) // 2, day))
    _, ours, day = min(readings)
    return ours, day


@contextmanager
def _quiet(torch: ModuleType) -> Iterator[None]:
    """Keep Kineto, which reads its log level at its first session, and torch from writing into the program's output.

    torch 2.11 warns at every start that a later session clears the events. `warnings.catch_warnings` would make the
    program's own warnings appear again.
    """
    had, module = os.environ.get(_LOG_LEVEL), torch.profiler.profiler
    os.environ.setdefault(_LOG_LEVEL, _SILENT)
    warn_once = getattr(module, "_warn_once", None)
    if warn_once is not None:
        module._warn_once = lambda *_, **__: None
    try:
        yield
    finally:
        if warn_once is not None:
            module._warn_once = warn_once
        if had is None:
            del os.environ[_LOG_LEVEL]


PLUGIN = Hook("torch-trace", {"torch.autograd.profiler": install}, levels=("full",), beside_marks=True)
