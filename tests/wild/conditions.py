"""The machine's conditions under which a program is recorded: quiet, a busy core, a CPU quota, a slow rank."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tests.wild.manifest import RANK_CONDITION

V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000
QUOTA: Final = 0.6
"""Cores that the group may use: less than a program that computes in one thread needs."""
_LOOP: Final = "while True: pass"
_LOOK_EVERY_S: Final = 0.3


class NotPermittedError(Exception):
    """This machine does not let us make the condition; the message is the reason."""


@dataclass(slots=True)
class Conditions:
    """What the recorder is started with."""

    prefix: list[str] = field(default_factory=list)
    """Words before the program's command."""
    group: Path | None = None
    """The control group that the recorder and the program run in."""
    slow_rank: int | None = None

    def in_group(self, command: list[str]) -> list[str]:
        """The command as one that enters the group first."""
        if self.group is None:
            return command
        return ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh", *command]


def last_core() -> int:
    """The core on which programs and busy loops are pinned."""
    return max(os.sched_getaffinity(0))


@contextmanager
def make_conditions(name: str) -> Iterator[Conditions]:
    """Set up a condition, and take it away afterwards.

    :raises NotPermittedError: this machine does not permit it.
    """
    if name == "quiet":
        yield Conditions()
    elif name == "busy":
        with _busy_loop(last_core()):
            yield Conditions(prefix=["taskset", "-c", str(last_core())])
    elif name == "quota":
        with _quota_group() as group:
            yield Conditions(group=group)
    elif match := RANK_CONDITION.fullmatch(name):
        with _busy_loop(last_core()):
            yield Conditions(slow_rank=int(match[1]))
    else:
        raise ValueError(f"unknown condition: {name}")


@contextmanager
def _busy_loop(core: int) -> Iterator[None]:
    loop = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", _LOOP])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


@contextmanager
def _quota_group() -> Iterator[Path]:
    quota = round(QUOTA * PERIOD_US)
    name = f"wild-{os.getpid()}"
    if (V1 / "cpu.cfs_quota_us").exists():
        group, settings = V1 / name, {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota}
    else:
        group, settings = V2 / name, {"cpu.max": f"{quota} {PERIOD_US}"}
    try:
        group.mkdir()
        for file, value in settings.items():
            (group / file).write_text(str(value))
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
        time.sleep(0.1)


class RankPinner(threading.Thread):
    """Pins one rank to the busy core and the other ranks to the other cores, as soon as their processes exist."""

    def __init__(self, root: int, slow_rank: int) -> None:
        super().__init__(daemon=True)
        self._root, self._slow_rank = root, slow_rank
        self._pinned: set[int] = set()

    def run(self) -> None:
        slow = {last_core()}
        others = set(os.sched_getaffinity(0)) - slow or slow
        while psutil.pid_exists(self._root):
            for process in _descendants(self._root):
                with suppress(psutil.Error, OSError):
                    rank = process.environ().get("RANK")
                    if rank is not None and process.pid not in self._pinned:
                        process.cpu_affinity(sorted(slow if int(rank) == self._slow_rank else others))
                        self._pinned.add(process.pid)
            time.sleep(_LOOK_EVERY_S)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


class SchedulerWatch(threading.Thread):
    """Reads the scheduler's clocks of all main threads below a process, to measure their waiting for a core."""

    def __init__(self, root: int, every: float = 0.1) -> None:
        super().__init__(daemon=True)
        self._root, self._every = root, every
        self._readings: dict[int, list[tuple[int, int, int]]] = {}

    def run(self) -> None:
        while psutil.pid_exists(self._root):
            for process in _descendants(self._root):
                with suppress(OSError, ValueError):
                    fields = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat").read_text().split()
                    reading = time.monotonic_ns(), int(fields[0]), int(fields[1])
                    self._readings.setdefault(process.pid, []).append(reading)
            time.sleep(self._every)

    def runnable(self, pid: int, begin: int, end: int) -> float | None:
        """The share of the time from `begin` to `end` in which the main thread was runnable without a core."""
        readings = [reading for reading in self._readings.get(pid, ()) if begin <= reading[0] <= end]
        if len(readings) < 2 or readings[-1][0] == readings[0][0]:
            return None
        (first, _, waited), (last, _, waited_last) = readings[0], readings[-1]
        return (waited_last - waited) / (last - first)
