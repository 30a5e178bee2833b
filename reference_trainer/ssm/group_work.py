"""Groups of jobs: which jobs are done together, the first work of a worker, and how it does each group."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from profiler import marks
from reference_trainer.performance import PerformanceConfig, apply, emptying
from reference_trainer.performance.memory import Peak
from reference_trainer.ssm.placement import MemoryUse, WorkerSlot, cores, memory_use
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC, Fit, Job, Outcome
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings


def do_jobs(jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
    """Do jobs of one method, rank and dimension; return an outcome for each, in their order."""
    import torch

    from reference_trainer.ssm import gradient_descent, guess_and_check
    from reference_trainer.ssm.data import measure
    from reference_trainer.ssm.evaluation import Task

    where = torch.device(device)
    began = time.perf_counter()
    log = ReportLog(settings.log, every=settings.report_every, quiet=plan.quiet)
    with log, Peak(where) as peak:
        with marks.region("data"):
            data = measure(jobs, settings, device_data=plan.device_data, device=where)
        task = Task(jobs, data, settings, plan, where, log)
        fits = gradient_descent.fit(task) if jobs[0].method == GD else guess_and_check.search(task)
    seconds = time.perf_counter() - began
    return [
        Outcome(job, fit, seconds / len(jobs), peak.bytes // len(jobs), device, points(fit, settings))
        for job, fit in zip(jobs, fits, strict=True)
    ]


def points(fit: Fit, settings: Settings) -> int:
    """Sequence values processed by the student, counting only the work that every way has to do.

    There is one pass for each loss that was checked: with gradient descent, one more than updates.
    """
    passes = fit.guesses or fit.epochs + 1
    return passes * settings.measurements * settings.sequence_length


Group = tuple[Job, ...]
JobWork = Callable[[Group, Settings, Plan, str], list[Outcome]]

_emptying: dict[str, Callable[[], None]] = {}
"""By device, a function to call after each job: it empties caches at the configured interval."""
_sharing: dict[str, int] = {}
"""By device, the number of workers that its memory was last divided among."""


@dataclass(frozen=True, slots=True)
class SweepContext:
    """What all groups of a sweep have in common."""

    settings: Settings
    plan: Plan
    config: PerformanceConfig
    work: JobWork = do_jobs
    """The function that does the jobs of a group."""


class GroupResult(NamedTuple):
    """The result of one group."""

    outcomes: list[Outcome]
    slot: str
    process: int
    seconds: float
    cpu_seconds: float
    """CPU time of all threads of the process."""
    cores: int
    """Number of cores that the process could use."""


def prepare(context: SweepContext, samples: Sequence[Group], short: Settings, slot: WorkerSlot) -> MemoryUse:
    """Do the first work of a worker: configure torch and do small jobs, which loads libraries and compiles kernels."""
    _divide(context, slot)
    _emptying[slot.device] = emptying(context.config, slot.device)
    for group in samples:
        context.work(group, short, context.plan, slot.device)
    marks.worked()
    return memory_use(slot.device)


def do(context: SweepContext, group: Group, slot: WorkerSlot) -> GroupResult:
    """Do the jobs of a group."""
    if _sharing.get(slot.device) != slot.sharing:  # the first worker of a device starts before the others
        _divide(context, slot)
    began, cpu = time.perf_counter(), time.process_time()
    outcomes = context.work(group, context.settings, context.plan, slot.device)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if after := _emptying.get(slot.device):
        for _ in group:
            after()
    marks.worked()
    return GroupResult(outcomes, slot.name, os.getpid(), seconds, cpu, cores())


def _divide(context: SweepContext, slot: WorkerSlot) -> None:
    apply(context.config, slot.device, sharing=slot.sharing)
    _sharing[slot.device] = slot.sharing


_PASSES_OF_AN_UPDATE: Final = 3  # forward, and twice that backward


def groups(jobs: Iterable[Job], settings: Settings, plan: Plan) -> tuple[Group, ...]:
    """Divide jobs into groups that are done together, in the order in which they are started.

    As found that is the order of the jobs. In a pool those that may take longest come first: a long job that begins
    last would leave the other workers idle.
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
    """Choose the warm-up of a worker, which compiles and shows its memory: groups of all sizes, and short settings."""
    samples = {group[0][::2]: group for group in jobs}  # (method, dim)
    guesses = 64 if plan.batched_draws else 2
    epochs, guesses = min(2, settings.epochs), min(guesses, settings.max_guesses)
    return tuple(samples.values()), replace(settings, log=None, epochs=epochs, max_guesses=guesses)
