"""What a worker does with a group of jobs, and before its first one; all of it is called by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from profiler import marks
from reference_trainer.performance import PerformanceConfig, apply, emptying
from reference_trainer.ssm.engine import Learned
from reference_trainer.ssm.placement import MemoryUse, WorkerSlot, cores, memory_use
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import Job, Outcome
from reference_trainer.ssm.settings import Settings

Group = tuple[Job, ...]
JobWork = Callable[[Group, Settings, Plan, str], list[Outcome]]

_emptying: dict[str, Callable[[], None]] = {}
"""By device: counts the jobs of this process."""
_sharing: dict[str, int] = {}
"""By device: workers that its memory was last divided among."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What all groups of a sweep have in common."""

    settings: Settings
    plan: Plan
    config: PerformanceConfig
    samples: tuple[Group, ...] = ()
    """Groups that a worker does first."""
    short: Settings | None = None
    """With these settings."""
    work: JobWork | None = None
    """Does the jobs; None: `job.work`."""


class Worked(NamedTuple):
    """A group that was done."""

    outcomes: list[Outcome]
    slot: str
    process: int
    seconds: float
    cpu_seconds: float
    """Of all threads of the process."""
    cores: int
    """That it might have used."""


def prepare(orders: Orders, slot: WorkerSlot, learned: Learned = ()) -> MemoryUse:
    """The first work of a worker: torch's switches, and small jobs: libraries are loaded and kernels compiled.

    :param learned: the ways of the forward pass that workers before this one have chosen.
    """
    from reference_trainer.ssm import fastest

    _divide(orders, slot)
    for choices in learned:
        fastest.choose(choices)
    _emptying[slot.device] = emptying(orders.config, slot.device)
    for group in orders.samples:
        _work(orders)(group, orders.short or orders.settings, orders.plan, slot.device)
    marks.worked()
    return replace(memory_use(slot.device), learned=fastest.choices())


def do(orders: Orders, group: Group, slot: WorkerSlot) -> Worked:
    """The jobs of a group."""
    if _sharing.get(slot.device) != slot.sharing:  # the first worker of a device begins before there are others
        _divide(orders, slot)
    began, cpu = time.perf_counter(), time.process_time()
    outcomes = _work(orders)(group, orders.settings, orders.plan, slot.device)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if after := _emptying.get(slot.device):
        for _ in group:
            after()
    marks.worked()
    return Worked(outcomes, slot.name, os.getpid(), seconds, cpu, cores())


def _divide(orders: Orders, slot: WorkerSlot) -> None:
    apply(orders.config, slot.device, sharing=slot.sharing)
    _sharing[slot.device] = slot.sharing


def _work(orders: Orders) -> JobWork:
    if orders.work is not None:
        return orders.work
    from reference_trainer.ssm import job

    return job.work
