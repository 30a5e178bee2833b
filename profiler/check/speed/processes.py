"""Ends process trees in any case: after signals, after the death of the check, after a freeze."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.procfs import (
    DISK_SLEEP,
    ENDED_STATES,
    STOPPED_STATES,
    ProcessStat,
    all_processes,
    is_alive,
    process_tree,
    read_arguments,
    read_stat,
    thread_states,
)

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that the kernel sends to a process when its parent dies."""
_prctl: Final = ctypes.CDLL(None).prctl
"""Resolved here: between fork and exec only calls that take no lock are safe."""
_PATIENCE_S: Final = 10.0
_SPINS: Final = 5
"""After SIGSTOP the state of a process is read this many times without a sleep in between: stopping usually takes less
than a sleep."""
_SLEEP_S: Final = 0.0002
_VFORK_S: Final = 0.05
"""A process that waits in the kernel may wait for a disk this long; after that, a frozen child of vfork is the probable
cause."""

Watch = Callable[[int, ProcessStat], None]


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies; for a child between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


class ProcessTree:
    """The descendants of `root`, and processes of their sessions that have lost their parents.

    PIDs are reused, so each process is remembered with its start time, and one that does not match gets no signal.
    Processes of another user (a setuid program) are left alone.

    :param root: a process that leads a session; 0: there is none, only members that are added to `starts`.
    :param watch: is called with each process before it is frozen.
    """

    def __init__(self, root: int = 0, watch: Watch | None = None) -> None:
        self.root = root
        self.starts: dict[int, int] = {}
        """Start times of the members by PID."""
        self.leaders: dict[int, int] = {}
        """Start times of the session leaders among them."""
        self._watch = watch
        self._orphans: list[int] = []
        self._stopped: dict[int, int] = {}
        stat = read_stat(root)
        if stat is not None:
            self._remember(root, stat)

    def find_orphans(self) -> None:
        """Find processes of the sessions that are no longer descendants of the root. Takes some ms: once a round."""
        processes = all_processes()
        for pid, start in list(self.leaders.items()):
            # a PID may be reused, but the number of a session is not while it has members
            if pid in processes and processes[pid].start_ticks != start:
                del self.leaders[pid]
        descendants = _with_descendants(
            processes, [self.root] if self._is_member(self.root, processes.get(self.root)) else []
        )
        members = _with_descendants(
            processes,
            (pid for pid, stat in processes.items() if stat.session in self.leaders or self._is_member(pid, stat)),
        )
        for pid in descendants | members:
            self._remember(pid, processes[pid])
        self._orphans = [
            pid
            for pid in members - descendants
            if processes[pid].parent not in members and processes[pid].state not in ENDED_STATES
        ]

    def members(self) -> list[int]:
        """Return the PIDs of all living members, the root first."""
        pids: dict[int, None] = {}
        for top in (self.root, *self._orphans):
            if top not in pids and self._is_member(top, read_stat(top)):
                pids.update(dict.fromkeys(process_tree(top)))
        return list(pids)

    def contains(self, pid: int) -> bool:
        """Return whether `freeze` would stop `pid`; takes some ms if not."""
        if pid in self.members():
            return True
        self.find_orphans()
        return pid in self.members()

    def freeze(self) -> None:
        """Stop all members. When it returns, none of them runs.

        :raises ProfilerError: one keeps running.
        """
        deadline = time.monotonic() + _PATIENCE_S
        signalled: set[int] = set()
        while new := [pid for pid in self.members() if pid not in signalled] or self._new_orphans(signalled):
            if time.monotonic() > deadline:
                raise ProfilerError("the program starts processes faster than they can be stopped")
            signalled.update(new)
            for pid in [pid for pid in new if self._stop(pid)]:
                self._wait_until_stopped(pid, deadline)

    def thaw(self) -> None:
        """Continue all processes that `freeze` has stopped."""
        for pid, start in self._stopped.items():
            if is_alive(pid, start):
                _send(pid, signal.SIGCONT)
        self._stopped.clear()

    def kill(self) -> None:
        """Kill all members. When it returns, none lives; the root's parent still has to wait for the root."""
        deadline = time.monotonic() + _PATIENCE_S
        refused: set[int] = set()
        while True:
            self.find_orphans()
            # not `members`: a parent that dies between both would hide its children
            living = {pid: start for pid, start in self.starts.items() if pid not in refused and is_alive(pid, start)}
            if not living or time.monotonic() > deadline:
                return
            refused.update([pid for pid in living if not _send(pid, signal.SIGKILL)])
            for pid, start in living.items():
                while pid not in refused and is_alive(pid, start) and time.monotonic() < deadline:
                    time.sleep(0.001)

    def _is_member(self, pid: int, stat: ProcessStat | None) -> bool:
        return stat is not None and self.starts.get(pid) == stat.start_ticks

    def _remember(self, pid: int, stat: ProcessStat) -> None:
        if self.starts.get(pid) == stat.start_ticks:
            return
        self.starts[pid] = stat.start_ticks
        if stat.session == pid:
            self.leaders[pid] = stat.start_ticks
        if self._watch is not None:
            self._watch(pid, stat)

    def _new_orphans(self, signalled: set[int]) -> list[int]:
        """Return living members that were not signalled: they have just lost their parents. Forgets members that
        ended."""
        orphans = []
        for pid in [pid for pid in self.starts if pid not in signalled]:
            if is_alive(pid, self.starts[pid]):
                orphans.append(pid)
            elif pid != self.root:
                del self.starts[pid]
        self._orphans = [pid for pid in self._orphans if pid in self.starts] + orphans
        return orphans

    def _stop(self, pid: int) -> bool:
        """Send SIGSTOP; whether it could be sent."""
        if pid not in self.starts:  # it must be known before it is stopped, because the watchdog may have to end it
            stat = read_stat(pid)
            if stat is None:
                return False
            self._remember(pid, stat)
        if not _send(pid, signal.SIGSTOP):
            return False
        self._stopped[pid] = self.starts[pid]
        return True

    def _wait_until_stopped(self, pid: int, deadline: float) -> None:
        looks, begin = 0, 0.0
        while (stat := read_stat(pid)) is not None:
            if stat.start_ticks != self._stopped[pid]:  # the PID was reused by another descendant
                self._remember(pid, stat)
                self._stopped[pid] = stat.start_ticks
            if stat.state in STOPPED_STATES:
                return
            looks += 1
            if looks <= _SPINS:
                os.sched_yield()
                continue
            now = time.monotonic()
            begin = begin or now
            if stat.state == DISK_SLEEP and now - begin > _VFORK_S and self._waits_for_vfork(pid):
                return
            if now > deadline:
                _check_not_running(pid)
                return
            time.sleep(_SLEEP_S)

    def _waits_for_vfork(self, pid: int) -> bool:
        """Return whether `pid` can wait for a frozen child: one of vfork that was stopped before its exec."""
        if thread_states(pid) - {*STOPPED_STATES, DISK_SLEEP}:
            return False
        children = [read_stat(child) for child in process_tree(pid)[1:] if child in self._stopped]
        return any(child is not None and child.state in STOPPED_STATES and child.parent == pid for child in children)


