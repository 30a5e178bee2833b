"""The machine's conditions under which a program is recorded: quiet, busy, a CPU quota, a slow rank, or stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import psutil

from tests.clinic.case import Case

QUIET, BUSY, QUOTA, STOPPED = "quiet", "busy", "quota", "stopped"
_SLOW_RANK: Final = "slow-rank-"
CONDITIONS: Final = (QUIET, BUSY, QUOTA, STOPPED, f"{_SLOW_RANK}0", f"{_SLOW_RANK}1")
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000
QUOTA_CORES: Final = 0.6
"""Cores that the group may use: less than a program that computes in one thread needs."""
STOPPED_AFTER_S: Final = 8.0
"""When a program that ends by itself is stopped: in the middle of its training, after its imports."""
_LOOK_EVERY_S: Final = 0.1
_LOOP: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))"


class NotPermittedError(Exception):
    """This machine does not let us make the condition; the message is the reason."""


def has_condition(case: Case, condition: str) -> bool:
    """Whether a case can be tried under a condition."""
    if case.is_cuda or case.truth.style:  # neither counts nor output depend on the machine
        return condition == QUIET
    if condition == STOPPED:
        return not case.stop_after and not case.exit_code and case.ranks == 1 and not case.truth.parts
    if slow_rank(condition) is not None:  # ranks that are alike are slowed in turn
        return case.truth.parts is not None and case.ranks > 1 and case.truth.parts.late_rank is None
    return True


def slow_rank(condition: str) -> int | None:
    """The rank that a condition slows."""
    return int(condition.removeprefix(_SLOW_RANK)) if condition.startswith(_SLOW_RANK) else None


@contextmanager
def make_condition(name: str) -> Iterator[tuple[str, ...]]:
    """Set up a condition, and take it away afterwards; the words with which a command in it begins.

    :raises NotPermittedError: this machine does not permit it.
    """
    if name == BUSY or slow_rank(name) is not None:
        cores = os.sched_getaffinity(0) if name == BUSY else {_last_core()}
        loops = [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", _LOOP]) for core in cores]
        try:
            yield ()
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
    elif name == QUOTA:
        with _quota_group() as group:
            yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    else:
        yield ()


@contextmanager
def _quota_group() -> Iterator[Path]:
    quota, name = round(QUOTA_CORES * _PERIOD_US), f"clinic-{os.getpid()}"
    if (_V1 / "cpu.cfs_quota_us").exists():
        group, settings = _V1 / name, {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    else:
        group, settings = _V2 / name, {"cpu.max": f"{quota} {_PERIOD_US}"}
    try:
        group.mkdir()
        for file, value in settings.items():
            (group / file).write_text(value)
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise NotPermittedError(f"no control group with a CPU quota can be made: {error}") from None
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    for _ in range(50):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)  # the kernel lets go of a group some time after its last process


def _last_core() -> int:
    """The core on which a slow rank is pinned."""
    return max(os.sched_getaffinity(0))


class Watch(threading.Thread):
    """Reads the kernel's clocks of all main threads below this process, and pins ranks where one is to be slow."""

    def __init__(self, case: Case, condition: str) -> None:
        super().__init__(daemon=True)
        self._is_needed = case.truth.parts is not None
        self._slow_rank = slow_rank(condition)
        self._pinned: set[int] = set()
        self._readings: dict[int, list[tuple[int, int]]] = {}
        self._ends = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()

    def run(self) -> None:
        """Look until the end; processes come and go meanwhile."""
        while self._is_needed and not self._ends.wait(_LOOK_EVERY_S):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, OSError, ValueError):
                    waited = int(Path(f"/proc/{process.pid}/task/{process.pid}/schedstat").read_text().split()[1])
                    self._readings.setdefault(process.pid, []).append((time.monotonic_ns(), waited))
                    if self._slow_rank is not None and process.pid not in self._pinned:
                        self._pin(process, self._slow_rank)

    def _pin(self, process: psutil.Process, slow: int) -> None:
        """Pin the slow rank to the busy core, and each other one to the other cores."""
        rank = process.environ().get("RANK")
        if rank is not None:
            last = {_last_core()}
            process.cpu_affinity(sorted(last if int(rank) == slow else os.sched_getaffinity(0) - last or last))
            self._pinned.add(process.pid)

    def runnable(self, pid: int, begin: int, end: int) -> float | None:
        """The share of the time from `begin` to `end` in which the main thread was runnable without a core."""
        readings = [reading for reading in self._readings.get(pid, ()) if begin <= reading[0] <= end]
        if len(readings) < 2:
            return None
        (first, waited), (last, waited_last) = readings[0], readings[-1]
        return (waited_last - waited) / (last - first)
