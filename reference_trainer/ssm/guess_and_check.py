"""Guess and check: students are drawn until one fits the measurements.

Every way finds the same student, the first by number: guesses are numbered and drawn from counters, so that a batch
holds the same students as draws one by one. Guesses of a batch after the one that fits are discarded, and count neither
as guesses nor as work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch

from profiler import marks
from reference_trainer.ssm import draws
from reference_trainer.ssm.evaluation import Task, evaluate, training_losses
from reference_trainer.ssm.forward import last_outputs
from reference_trainer.ssm.problem import Fit, Job, Students
from reference_trainer.ssm.report_log import reported

FIRST_BATCH: Final = 64
"""Guesses per job in the first batch."""
CHEAPER: Final = 0.95
"""The batch is doubled while a guess takes less than this share of its time in the best earlier batch. A larger batch
saves launches but may no longer fit into a cache, and the last batch draws more than needed."""
CPU_BYTES: Final = 64 << 20
"""Maximum bytes of a batch on a CPU, whose memory is shared by workers."""
GPU_SHARE: Final = 8
"""On a GPU a batch takes at most 1 / GPU_SHARE of the free memory."""


def search(task: Task) -> list[Fit]:
    """Find the first guess of each job whose training loss is low enough; if there is none, take the best one."""
    with marks.region("search"), torch.no_grad():
        if task.plan.batched_seeds:
            return _Search(task).run()
        if task.plan.batched_draws:
            return [fit for single in task.singles() for fit in _Search(single).run()]
        return [_alone(single) for single in task.singles()]


class _Best(NamedTuple):
    """The best guess of a job so far."""

    loss: float
    number: int
    student: Students


def _draw(task: Task, jobs: Sequence[Job], first: int, count: int) -> Students:
    with marks.region("data"):
        return draws.guesses(jobs, first, count, device_data=task.plan.device_data, device=task.device)


def _alone(task: Task) -> Fit:
    """Draw and check one guess at a time, for the task's only job."""
    settings, data = task.settings, task.data
    way = task.plan.recurrence
    best: _Best | None = None
    for number in range(settings.max_guesses):
        student = _draw(task, task.jobs, number, 1)
        with marks.region("forward"):
            outputs = last_outputs(student, data.inputs, way)
            losses = training_losses(outputs, data.targets)
            loss = losses.item()
        if best is None or loss < best.loss:
            best = _Best(loss, number, student)
        if task.log.due(number + 1):
            task.log.report(task.jobs, [number + 1], reported(losses, outputs, student))
        if loss < settings.gnc_loss:
            break
    assert best is not None
    marks.count("readouts", number + 1)
    ((train_loss, generalization_loss),) = evaluate(best.student, data, way)
    return Fit(train_loss, generalization_loss, best.loss < settings.gnc_loss, guesses=number + 1)