def _with_descendants(processes: dict[int, ProcessStat], tops: Iterable[int]) -> set[int]:
    pids = set(tops)
    while children := {pid for pid, stat in processes.items() if stat.parent in pids} - pids:
        pids |= children
    return pids


def _send(pid: int, number: signal.Signals) -> bool:
    """Return whether the signal could be sent."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _check_not_running(pid: int) -> None:
    """Accept a process that only waits in the kernel: the signal stops it as soon as it comes out.

    :raises ProfilerError: it is running.
    """
    if thread_states(pid) - {*STOPPED_STATES, DISK_SLEEP}:
        name = " ".join(read_arguments(pid))[:80] or "without a name"
        raise ProfilerError(
            f"process {pid} of the program ({name}) still runs {_PATIENCE_S:.0f} s after it was told to stop, so the "
            "other side cannot be measured alone: run fewer programs on this machine, or start the program without "
            "that process"
        )


# ---------------------------------------------------------------- after the death of the check

_ROOT: Final = Path(__file__).resolve().parents[3]
_MAIN: Final = "import sys; sys.path.append(sys.argv[1]); from profiler.check.speed.processes import main; main()"
"""Our folder comes last in sys.path: what is installed beside the package must not hide modules of Python itself."""
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DISMISSED: Final = b"goodbye\n"
_EXIT_S: Final = 20.0
"""How long the watchdog may take to end, twice what it gives the processes that it kills."""


class Watchdog:
    """The `check` process's end of the pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)

    def watch(self, pid: int, stat: ProcessStat | None = None) -> None:
        """Have `pid` ended with `check`, with its descendants and the session that it leads; takes some µs.

        If somebody has killed the watchdog, `check` goes on without it.

        :param stat: its current state, if the caller has read it already.
        """
        stat = stat or read_stat(pid)
        if stat is not None:
            self._send(b"%d %d %d\n" % (pid, stat.start_ticks, stat.session == pid))

    def watch_folder(self, folder: str) -> None:
        """Have a folder for temporary files removed with `check`, after its programs."""
        self._send(os.fsencode(folder) + b"\n")

    def dismiss(self) -> None:
        """Tell the watchdog that there is nothing to end."""
        self._send(_DISMISSED)

    def _send(self, line: bytes) -> None:
        with suppress(OSError):
            os.write(self._pipe, line)


