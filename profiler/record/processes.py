"""Reads processes and threads of the target cheaply: who belongs to it, who is Python, CPU time of its threads."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress


def thread_ids(pid: int) -> list[int]:
    """Threads of `pid`; empty when it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - a Path each costs thrice this
    except OSError:
        return []


def thread_cpu(pid: int, tids: list[int]) -> dict[int, int]:
    """CPU time so far of each thread in ns: the scheduler's own clock, where psutil's ticks at 10 ms.

    About 8 µs a thread. Threads that have ended are left out.
    """
    times: dict[int, int] = {}
    for tid in tids:
        with suppress(OSError, ValueError, IndexError):
            times[tid] = int(_read(f"/proc/{pid}/task/{tid}/schedstat").split()[0])
    return times


def last_core(tid: int) -> int | None:
    """The core on which a thread ran last; None when it is gone."""
    try:
        return int(_read(f"/proc/{tid}/stat").rpartition(b")")[2].split()[36])
    except (OSError, ValueError, IndexError):
        return None


def thread_name(pid: int, tid: int) -> str:
    """The name that the operating system has for a thread; '' when it is gone."""
    try:
        return _read(f"/proc/{pid}/task/{tid}/comm").decode(errors="replace").strip()
    except OSError:
        return ""


def peak_rss(pid: int) -> int | None:
    """High-water mark of the resident memory in bytes (VmHWM; getrusage would count what came before exec)."""
    try:
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, by the kernel's own lists of children (Linux)."""
    found: list[int] = []
    for tid in thread_ids(pid):
        with suppress(OSError):
            for child in map(int, _read(f"/proc/{pid}/task/{tid}/children").split()):
                found += [child, *descendants(child)]
    return found


def family(pid: int) -> list[int]:
    """`pid` and the processes below it, generation by generation."""
    found = [pid]
    for one in found:
        for tid in thread_ids(one):
            with suppress(OSError):
                found += map(int, _read(f"/proc/{one}/task/{tid}/children").split())
    return found


def is_alive(pid: int) -> bool:
    """Whether `pid` still runs: a zombie does not."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def command_line(pid: int) -> bytes:
    """Words with a zero after each; empty when it is gone."""
    try:
        return _read(f"/proc/{pid}/cmdline")
    except OSError:
        return b""


def is_python(pid: int) -> bool:
    """Whether the program that runs as `pid` is a Python interpreter, by its name."""
    with suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")  # noqa: PTH115, PTH119
    return False


def wait_exit(pid: int, seconds: float) -> bool:
    """Wait until the child `pid` has ended (it stays to be reaped); False when the time is over before."""
    if not hasattr(os, "pidfd_open"):  # a Python that was built on older headers
        return _poll_exit(pid, seconds)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # a kernel before 5.3
        return _poll_exit(pid, seconds)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))
    finally:
        os.close(descriptor)


def _poll_exit(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while True:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 14)
    finally:
        os.close(descriptor)
