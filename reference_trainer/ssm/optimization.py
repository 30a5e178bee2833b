"""Measures what the fixes change in data generation, forward pass, training, and guess and check.

The as-found and the fixed program are measured in alternation, in one process. Each round gives a ratio; the result is
the median ratio with a distribution-free interval.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from reference_trainer.errors import TrainerError
from reference_trainer.program import write_output
from reference_trainer.ssm import gradient_descent, guess_and_check
from reference_trainer.ssm.data import measure
from reference_trainer.ssm.draws import initial
from reference_trainer.ssm.evaluation import Task
from reference_trainer.ssm.forward import respond
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC, Fit, Students
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.statistics import plain

SCHEMA: Final = "ssm-optimizations/2"
"""Schema of the JSON. Its number increases when a key changes its meaning or is removed."""
SECONDS: Final = 10.0
"""Approximate measuring time of each part."""
LEAST_ROUNDS: Final = 7
MOST_ROUNDS: Final = 301
MOST_SEEDS: Final = 10
_LEAST_OF_AN_INTERVAL: Final = 6
"""With fewer ratios, no interval covers 95%."""


class Ratio(NamedTuple):
    """Median of the rounds' ratios, fixed over as found, with an interval of at least 95%."""

    value: float
    low: float
    high: float
    n: int


def run(settings: Settings, fixed: Plan, *, device: str, result: Path | None = None) -> int:
    """Compare the plan `fixed` with the as-found program, print a table, write JSON, and return the exit code."""
    print(
        f"measuring as found and fixed in alternation: about {SECONDS:g} s and at least {LEAST_ROUNDS} rounds per part"
    )
    try:
        document = measured(settings, fixed, device)
    except (MemoryError, torch.OutOfMemoryError):
        raise TrainerError("out of memory: use smaller --student-dims or --num-seeds") from None
    Console(width=None if sys.stdout.isatty() else 100).print(table(document))
    results = document["results"]
    print("Medians of alternating rounds with 95% intervals.")
    print(
        f"{results['same_epochs_and_guesses']} of {results['jobs']} jobs took as many epochs or guesses in both; "
        f"losses differ by {results['largest_difference_of_losses']:.1e} or less."
    )
    if result:
        write_output("--result", result, json.dumps(plain(document), indent=2, allow_nan=False) + "\n")
    return 0


def measured(settings: Settings, fixed: Plan, device: str) -> dict[str, Any]:
    """Measure the largest student with the first rank and the first seeds; return it as values for JSON."""
    smaller = replace(
        settings,
        num_seeds=min(settings.num_seeds, MOST_SEEDS),
        teacher_ranks=settings.teacher_ranks[:1],
        student_dims=(max(settings.student_dims),),
    )
    parts: dict[str, Callable[[_Side], object]] = {"data generation": _Side.data, "forward": _Side.forward}
    if smaller.gd:
        parts["training"] = _Side.descend
    if smaller.gnc:
        parts["guess and check"] = _Side.check
    with ExitStack() as stack:
        sides = as_found, after = [_Side(smaller, plan, torch.device(device), stack) for plan in (Plan(), fixed)]
        rows = [_times(name, part, sides, torch.device(device)) for name, part in parts.items()]
    return {
        "schema": SCHEMA,
        "device": device,
        "torch": torch.__version__,
        "seeds": smaller.num_seeds,
        "rank": smaller.teacher_ranks[0],
        "dim": smaller.student_dims[0],
        "measurements": smaller.measurements,
        "sequence_length": smaller.sequence_length,
        "plan": asdict(fixed),
        "rows": rows,
        "results": _agreement(as_found, after),
    }


