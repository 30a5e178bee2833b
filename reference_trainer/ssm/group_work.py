"""Groups of jobs: which jobs are done together, what a worker does before its first group, and with each of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from profiler import marks
from reference_trainer.performance import PerformanceConfig, apply, emptying
from reference_trainer.ssm import gradient_descent, guess_and_check
from reference_trainer.ssm.engine import Learned
from reference_trainer.ssm.peak import Peak
from reference_trainer.ssm.placement import MemoryUse, WorkerSlot, cores, memory_use
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC, Fit, Job, Outcome
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings


def do_jobs(jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    """Do jobs of one method, rank and dimension; an outcome for each, in their order.

    :param device: cpu, cuda:0, ...
    :raises TrainerError: the file of reports cannot be written.
    """
    import torch

    from reference_trainer.ssm.data import measure

    method, where = jobs[0].method, torch.device(device)
    if any(job[:3] != jobs[0][:3] for job in jobs):
        raise ValueError("jobs of a group differ in their seeds only")
    began = time.perf_counter()
    log = ReportLog(settings.log, every=settings.report_every, quiet=plan.quiet)
    with log, Peak(where) as peak:
        with marks.region("data"):
            data = measure(jobs, settings, device_data=plan.device_data, device=where)
        if method == GD:
            fits = gradient_descent.fit(jobs, data, settings, plan, device=where, log=log)
        else:
            fits = guess_and_check.search(jobs, data, settings, plan, device=where, log=log)
    seconds = time.perf_counter() - began
    return [
        Outcome(job, fit, seconds / len(jobs), peak.bytes // len(jobs), device, points(fit, settings))
        for job, fit in zip(jobs, fits, strict=True)
    ]


def points(fit: Fit, settings: Settings) -> int:
    """Values that went through the student: what every way of doing the job has to do, not what one does beyond it.

    A pass for each loss that decided something: of gradient descent one more than updates.
    """
    passes = fit.guesses or fit.epochs + 1
    return passes * settings.measurements * settings.sequence_length


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
    """Does the jobs; None: `do_jobs`."""


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
        (orders.work or do_jobs)(group, orders.short or orders.settings, orders.plan, slot.device)
    marks.worked()
    return replace(memory_use(slot.device), learned=fastest.choices())


def do(orders: Orders, group: Group, slot: WorkerSlot) -> Worked:
    """The jobs of a group."""
    if _sharing.get(slot.device) != slot.sharing:  # the first worker of a device begins before there are others
        _divide(orders, slot)
    began, cpu = time.perf_counter(), time.process_time()
    outcomes = (orders.work or do_jobs)(group, orders.settings, orders.plan, slot.device)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if after := _emptying.get(slot.device):
        for _ in group:
            after()
    marks.worked()
    return Worked(outcomes, slot.name, os.getpid(), seconds, cpu, cores())


def _divide(orders: Orders, slot: WorkerSlot) -> None:
    apply(orders.config, slot.device, sharing=slot.sharing)
    _sharing[slot.device] = slot.sharing


_PASSES_OF_AN_UPDATE: Final = 3  # forward, and twice that backward


def groups(jobs: Iterable[Job], settings: Settings, plan: Plan) -> tuple[Group, ...]:
    """Jobs that are done together, in the order in which they are begun.

    As found that is the order of the jobs. In a pool those come first that may take longest: one that begins last
    would leave all other workers without work.
    """
    jobs = tuple(jobs)
    if plan.batched_seeds:
        together: dict[tuple[str, int, int], list[Job]] = {}
        for job in jobs:
            together.setdefault(job[:3], []).append(job)
        grouped = [tuple(group) for group in together.values()]
    else:
        grouped = [(job,) for job in jobs]
    if plan.flat:
        passes = {GD: _PASSES_OF_AN_UPDATE * settings.epochs, GNC: settings.max_guesses}
        grouped.sort(key=lambda group: -passes[group[0].method] * group[0].dim)
    return tuple(grouped)


def first_work(jobs: Sequence[Group], settings: Settings, plan: Plan) -> tuple[tuple[Group, ...], Settings]:
    """What a worker does before it is measured: a group of every method and dimension, cut short.

    Kernels are compiled by that, and the ways of the recurrence measured at the sizes that are to come.
    """
    samples = {group[0][::2]: group for group in jobs}  # (method, dim)
    guesses = 64 if plan.batched_draws else 2
    epochs, guesses = min(2, settings.epochs), min(guesses, settings.max_guesses)
    return tuple(samples.values()), replace(settings, log=None, epochs=epochs, max_guesses=guesses)
