"""Reads processes, threads and the load of the machine from /proc (proc(5)). Standard library only; 10 µs a read.

Functions return None, or an empty collection, when a process has ended or may not be read. `proc` names another folder
of the same layout; tests use it.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from typing import Final, NamedTuple

from profiler.core.masking import masked
from profiler.core.metrics import BlockedIn

PROC: Final = "/proc"
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
"""Per second: the unit of CPU times and start times of processes, mostly 100."""
STOPPED_STATES: Final = ("T", "t", "Z", "X")
"""States in which a process does not continue by itself: stopped, traced, ended."""
ENDED_STATES: Final = ("Z", "X")
DISK_SLEEP: Final = "D"
"""Waits in the kernel where only SIGKILL reaches it: for a disk, or for the child of a vfork."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_READ_BYTES: Final = 1 << 14
_LAST_BYTES: Final = 2048
"""A read that gave less was the last: the kernel hands out long files by the page of 4096 bytes."""
_CPU_FIELDS: Final = 8
"""Fields of a cpu line of /proc/stat, user to steal. Guest time after them is already part of user time."""

Folder = str | PathLike[str]


class ProcessStat(NamedTuple):
    """/proc/PID/stat of a process, or of a thread."""

    name: str
    state: str
    """R running, S sleeping, D in the kernel, T stopped, Z ended and not yet waited for, ..."""
    parent: int
    session: int
    cpu_s: float
    """User and system time so far, of threads that have ended too; counted in ticks of 10 ms."""
    threads: int
    start_ticks: int
    """Clock ticks after boot. A PID is used again, a PID with its start is not."""
    rss_bytes: int
    core: int
    """The core on which it ran last."""

    @property
    def started_s(self) -> float:
        """Seconds after boot, on the clock of `uptime`."""
        return self.start_ticks / CLOCK_TICKS


class ThreadTimes(NamedTuple):
    """/proc/PID/task/TID/schedstat: the scheduler's own clocks, in ns so far."""

    cpu_ns: int
    wait_ns: int
    """Time in which the thread could have run and waited for a core."""


class Faults(NamedTuple):
    """/proc/PID/task/TID/stat: what the kernel did for a thread so far."""

    minor: int
    """Pages that it got at their first use, without a read from disk."""
    system_s: float
    """CPU time in the kernel."""


class CpuTimes(NamedTuple):
    """The time of all cores since boot, in clock ticks."""

    total: int
    idle: int
    """Includes waiting for disks."""
    stolen: int
    """Taken by other virtual machines."""
    low_priority: int = 0
    """User time of programs with a nice value above 0, whose cores the kernel gives to other programs at once."""


# ---------------------------------------------------------------- one process


def read_stat(pid: int, tid: int | None = None, proc: Folder = PROC) -> ProcessStat | None:
    """Return the state of process `pid`, or of its thread `tid`."""
    thread = "" if tid is None else f"/task/{tid}"
    try:
        head, _, tail = _read(f"{proc}/{pid}{thread}/stat").rpartition(b")")  # a name may contain blanks and brackets
        fields = tail.split()
        return ProcessStat(
            name=head.partition(b"(")[2].decode(errors="replace"),
            state=fields[0].decode(),
            parent=int(fields[1]),
            session=int(fields[3]),
            cpu_s=(int(fields[11]) + int(fields[12])) / CLOCK_TICKS,
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            rss_bytes=int(fields[21]) * _PAGE_BYTES,
            core=int(fields[36]),
        )
    except (OSError, ValueError, IndexError):
        return None