class _Side:
    """The parts of the work under one plan."""

    def __init__(self, settings: Settings, plan: Plan, device: torch.device, stack: ExitStack) -> None:
        self._settings, self._plan = settings, plan
        log = stack.enter_context(ReportLog(settings.log, every=settings.report_every, quiet=plan.quiet))
        jobs = tuple(job for job in replace(settings, gd=True).jobs() if job.method == GD)
        groups = [jobs] if plan.batched_seeds else [(job,) for job in jobs]
        data = [measure(group, settings, device_data=plan.device_data, device=device) for group in groups]
        self._tasks = [Task(*part, settings, plan, device, log) for part in zip(groups, data, strict=True)]
        self._students = [self._initial(task) for task in self._tasks]
        self.fits: dict[str, list[Fit]] = {}
        """The fits of the last run, by method."""

    def _initial(self, task: Task) -> Students:
        return initial(task.jobs, self._settings.init_scale, device_data=self._plan.device_data, device=task.device)

    def data(self) -> None:
        """Make the measurements and the initial students of gradient descent."""
        for task in self._tasks:
            measure(task.jobs, self._settings, device_data=self._plan.device_data, device=task.device)
            self._initial(task)

    def forward(self) -> None:
        """Compute outputs and impulse responses of the initial students of gradient descent."""
        with torch.no_grad():
            for task, students in zip(self._tasks, self._students, strict=True):
                respond(students, task.data.inputs, self._plan.recurrence)

    def descend(self) -> None:
        self.fits[GD] = [fit for task in self._tasks for fit in gradient_descent.fit(task)]

    def check(self) -> None:
        guesses = [replace(task, jobs=tuple(job._replace(method=GNC) for job in task.jobs)) for task in self._tasks]
        self.fits[GNC] = [fit for task in guesses for fit in guess_and_check.search(task)]


def _times(name: str, part: Callable[[_Side], object], sides: Sequence[_Side], device: torch.device) -> dict[str, Any]:
    """Measure a row of seconds, for all seeds of the combination."""
    times: dict[_Side, list[float]] = {side: [] for side in sides}
    for side in sides:
        part(side)  # compiles kernels
    until, done = time.perf_counter() + SECONDS, 0
    while done < LEAST_ROUNDS or (done < MOST_ROUNDS and time.perf_counter() < until):
        for side in sides if done % 2 == 0 else reversed(sides):  # so that neither always comes first
            _synchronize(device)
            began = time.perf_counter()
            part(side)
            _synchronize(device)
            times[side].append(time.perf_counter() - began)
        done += 1
    return _row(name, *times.values())


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _row(name: str, as_found: Sequence[float], fixed: Sequence[float]) -> dict[str, Any]:
    """Medians of both in seconds, and their ratio."""
    ratio = median_ratio([after / before for before, after in zip(as_found, fixed, strict=True)])
    medians = {"as_found": statistics.median(as_found), "fixed": statistics.median(fixed)}
    return {"name": name, "unit": "s", **medians, "ratio": ratio._asdict()}


def median_ratio(ratios: Sequence[float]) -> Ratio:
    """The median of ratios with the 95% interval of the sign test; of few ratios, with their range."""
    from scipy.stats import quantile_test

    low, high = min(ratios), max(ratios)
    if len(ratios) >= _LEAST_OF_AN_INTERVAL:
        low, high = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    return Ratio(statistics.median(ratios), float(low), float(high), len(ratios))


def _agreement(as_found: _Side, fixed: _Side) -> dict[str, Any]:
    """Compare the results of both: numbers of epochs and guesses, and losses."""
    pairs = [pair for method in as_found.fits for pair in zip(as_found.fits[method], fixed.fits[method], strict=True)]
    differences = [
        abs(before.train_loss - after.train_loss) / max(abs(before.train_loss), 1e-9) for before, after in pairs
    ]
    same = [(before.epochs, before.guesses) == (after.epochs, after.guesses) for before, after in pairs]
    return {"jobs": len(pairs), "same_epochs_and_guesses": sum(same), "largest_difference_of_losses": max(differences)}


def table(document: dict[str, Any]) -> Table:
    """The rows as a table for a terminal."""
    title = f"{document['seeds']} seeds, rank {document['rank']}, dimension {document['dim']}, {document['device']}"
    drawn = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    drawn.add_column("part", no_wrap=True)
    for name in ("as found", "fixed", "fixed / as found"):
        drawn.add_column(name, justify="right", no_wrap=True)
    for row in document["rows"]:
        times = (f"{1e3 * row[side]:,.2f} ms" for side in ("as_found", "fixed"))
        drawn.add_row(row["name"], *times, "{value:,.3f} ({low:,.3f} to {high:,.3f})".format(**row["ratio"]))
    return drawn
