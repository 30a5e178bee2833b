"""Stand-ins for the work of a sweep and of its engines: importable by name in other processes, and quick."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

from reference_trainer.errors import TrainerError
from reference_trainer.ssm.placement import MemoryUse, WorkerSlot
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, Fit, Job, Outcome
from reference_trainer.ssm.settings import Settings
from tests.reference_trainer.ssm.fake_ray import FakeRay, Killed

BAD_RANK = 13
"""The rank of jobs with which something happens."""


def outcome(job: Job, device: str = "cpu") -> Outcome:
    """The outcome of a job, which is always the same."""
    loss = 1 / (job.rank + 10 * job.dim + 1000 * job.seed)
    passes = {"epochs": 7} if job.method == GD else {"guesses": 9}
    return Outcome(job, Fit(loss, 2 * loss, job.seed % 2 == 0, **passes), 0.25, 1000 * job.dim, device, job.dim)


def work(jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    return [outcome(job, device) for job in jobs]


def is_first_work(settings: Settings) -> bool:
    """Whether the job is part of the warm-up of a worker, in which nothing happens."""
    return settings.epochs < Settings().epochs


def note(folder: Path, name: str, line: str) -> int:
    """Append a line to a file of the folder; return its number of lines."""
    with open(folder / name, "a") as file:
        file.write(f"{line}\n")
    return (folder / name).read_text().count("\n")


def counted(folder: Path, jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    """Note which jobs were done."""
    if not is_first_work(settings):
        for job in jobs:
            note(folder, "calls", job.name)
    return work(jobs, settings, plan, device)


def failing(
    folder: Path, times: int, jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str
) -> list[Outcome]:
    """Fail this many times if the group has a bad job."""
    bad = [job for job in jobs if job.rank == BAD_RANK]
    if bad and not is_first_work(settings) and note(folder, bad[0].name, "failed") <= times:
        raise ValueError(f"no luck with\n{bad[0].name}")
    return counted(folder, jobs, settings, plan, device)


def deadly(
    folder: Path, times: int, jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str
) -> list[Outcome]:
    """Kill the process this many times if the group has a bad job of the first seed."""
    bad = [job for job in jobs if job.rank == BAD_RANK and job.seed == 0]
    if bad and not is_first_work(settings) and note(folder, bad[0].name, str(os.getpid())) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return counted(folder, jobs, settings, plan, device)


def endless(folder: Path, jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    """Never return if the group has a bad job."""
    if any(job.rank == BAD_RANK for job in jobs) and not is_first_work(settings):
        note(folder, "endless", str(os.getpid()))
        while True:
            signal.pause()
    return counted(folder, jobs, settings, plan, device)


def held(folder: Path, node: str, jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    """Never return from the third job on this node of a cluster."""
    import ray

    here = ray.get_runtime_context().get_node_id() == node
    if here and not is_first_work(settings) and note(folder, "there", jobs[0].name) == 3:
        note(folder, "held", jobs[0].name)
        while True:
            signal.pause()
    return counted(folder, jobs, settings, plan, device)


def always_failing(jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    if is_first_work(settings):
        return work(jobs, settings, plan, device)
    raise ValueError("no luck")


def refusing(folder: Path, jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    """Only the first two jobs have room for their reports."""
    if not is_first_work(settings) and note(folder, "refusing", jobs[0].name) > 2:
        raise TrainerError("--log x: No space left on device")
    return work(jobs, settings, plan, device)


def unprepared(jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    raise ImportError("no such library")


def gone(process: int) -> bool:
    """Whether a process ends within 30 seconds; one that is dead but not reaped has ended."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


# ---------------------------------------------------------------- the first work and the tasks of an engine


def die() -> NoReturn:
    """Kill the worker."""
    if isinstance(sys.modules.get("ray"), FakeRay):
        raise Killed
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def ready(slot: WorkerSlot) -> MemoryUse:
    return MemoryUse(1, 1 << 40, 1 << 40)


def dead(slot: WorkerSlot) -> MemoryUse:
    die()


def unlucky(slot: WorkerSlot) -> MemoryUse:
    raise RuntimeError("no kernel")


def dead_later(folder: Path, slot: WorkerSlot) -> MemoryUse:
    """Only the first process survives its first work."""
    return dead(slot) if note(folder, "starts", "") > 1 else ready(slot)


def unlucky_later(folder: Path, slot: WorkerSlot, *, when: Collection[int]) -> MemoryUse:
    """The first work of the processes with these numbers fails."""
    number = note(folder, "starts", "")
    (folder / "prepared").write_text(f"{number not in when}")
    return unlucky(slot) if number in when else ready(slot)


def nothing(task: int, slot: WorkerSlot) -> None:
    """Return nothing."""


def prepared_only(folder: Path, work: Callable[[int, WorkerSlot], int], task: int, slot: WorkerSlot) -> int:
    assert (folder / "prepared").read_text() == "True", "the first work of this process failed"
    return work(task, slot)


def squared(task: int, slot: WorkerSlot) -> int:
    return task * task


def picky(task: int, slot: WorkerSlot) -> object:
    """Fail with some tasks, each in another way."""
    if task == 1:
        raise KeyError("one")
    if task == 2:
        return lambda: None  # cannot be pickled
    if task == 3:
        sys.exit(3)
    if task == 4:
        raise Unsendable(1, 2)
    return task


class Unsendable(Exception):  # noqa: N818
    """An exception that cannot be made again from its arguments."""

    def __init__(self, item: int, two: int) -> None:
        super().__init__("unsendable")


def dying(folder: Path, task: int, slot: WorkerSlot) -> int:
    """Task 1 kills the first worker that has it, task 2 every worker."""
    times = note(folder, str(task), str(os.getpid()))
    if task == 2 or (task == 1 and times == 1):
        die()
    return task


def process(task: int, slot: WorkerSlot) -> tuple[int, str, int, str, int]:
    """The process, its device, how many workers share that, and its threads."""
    import torch

    return os.getpid(), slot.name, slot.sharing, os.environ.get("OMP_NUM_THREADS", ""), torch.get_num_threads()


def meeting(folder: Path, task: int, slot: WorkerSlot) -> bool:
    """Whether another process begins such a task within a minute."""
    note(folder, "meeting", str(os.getpid()))
    end = time.monotonic() + 60
    while len(set((folder / "meeting").read_text().split())) < 2:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def busy(task: int, slot: WorkerSlot) -> int:
    """Some arithmetic."""
    total = 0
    for number in range(task):
        total += number & 7
    return total