def read_faults(pid: int, tid: int, proc: Folder = PROC) -> Faults | None:
    """Return the page faults of a thread; None if it has ended."""
    try:
        fields = _read(f"{proc}/{pid}/task/{tid}/stat").rpartition(b")")[2].split()
        return Faults(int(fields[7]), int(fields[12]) / CLOCK_TICKS)
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int, start_ticks: int | None = None) -> bool:
    """Tell whether `pid` still runs (a zombie does not) and, where a start is given, is the process that started
    then."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in ENDED_STATES and start_ticks in {None, stat.start_ticks}


def read_arguments(pid: int, proc: Folder = PROC) -> tuple[str, ...]:
    """Return the command line of `pid` without its empty words, with secrets masked."""
    try:
        words = _read(f"{proc}/{pid}/cmdline").split(b"\0")
    except OSError:
        return ()
    return masked([word.decode(errors="replace") for word in words if word])


def read_environment(pid: int, proc: Folder = PROC) -> dict[str, str]:
    """Return the environment with which `pid` was started; empty when it belongs to another user."""
    try:
        entries = _read(f"{proc}/{pid}/environ").split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(entry).split("=", 1) for entry in reversed(entries) if b"=" in entry)


def read_status(pid: int, field: str, proc: Folder = PROC) -> str:
    """Return a field of /proc/PID/status, such as `Uid`; '' when there is none."""
    prefix = field.encode() + b":"
    with suppress(OSError):
        for line in _read(f"{proc}/{pid}/status").splitlines():
            if line.startswith(prefix):
                return line[len(prefix) :].strip().decode(errors="replace")
    return ""


def peak_rss(pid: int, proc: Folder = PROC) -> int | None:
    """High-water mark of the resident memory in bytes (VmHWM; getrusage would include the time before exec)."""
    number = read_status(pid, "VmHWM", proc).partition(" ")[0]
    return int(number) * 1024 if number.isdecimal() else None


def anonymous_memory(pid: int, proc: Folder = PROC) -> int | None:
    """Return the resident memory in bytes that is not of files, without reading all of /proc/PID/status; None if it has
    ended."""
    with suppress(OSError, ValueError, IndexError):
        _, resident, of_files, *_ = (int(pages) for pages in _read(f"{proc}/{pid}/statm").split())
        return (resident - of_files) * _PAGE_BYTES
    return None


def is_python(pid: int) -> bool:
    """Tell whether the program that runs as `pid` is a Python interpreter, by the name of its file."""
    with suppress(OSError):
        return os.path.basename(os.readlink(f"{PROC}/{pid}/exe")).startswith("python")  # noqa: PTH115, PTH119
    return False


# ---------------------------------------------------------------- trees of processes


def all_processes(proc: Folder = PROC) -> dict[int, ProcessStat]:
    """Return all processes by PID; takes some ms."""
    return {pid: stat for pid in pids(proc) if (stat := read_stat(pid, proc=proc)) is not None}


def pids(proc: Folder = PROC) -> list[int]:
    """Return the PIDs of all processes."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208 - pathlib takes three times as long


def process_tree(pid: int, proc: Folder = PROC) -> list[int]:
    """`pid` and the processes below it, generation by generation, from the kernel's lists of children."""
    tree = [pid]
    for parent in tree:  # grows meanwhile
        for tid in thread_ids(parent, proc):
            with suppress(OSError):
                tree += map(int, _read(f"{proc}/{parent}/task/{tid}/children").split())
    return tree


def descendants(pid: int, proc: Folder = PROC) -> list[int]:
    """Return the processes below `pid`, generation by generation."""
    return process_tree(pid, proc)[1:]


# ---------------------------------------------------------------- threads


def thread_ids(pid: int, proc: Folder = PROC) -> list[int]:
    """Threads of `pid`."""
    try:
        return [int(name) for name in os.listdir(f"{proc}/{pid}/task")]  # noqa: PTH208 - pathlib takes three times as long
    except OSError:
        return []


def thread_times(pid: int, tids: Iterable[int], proc: Folder = PROC) -> dict[int, ThreadTimes]:
    """Times of each thread to the nanosecond, about 8 µs a thread; threads that have ended are left out.

    A kernel without CONFIG_SCHED_INFO gives none.
    """
    times: dict[int, ThreadTimes] = {}
    for tid in tids:
        with suppress(OSError, ValueError):
            cpu, wait, _ = _read(f"{proc}/{pid}/task/{tid}/schedstat").split()
            times[tid] = ThreadTimes(int(cpu), int(wait))
    return times


_SYSTEM_CALLS: Final = {"x86_64": (202, 230, 35), "aarch64": (98, 115, 101)}
"""By machine: the numbers of futex, clock_nanosleep and nanosleep."""


_READS: Final = {"x86_64": (0, 17, 19, 295, 327), "aarch64": (63, 67, 65, 69, 286)}
"""By machine: read, pread64, readv, preadv, preadv2. Their first argument is a file descriptor."""
_OPENS: Final = {"x86_64": (2, 4, 6, 257, 262, 332, 217), "aarch64": (56, 79, 291, 61)}
"""By machine: open, stat and lstat where there are these, openat, newfstatat, statx, getdents64."""
_RECEIVES: Final = {"x86_64": (45, 47, 42), "aarch64": (207, 212, 203)}
"""By machine: recvfrom, recvmsg, connect."""
_FUTEX_OPERATION: Final = 0x7F
"""Bits of a futex's second argument that are its operation: 0 is FUTEX_WAIT, and glibc uses FUTEX_WAIT_BITSET."""


