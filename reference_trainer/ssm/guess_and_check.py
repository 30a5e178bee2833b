"""Guess and check: students are drawn until one fits the measurements.

Every way finds the same student, the first by number: guesses are numbered and drawn from counters, so that a batch
holds the same students as draws one by one. Guesses of a batch after the one that fits are discarded, and count neither
as guesses nor as work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from profiler import marks
from reference_trainer.ssm.evaluation import evaluate, training_losses
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import Data, Fit, Job, Students
from reference_trainer.ssm.report_log import ReportLog, reported
from reference_trainer.ssm.settings import Settings

if TYPE_CHECKING:
    import torch

FIRST_BATCH: Final = 64
"""Guesses per job in the first batch."""
CHEAPER: Final = 0.95
"""The batch is doubled while a guess takes less than this share of its time in the best earlier batch. A larger batch
saves launches but may no longer fit into a cache, and the last batch draws more than needed."""
CPU_BYTES: Final = 64 << 20
"""Maximum bytes of a batch on a CPU, whose memory is shared by workers."""
GPU_SHARE: Final = 8
"""On a GPU a batch takes at most 1 / GPU_SHARE of the free memory."""


def search(
    jobs: Sequence[Job], data: Data, settings: Settings, plan: Plan, *, device: torch.device, log: ReportLog
) -> list[Fit]:
    """Find the first guess of each job whose training loss is low enough; if there is none, take the best one.

    :param jobs: of one rank and dimension, in the order of the data's S.
    """
    import torch

    with marks.region("search"), torch.no_grad():
        together = [list(range(len(jobs)))] if plan.batched_seeds else [[row] for row in range(len(jobs))]
        fits: list[Fit] = []
        for rows in together:
            part = Data(data.inputs[rows], data.targets[rows], data.responses[rows])
            chosen = [jobs[row] for row in rows]
            if plan.batched_seeds or plan.batched_draws:
                fits += _Search(chosen, part, settings, plan, device=device, log=log).run()
            else:
                fits.append(_alone(chosen[0], part, settings, plan, device=device, log=log))
        return fits


def _way(plan: Plan, data: Data, *, students: int, dim: int, device: torch.device) -> str:
    """The way of the forward pass, chosen once, at the size of the first batch."""
    if plan.recurrence == "loop":
        return "loop"
    from reference_trainer.ssm.fastest import fastest

    _, measured, length = data.inputs.shape
    return fastest((students, measured, length, dim), device, backward=False)


@dataclass(slots=True)
class _Best:
    """The best guess of a job so far."""

    loss: float
    number: int
    student: Students


def _alone(job: Job, data: Data, settings: Settings, plan: Plan, *, device: torch.device, log: ReportLog) -> Fit:
    """Draw and check one guess at a time."""
    from reference_trainer.ssm.draws import guesses
    from reference_trainer.ssm.forward import respond

    way = _way(plan, data, students=1, dim=job.dim, device=device)
    best: _Best | None = None
    for number in range(settings.max_guesses):
        with marks.region("data"):
            student = guesses(job, number, 1, device_data=plan.device_data, device=device)
        with marks.region("forward"):
            outputs = respond(student, data.inputs, way, outputs_only=True)
            losses = training_losses(outputs, data.targets)
            loss = losses.item()
        if best is None or loss < best.loss:
            best = _Best(loss, number, student)
        if log.due(number + 1):
            log.report([job], [number + 1], reported(losses, outputs, student))
        if loss < settings.gnc_loss:
            break
    assert best is not None
    marks.count("readouts", number + 1)
    ((train_loss, generalization_loss),) = evaluate(best.student, data, way)
    return Fit(train_loss, generalization_loss, best.loss < settings.gnc_loss, guesses=number + 1)


class _Search:
    """Draws for all jobs of a group together, the same number of guesses for each, until each has a guess that fits."""

    def __init__(
        self,
        jobs: Sequence[Job],
        data: Data,
        settings: Settings,
        plan: Plan,
        *,
        device: torch.device,
        log: ReportLog,
    ) -> None:
        self._jobs, self._data, self._settings, self._plan = jobs, data, settings, plan
        self._device, self._log = device, log
        self._open = list(range(len(jobs)))
        """Rows of the jobs that have no fitting guess yet."""
        self._best: dict[int, _Best] = {}
        dim = jobs[0].dim
        self._batches = _Batches(_bytes_of_a_guess(dim, data), device) if plan.batched_draws else None
        count = min(self._batches.size(len(jobs)), settings.max_guesses) if self._batches else 1
        self._way = _way(plan, data, students=len(jobs) * count, dim=dim, device=device)

    def run(self) -> list[Fit]:
        import torch

        first, max_guesses = 0, self._settings.max_guesses
        while self._open and first < max_guesses:
            count = min(self._batches.size(len(self._open)) if self._batches else 1, max_guesses - first)
            began = time.perf_counter()
            drawn = len(self._open) * count
            try:
                self._batch(first, count)
            except (torch.OutOfMemoryError, MemoryError):
                if self._batches is None or count == 1:
                    raise
                self._batches.halve(count)
                continue
            first += count
            if self._batches:
                self._batches.took((time.perf_counter() - began) / drawn)
        best = [self._best[row] for row in range(len(self._jobs))]
        students = Students(*(_rows(best, name) for name in ("a", "b", "c")))
        judged = evaluate(students, self._data, self._way)
        wanted = self._settings.gnc_loss
        return [
            Fit(*losses, guess.loss < wanted, guesses=guess.number + 1 if guess.loss < wanted else max_guesses)
            for losses, guess in zip(judged, best, strict=True)
        ]

    def _batch(self, first: int, count: int) -> None:
        """Draw and check guesses `first` to `first + count` of all open jobs. The host waits once."""
        from reference_trainer.ssm.draws import guesses_of

        jobs = [self._jobs[row] for row in self._open]
        with marks.region("data"):
            students = guesses_of(jobs, first, count, device_data=self._plan.device_data, device=self._device)
        with marks.region("forward"):
            outputs = self._outputs(students, count)
            losses = training_losses(outputs, self._data.targets[self._open][:, None])
            read = _look(losses, self._settings.gnc_loss)
        marks.count("readouts", 1)
        ends = [at if loss < self._settings.gnc_loss else count - 1 for at, loss in read]
        self._report(jobs, first, count, ends, losses=losses, outputs=outputs, students=students)
        for row, (index, (at, loss)) in zip(list(self._open), enumerate(read), strict=True):
            if row in self._best and not loss < self._best[row].loss:
                continue
            rows = slice(index * count + at, index * count + at + 1)
            # copies: a view would keep the whole batch
            student = Students(students.a[rows].clone(), students.b[rows].clone(), students.c[rows].clone())
            self._best[row] = _Best(loss, first + at, student)
            if loss < self._settings.gnc_loss:
                self._open.remove(row)

    def _outputs(self, students: Students, count: int) -> torch.Tensor:
        """The outputs of the open jobs' students, (jobs, count, N)."""
        from reference_trainer.ssm.forward import respond

        inputs = self._data.inputs[self._open]  # one row per job, used by all of its guesses
        outputs = respond(students, inputs, self._way, outputs_only=True)
        return outputs.view(len(self._open), count, -1)

    def _report(
        self,
        jobs: Sequence[Job],
        first: int,
        count: int,
        ends: Sequence[int],
        *,
        losses: torch.Tensor,
        outputs: torch.Tensor,
        students: Students,
    ) -> None:
        """Report the guesses for which a report is due, as if they had been drawn one by one, up to the one that fits.

        :param ends: for each job, the last guess of the batch that counts.
        """
        due = [number - 1 - first for number in self._log.due_in(first + 1, first + count)]
        reported_at = [(index, at) for index, end in enumerate(ends) for at in due if at <= end]
        if not reported_at:
            return
        with marks.region("log"):
            rows = [index * count + at for index, at in reported_at]
            chosen = Students(students.a[rows], students.b[rows], students.c[rows])
            tensors = reported(losses.flatten()[rows], outputs.flatten(0, 1)[rows], chosen)
            self._log.report(
                [jobs[index] for index, _ in reported_at], [first + at + 1 for _, at in reported_at], tensors
            )


