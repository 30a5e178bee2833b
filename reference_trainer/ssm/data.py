"""Makes the measurements of teachers: input sequences, final outputs and impulse responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from reference_trainer.ssm import draws, forward
from reference_trainer.ssm.problem import Data, Job
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