@contextmanager
def watchdog_process() -> Iterator[Watchdog]:
    """Start the watchdog before the programs. If the block ends by an exception, it ends the programs that are left.

    :raises ProfilerError: it cannot be started.
    """
    # The watchdog inherits this mask, so that no signal can end it, not even before its first line runs.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _MAIN, str(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ProfilerError(f"cannot start {sys.executable or 'Python'}: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert process.stdin is not None
    watchdog = Watchdog(process.stdin.fileno())
    try:
        yield watchdog
        watchdog.dismiss()
    finally:
        process.stdin.close()
        try:
            process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Run the watchdog: wait for the end of the pipe, then end the processes that `check` has left behind."""
    data = sys.stdin.buffer.read()
    if not data.endswith(_DISMISSED):
        lines = data.splitlines()
        watched = [tuple(map(int, line.split())) for line in lines if not line.startswith(b"/")]
        tree = ProcessTree()
        tree.starts = {pid: start for pid, start, _ in watched}
        tree.leaders = {pid: start for pid, start, leads in watched if leads}
        tree.kill()
        for folder in [line for line in lines if line.startswith(b"/")]:
            shutil.rmtree(os.fsdecode(folder), ignore_errors=True)


# ---------------------------------------------------------------- signals

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEEP: Final = (signal.SIG_IGN, None)
"""Handlers that are left alone: ignored (nohup), or set by a C library, which could not be restored."""
_pending: Final[list[int]] = []
_last: Final[list[int]] = []


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Record these signals instead of handling them, until `raise_deferred` or the end of the block.

    :raises KeyboardInterrupt: at the end, if a signal is still pending.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, _record) for number in _SIGNALS if signal.getsignal(number) not in _KEEP}
    try:
        yield
        raise_deferred()
    finally:
        _pending.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def raise_deferred() -> None:
    """Raise KeyboardInterrupt if a signal is pending."""
    if _pending:
        _pending.clear()
        raise KeyboardInterrupt


def last_signal() -> int | None:
    """Return the last signal that was deferred, whether or not it has been raised; None if there was none."""
    return _last[-1] if _last else None


def _record(number: int, _: FrameType | None) -> None:
    _pending.append(number)
    _last[:] = [number]
