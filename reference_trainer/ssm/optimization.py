"""Measures what the fixes change in data generation, forward pass, training and memory.

The as-found and the fixed program are measured in alternation, in one process. Each round gives a ratio; the result is
the median ratio with a distribution-free interval.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, apply, perf_config
from reference_trainer.program import write_output
from reference_trainer.ssm import gradient_descent, guess_and_check
from reference_trainer.ssm.data import Task, measure
from reference_trainer.ssm.draws import initial
from reference_trainer.ssm.forward import respond
from reference_trainer.ssm.group_work import do_jobs, groups
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
MEMORY_ROUNDS: Final = 3
"""Rounds of the measurement of memory: each starts two processes, which takes seconds."""
MOST_SEEDS: Final = 10
_LEAST_OF_AN_INTERVAL: Final = 6
"""With fewer ratios, no interval covers 95%."""


class Ratio(NamedTuple):
    """Median of the rounds' ratios, fixed over as found, with an interval of at least 95%."""

    value: float
    low: float
    high: float
    n: int


def run(
    settings: Settings, fixed: Plan, *, device: str, result: Path | None = None, config: PerformanceConfig | None = None
) -> int:
    """Measure, print the table, write the JSON, and return the exit code.

    :param fixed: the plan that is compared with the as-found program.
    :param device: cpu, cuda:0, ...
    :param config: the configuration that this process has applied; processes that measure memory apply it too.
    :raises TrainerError: the file cannot be written, or there was not enough memory.
    """
    duration = f"about {SECONDS:g} s per part and at least {LEAST_ROUNDS} rounds, then the memory of both"
    print(f"measuring as found and fixed in alternation: {duration}", flush=True)
    try:
        document = measured(settings, fixed, device=device, config=config or perf_config.current)
    except (MemoryError, torch.OutOfMemoryError, BrokenProcessPool):
        raise TrainerError(
            "out of memory, or a process was killed: use smaller --student-dims or --num-seeds"
        ) from None
    Console(width=None if sys.stdout.isatty() else 100).print(table(document))
    results = document["results"]
    print("Medians of alternating rounds with 95% intervals; for memory their range.")
    print(
        f"{results['same_epochs_and_guesses']} of {results['jobs']} jobs took as many epochs or guesses in both; "
        f"losses differ by {results['largest_difference_of_losses']:.1e} or less."
    )
    if result:
        write_output("--result", result, json.dumps(plain(document), indent=2, allow_nan=False) + "\n")
    return 0


def measured(settings: Settings, fixed: Plan, *, device: str, config: PerformanceConfig) -> dict[str, Any]:
    """Measure the largest student with the first rank and the first seeds; return it as values for JSON."""
    smaller = replace(
        settings,
        num_seeds=min(settings.num_seeds, MOST_SEEDS),
        teacher_ranks=settings.teacher_ranks[:1],
        student_dims=(max(settings.student_dims),),
    )
    where = torch.device(device)
    parts: dict[str, Callable[[_Side], object]] = {"data generation": _Side.data, "forward": _Side.forward}
    if smaller.gd:
        parts["training"] = _Side.descend
    if smaller.gnc:
        parts["guess and check"] = _Side.check
    with _side(smaller, Plan(), where) as as_found, _side(smaller, fixed, where) as after:
        rows = [_times(name, part, (as_found, after), where) for name, part in parts.items()]
    rows.append(_memory(smaller, fixed, device, config))
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
        "performance": asdict(config),
        "rows": rows,
        "results": _agreement(as_found, after),
    }


class _Side:
    """The parts of the work under one plan."""

    def __init__(self, settings: Settings, plan: Plan, device: torch.device, log: ReportLog) -> None:
        self._settings, self._plan = settings, plan
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


@contextmanager
def _side(settings: Settings, plan: Plan, device: torch.device) -> Iterator[_Side]:
    with ReportLog(settings.log, every=settings.report_every, quiet=plan.quiet) as log:
        yield _Side(settings, plan, device, log)


def _times(
    name: str, part: Callable[[_Side], object], sides: tuple[_Side, _Side], device: torch.device
) -> dict[str, Any]:
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
    return _row(name, "s", *times.values())


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _row(name: str, unit: str, as_found: Sequence[float], fixed: Sequence[float]) -> dict[str, Any]:
    """Medians of both, and their ratio, which is None if an as-found value is 0."""
    ratio = None
    if all(as_found):
        ratio = median_ratio([after / before for before, after in zip(as_found, fixed, strict=True)])._asdict()
    medians = {"as_found": statistics.median(as_found), "fixed": statistics.median(fixed)}
    return {"name": name, "unit": unit, **medians, "ratio": ratio}


def median_ratio(ratios: Sequence[float]) -> Ratio:
    """The median of ratios with the 95% interval of the sign test; of few ratios, with their range."""
    from scipy.stats import quantile_test

    low, high = min(ratios), max(ratios)
    if len(ratios) >= _LEAST_OF_AN_INTERVAL:
        low, high = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    return Ratio(statistics.median(ratios), float(low), float(high), len(ratios))


def _memory(settings: Settings, fixed: Plan, device: str, config: PerformanceConfig) -> dict[str, Any]:
    """Measure a row of bytes: the peak beyond what a process held before, both methods, all seeds."""
    plans = {"as_found": Plan(), "fixed": fixed}
    peaks: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(MEMORY_ROUNDS):
        for name, plan in plans.items():  # one process for each: it would reuse memory that an earlier job freed
            with ProcessPoolExecutor(1, get_context("spawn"), apply, (config, device)) as pool:
                peaks[name].append(pool.submit(memory_of, settings, plan, device).result())
    return _row("memory", "bytes", **peaks)


def memory_of(settings: Settings, plan: Plan, device: str) -> int:
    """Peak bytes of the largest group of a combination, measured in a process of its own."""
    torch.set_num_threads(1)
    small = replace(settings, num_seeds=1, student_dims=(2,), epochs=2, max_guesses=2)
    for group in groups(small.jobs(), small, plan):  # compiles
        do_jobs(group, small, plan, device)
    done = [do_jobs(group, settings, plan, device) for group in groups(settings.jobs(), settings, plan)]
    return max(sum(outcome.memory_bytes for outcome in outcomes) for outcomes in done)


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
        scale, unit = (2**20, "MiB") if row["unit"] == "bytes" else (1e-3, "ms")
        ratio = row["ratio"]
        interval = "{value:,.3f} ({low:,.3f} to {high:,.3f})".format(**ratio) if ratio else "undefined"
        drawn.add_row(row["name"], *(f"{row[side] / scale:,.2f} {unit}" for side in ("as_found", "fixed")), interval)
    return drawn
