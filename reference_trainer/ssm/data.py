"""Makes the measurements of teachers, and judges how well students fit them and generalize."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from profiler import marks
from reference_trainer.ssm import draws, forward
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import Data, Job, Students
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings


def measure(jobs: Sequence[Job], settings: Settings, *, device_data: bool, device: torch.device) -> Data:
    """The data of some jobs on their device: inputs (S, N, T), targets (S, N), responses (S, T).

    :param device_data: True: made on the device, in fp32. False: made on the host in fp64 and copied.
    """
    if device_data:
        return _on_device(jobs, settings, device)
    arrays = [_on_host(job, settings.measurements, settings.sequence_length) for job in jobs]
    inputs, targets, responses = (torch.from_numpy(np.stack(part)).to(device) for part in zip(*arrays, strict=True))
    return Data(inputs, targets, responses)


def _on_host(job: Job, measurements: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inputs = draws.host_normals(draws.inputs(job), measurements * length).reshape(measurements, length)
    a, b, c = (part[0] for part in draws.host_students(draws.teacher(job), 0, 1, job.rank))
    impulse = np.zeros((1, length))
    impulse[0, 0] = 1
    response = np.stack([(h @ c)[0] for h in _states(a, b, impulse)])
    norm = np.linalg.norm(response)
    for h in _states(a, b, inputs):  # noqa: B007 - only the end is measured
        pass
    return inputs, h @ (c / norm), response / norm


def _states(a: np.ndarray, b: np.ndarray, inputs: np.ndarray) -> Iterator[np.ndarray]:
    """The state of a teacher after each time step, (N, r)."""
    h = np.zeros((len(inputs), len(a)))
    for t in range(inputs.shape[1]):
        h = a * h + b * inputs[:, t, None]
        yield h


def _on_device(jobs: Sequence[Job], settings: Settings, device: torch.device) -> Data:
    count, measurements, length = len(jobs), settings.measurements, settings.sequence_length
    inputs = torch.empty(count, measurements, length, dtype=torch.float32, device=device)
    draws.fill_normals([draws.inputs(job) for job in jobs], inputs.view(count, -1))
    (rank,) = {job.rank for job in jobs}
    teachers = draws.draw_students([draws.teacher(job) for job in jobs], 0, 1, rank, device=device)
    targets, responses = forward.respond(teachers, inputs, forward.SCAN)
    norm = responses.norm(dim=1, keepdim=True)
    return Data(inputs, targets.div_(norm), responses.div_(norm))


@dataclass(frozen=True, slots=True)
class Task:
    """Jobs of one rank and dimension whose students are fitted together."""

    jobs: tuple[Job, ...]
    data: Data
    """Its S is in the order of the jobs."""
    settings: Settings
    plan: Plan
    device: torch.device
    log: ReportLog

    def singles(self) -> list[Task]:
        """A task for each job."""
        parts = [Data(*(values[row : row + 1] for values in self.data)) for row in range(len(self.jobs))]
        return [replace(self, jobs=(job,), data=data) for job, data in zip(self.jobs, parts, strict=True)]


def training_losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the measurements; outputs and targets are (..., N), and one may be broadcast."""
    return (outputs - targets).square().mean(-1)


def evaluate(students: Students, data: Data, way: str) -> list[tuple[float, float]]:
    """(training loss, generalization loss) of each of the S students, on the data of the same S."""
    with marks.region("evaluate"), torch.no_grad():
        outputs, responses = forward.respond(students, data.inputs, way)
        losses = training_losses(outputs, data.targets)
        distances = (responses - data.responses).square().sum(-1)
        return list(zip(losses.tolist(), distances.tolist(), strict=True))