class _Batches:
    """Decides how many guesses of each job are drawn at once.

    :param bytes_each: approximate bytes of a guess.
    """

    def __init__(self, bytes_each: int, device: torch.device) -> None:
        import torch

        free = torch.cuda.mem_get_info(device)[0] // GPU_SHARE if device.type == "cuda" else CPU_BYTES
        self._most = max(1, free // bytes_each)
        """Maximum guesses of all jobs together."""
        self._size = FIRST_BATCH
        self._least = float("inf")
        """Seconds per guess in the best batch."""

    def size(self, jobs: int) -> int:
        return max(1, min(self._size, self._most // jobs))

    def took(self, seconds: float) -> None:
        """Note the seconds per guess of the last batch."""
        if seconds < CHEAPER * self._least:
            self._size *= 2
        self._least = min(self._least, seconds)

    def halve(self, size: int) -> None:
        """Note that a batch of this size did not fit into memory."""
        self._size, self._most = size // 2, min(self._most, max(1, self._most // 2))


def _bytes_of_a_guess(dim: int, data: Data) -> int:
    """The bytes of its parameters, its states over time or powers of a, and its inputs; in fp64 as found."""
    _, measured, length = data.inputs.shape
    return data.inputs.element_size() * (dim * (3 + length + 3 * measured) + 2 * measured * length)


def _look(losses: torch.Tensor, wanted: float) -> list[tuple[int, float]]:
    """Wait for (index, loss) of each job's first guess (jobs, count) that is good enough, else of its best."""
    import torch

    below = losses < wanted
    first = torch.where(below.any(1), below.to(torch.uint8).argmax(1), losses.argmin(1))
    read = torch.stack((first.to(torch.float64), losses.gather(1, first[:, None])[:, 0].to(torch.float64)), 1)
    return [(int(at), loss) for at, loss in read.tolist()]


def _rows(best: Sequence[_Best], name: str) -> torch.Tensor:
    import torch

    return torch.cat([getattr(guess.student, name) for guess in best])
