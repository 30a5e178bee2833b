"""A group of jobs done: data, fit, evaluation. What the workers of a sweep call, by name; picklable in and out."""

from __future__ import annotations

import time

from profiler import marks
from reference_trainer.ssm import gradient_descent, guess_and_check
from reference_trainer.ssm.peak import Peak
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, Fit, Job, Outcome
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings


def work(jobs: tuple[Job, ...], settings: Settings, plan: Plan, device: str) -> list[Outcome]:
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
