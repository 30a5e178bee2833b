"""The measurements against their definition, on the host and where they are used, alone and together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reference_trainer.ssm import draws
from reference_trainer.ssm.data import measure
from reference_trainer.ssm.problem import GD, Data, Job
from reference_trainer.ssm.settings import Settings

CPU = torch.device("cpu")
SETTINGS = Settings(measurements=3, sequence_length=19)
JOBS = [Job(GD, 2, 8, seed) for seed in range(5)]
CLOSE = 1e-4
"""Between fp64 on the host and fp32: a response is divided by its norm, which is small where two channels cancel."""
both = pytest.mark.parametrize("device_data", [False, True], ids=["host", "device"])


def parts(data: Data) -> dict[str, np.ndarray]:
    return {name: getattr(data, name).double().numpy() for name in ("inputs", "targets", "responses")}


def made(jobs: list[Job], *, device_data: bool) -> Data:
    return measure(jobs, SETTINGS, device_data=device_data, device=CPU)


@both
def test_against_the_definition(device_data: bool) -> None:
    """k_t = sum_j c_j b_j a_j^t of norm 1, and y = sum_t x_{T-1-t} k_t."""
    result = parts(made(JOBS, device_data=device_data))
    for row, job in enumerate(JOBS):
        a, b, c = (part[0] for part in draws.host_students(draws.teacher(job), 0, 1, job.rank))
        k = (b * c * a ** np.arange(19)[:, None]).sum(1)
        k /= np.linalg.norm(k)
        x = draws.host_normals(draws.inputs(job), 3 * 19).reshape(3, 19)
        np.testing.assert_allclose(result["inputs"][row], x, atol=2e-6)
        np.testing.assert_allclose(result["responses"][row], k, atol=CLOSE)
        np.testing.assert_allclose(result["targets"][row], x[:, ::-1] @ k, atol=CLOSE)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_host_and_device_agree(rank: int) -> None:
    """Fifty teachers include one with a small response."""
    jobs = [Job(GD, rank, 8, seed) for seed in range(50)]
    host, device = (made(jobs, device_data=device_data) for device_data in (False, True))
    assert {values.dtype for values in (host.inputs, host.targets, host.responses)} == {torch.float64}
    assert {values.dtype for values in (device.inputs, device.targets, device.responses)} == {torch.float32}
    for name, values in parts(host).items():
        np.testing.assert_allclose(parts(device)[name], values, atol=CLOSE, err_msg=name)
    np.testing.assert_allclose(np.linalg.norm(parts(device)["responses"], axis=1), 1, atol=1e-6)


@both
def test_a_job_has_the_same_data_alone(device_data: bool) -> None:
    together = made(JOBS, device_data=device_data)
    for row, job in enumerate(JOBS):
        alone = made([job], device_data=device_data)
        for name in ("inputs", "targets", "responses"):
            values = getattr(together, name)[row : row + 1]
            torch.testing.assert_close(getattr(alone, name), values, atol=1e-6, rtol=0)
        assert torch.equal(alone.inputs, together.inputs[row : row + 1])


@both
def test_a_longer_sequence_has_a_longer_response(device_data: bool) -> None:
    """The shape of the response does not depend on its length."""
    short, long = (
        measure(JOBS, Settings(sequence_length=length), device_data=device_data, device=CPU).responses.double()
        for length in (8, 16)
    )
    expected = long[:, :8] / long[:, :8].norm(dim=1, keepdim=True)
    torch.testing.assert_close(short, expected, atol=1e-5, rtol=0)