def blocked_in(pid: int, tid: int, proc: Folder = PROC) -> BlockedIn | None:
    """Return what a thread is blocked in now, 10 µs; None where it may not be read, or the machine's calls are not
    known."""
    numbers = _SYSTEM_CALLS.get(os.uname().machine)
    try:
        words = _read(f"{proc}/{pid}/task/{tid}/syscall").split()
        if numbers is None or not words:
            return None
        if words[0] == b"running":
            return BlockedIn.NOTHING
        if words[0] == b"-1":  # in no system call
            stat = read_stat(pid, tid, proc)
            return BlockedIn.FILE if stat is not None and stat.state == DISK_SLEEP else BlockedIn.NOTHING
        futex, *sleeps = numbers
        if int(words[0]) == futex:
            if int(words[2], 16) & _FUTEX_OPERATION == 0:
                return BlockedIn.OPENMP
            return BlockedIn.TIMED_FUTEX if int(words[4], 16) else BlockedIn.FUTEX
        if int(words[0]) in sleeps:
            return BlockedIn.SLEEP
        return _blocked_reading(int(words[0]), f"{proc}/{pid}/fd/{int(words[1], 16)}")
    except (OSError, ValueError, IndexError):
        return None


def _blocked_reading(call: int, descriptor: str) -> BlockedIn:
    """Tell whether a system call reads a file or a socket.

    :param descriptor: the link to the file of its first argument, if that is a file descriptor.
    """
    machine = os.uname().machine
    if call in _OPENS[machine]:
        return BlockedIn.FILE
    if call in _RECEIVES[machine]:
        return BlockedIn.SOCKET
    if call in _READS[machine]:
        with suppress(OSError):
            target = os.readlink(descriptor)  # noqa: PTH115 - a socket's is no path
            if target.startswith("socket:"):
                return BlockedIn.SOCKET
            if target.startswith("/") and not target.startswith(("/dev/", "/proc/")):
                return BlockedIn.FILE
    return BlockedIn.OTHER


def thread_name(pid: int, tid: int, proc: Folder = PROC) -> str:
    """Return the operating system's name of a thread."""
    try:
        return _read(f"{proc}/{pid}/task/{tid}/comm").decode(errors="replace").strip()
    except OSError:
        return ""


def thread_states(pid: int, proc: Folder = PROC) -> set[str]:
    """States of all threads of `pid`."""
    return {stat.state for tid in thread_ids(pid, proc) if (stat := read_stat(pid, tid, proc)) is not None}


# ---------------------------------------------------------------- the machine


def uptime() -> float:
    """Return the seconds since boot, on the clock of a process's start."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def cpu_times(proc: Folder = PROC) -> CpuTimes | None:
    """Return the CPU time of the machine since boot (first line of /proc/stat)."""
    try:
        ticks = [int(word) for word in _read(f"{proc}/stat").partition(b"\n")[0].split()[1 : _CPU_FIELDS + 1]]
        return CpuTimes(sum(ticks), ticks[3] + ticks[4], ticks[7], ticks[1])
    except (OSError, ValueError, IndexError):
        return None


def available_memory(proc: Folder = PROC) -> int | None:
    """Return the bytes of memory that programs can still get (/proc/meminfo)."""
    try:
        words = _read(f"{proc}/meminfo").partition(b"MemAvailable:")[2].split()
        return 1024 * int(words[0])
    except (OSError, ValueError, IndexError):
        return None


def runnable_threads(proc: Folder = PROC) -> int | None:
    """Threads of the machine that run or wait for a core now, the caller included (/proc/loadavg)."""
    try:
        return int(_read(f"{proc}/loadavg").split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):
        return None


# ---------------------------------------------------------------- waiting for an end


def wait_exit(pid: int, seconds: float) -> bool:
    """Wait until process `pid` has ended (a child stays to be reaped); False when the time is over before.

    :raises ChildProcessError: a system without pidfd, and `pid` is no child of this process.
    """
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
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(descriptor, _READ_BYTES)
        while len(part) > _LAST_BYTES:
            part = os.read(descriptor, _READ_BYTES)
            data += part
        return data
    finally:
        os.close(descriptor)