class _Search:
    """Draws for all jobs of a group together, the same number of guesses for each, until each has a guess that fits."""

    def __init__(self, task: Task) -> None:
        self._task, self._wanted = task, task.settings.gnc_loss
        self._open = list(range(len(task.jobs)))
        """Rows of the jobs that have no fitting guess yet."""
        self._best: dict[int, _Best] = {}
        self._way = task.plan.recurrence
        _, measured, length = task.data.inputs.shape
        # the bytes of a guess: its parameters, its states over time or powers of a, and its inputs; in fp64 as found
        values = task.jobs[0].dim * (3 + length + 3 * measured) + 2 * measured * length
        each = task.data.inputs.element_size() * values
        free = torch.cuda.mem_get_info(task.device)[0] // GPU_SHARE if task.device.type == "cuda" else CPU_BYTES
        self._most = max(1, free // each)
        """Maximum guesses of all jobs together."""
        self._size = FIRST_BATCH
        """Guesses of each job that are drawn at once, as far as memory allows."""
        self._least = float("inf")
        """Seconds per guess in the best batch."""
        wanted = task.settings.batch_size
        if wanted is not None:  # of all jobs together, and it does not grow
            self._most, self._size = min(self._most, wanted), wanted

    def run(self) -> list[Fit]:
        first, max_guesses = 0, self._task.settings.max_guesses
        while self._open and first < max_guesses:
            count = min(self._batch_size(), max_guesses - first)
            began = time.perf_counter()
            drawn = len(self._open) * count
            try:
                self._batch(first, count)
            except (torch.OutOfMemoryError, MemoryError):
                if count == 1:
                    raise
                self._size, self._most = count // 2, max(1, self._most // 2)
                continue
            first += count
            each = (time.perf_counter() - began) / drawn
            if each < CHEAPER * self._least:
                self._size *= 2
            self._least = min(self._least, each)
        best = [self._best[row] for row in range(len(self._task.jobs))]
        students = Students(*map(torch.cat, zip(*(guess.student for guess in best), strict=True)))
        judged = evaluate(students, self._task.data, self._way)
        return [
            Fit(
                *losses,
                guess.loss < self._wanted,
                guesses=guess.number + 1 if guess.loss < self._wanted else max_guesses,
            )
            for losses, guess in zip(judged, best, strict=True)
        ]

    def _batch_size(self) -> int:
        return max(1, min(self._size, self._most // len(self._open))) if self._task.plan.batched_draws else 1

    def _batch(self, first: int, count: int) -> None:
        """Draw and check guesses `first` to `first + count` of all open jobs. The host waits once."""
        task = self._task
        jobs = [task.jobs[row] for row in self._open]
        students = _draw(task, jobs, first, count)
        with marks.region("forward"):
            inputs = task.data.inputs[self._open]  # one row per job, used by all of its guesses
            outputs = last_outputs(students, inputs, self._way).view(len(jobs), count, -1)
            losses = training_losses(outputs, task.data.targets[self._open][:, None])
            read = _look(losses, self._wanted)
        marks.count("readouts", 1)
        ends = [at if loss < self._wanted else count - 1 for at, loss in read]
        self._report(jobs, first, ends, (losses, outputs, students))
        for row, (index, (at, loss)) in zip(list(self._open), enumerate(read), strict=True):
            if row in self._best and not loss < self._best[row].loss:
                continue
            rows = slice(index * count + at, index * count + at + 1)
            # copies: a view would keep the whole batch
            self._best[row] = _Best(loss, first + at, Students(*(values[rows].clone() for values in students)))
            if loss < self._wanted:
                self._open.remove(row)

    def _report(
        self, jobs: Sequence[Job], first: int, ends: Sequence[int], found: tuple[torch.Tensor, torch.Tensor, Students]
    ) -> None:
        """Report as if guesses had been drawn one by one, for each job up to the last one that counts (`ends`)."""
        losses, outputs, students = found
        count = losses.shape[1]
        due = [number - 1 - first for number in self._task.log.due_in(first + 1, first + count)]
        reports = [(index, at) for index, end in enumerate(ends) for at in due if at <= end]
        if not reports:
            return
        with marks.region("log"):
            rows = [index * count + at for index, at in reports]
            chosen = Students(*(values[rows] for values in students))
            tensors = reported(losses.flatten()[rows], outputs.flatten(0, 1)[rows], chosen)
            self._task.log.report([jobs[index] for index, _ in reports], [first + at + 1 for _, at in reports], tensors)


def _look(losses: torch.Tensor, wanted: float) -> list[tuple[int, float]]:
    """Wait for (index, loss) of each job's first guess (jobs, count) that is good enough, else of its best."""
    below = losses < wanted
    first = torch.where(below.any(1), below.to(torch.uint8).argmax(1), losses.argmin(1))
    read = torch.stack((first.to(torch.float64), losses.gather(1, first[:, None])[:, 0].to(torch.float64)), 1)
    return [(int(at), loss) for at, loss in read.tolist()]
