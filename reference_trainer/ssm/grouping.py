"""Which jobs are done together and in which order, and what a worker does before its first ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from reference_trainer.ssm.group_work import Group
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC, Job
from reference_trainer.ssm.settings import Settings

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
