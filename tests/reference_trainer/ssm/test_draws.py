"""The numbers of an experiment: host and device, alone and together, and what they should be like."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from reference_trainer.ssm import draws
from reference_trainer.ssm.problem import GD, GNC, Job, Students

CPU = torch.device("cpu")
JOBS = [Job(GNC, 2, 7, seed) for seed in (3, 4, 9)]
CLOSE = 2e-6
"""Between fp64 on the host and fp32 on the device: some roundings of a normal of up to 5.8."""
both = pytest.mark.parametrize("device_data", [False, True], ids=["host", "device"])


def parts(students: Students) -> dict[str, torch.Tensor]:
    return {"a": students.a, "b": students.b, "c": students.c}


def same(found: Students, expected: Students, tolerance: float = 0) -> None:
    for name, values in parts(expected).items():
        found_values = getattr(found, name)
        assert found_values.shape == values.shape, name
        assert (found_values - values).abs().max() <= tolerance, name


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 64, 1027])
def test_guesses_host_and_device_agree(dim: int) -> None:
    """Rows of any length, one that is drawn in two tiles among them."""
    jobs = [job._replace(dim=dim) for job in JOBS]
    host, device = (draws.guesses(jobs, 1000, 3, device_data=device_data, device=CPU) for device_data in (False, True))
    assert all(values.dtype == torch.float32 for values in [*parts(host).values(), *parts(device).values()])
    assert host.a.shape == device.c.shape == (9, dim)
    same(device, host, CLOSE)


def test_initial_of_host_and_device_agree() -> None:
    host, device = (draws.initial(JOBS, 0.3, device_data=device_data, device=CPU) for device_data in (False, True))
    assert host.a.shape == (3, 7)
    same(device, host, CLOSE)


@both
def test_a_guess_is_the_same_however_it_is_drawn(device_data: bool) -> None:
    """One after the other, in batches, and those of several jobs together: to the bit."""
    together = draws.guesses(JOBS, 7, 5, device_data=device_data, device=CPU)
    for row, job in enumerate(JOBS):
        of_job = Students(*(values[5 * row : 5 * row + 5] for values in parts(together).values()))
        same(draws.guesses([job], 7, 5, device_data=device_data, device=CPU), of_job)
        alone = [draws.guesses([job], 7 + n, 1, device_data=device_data, device=CPU) for n in range(5)]
        same(Students(*(torch.cat([getattr(item, name) for item in alone]) for name in "abc")), of_job)


@both
def test_a_student_to_begin_with_is_the_same_alone(device_data: bool) -> None:
    together = draws.initial(JOBS, 0.3, device_data=device_data, device=CPU)
    for row, job in enumerate(JOBS):
        expected = Students(*(values[row : row + 1] for values in parts(together).values()))
        same(draws.initial([job], 0.3, device_data=device_data, device=CPU), expected)


def test_streams_do_not_meet() -> None:
    """Seeds, kinds, ranks, dimensions: each has words of its own."""
    streams = [
        draws.Stream(seed, kind, rank, dim) for seed in (0, 1) for kind in range(4) for rank in (0, 1) for dim in (0, 1)
    ]
    assert len({stream.key for stream in streams}) == len(streams)
    arguments = np.concatenate([draws.words(stream, 0, 8) for stream in streams])
    assert len(np.unique(arguments)) == len(arguments)


def test_inputs_are_those_of_the_seed() -> None:
    job = JOBS[0]
    assert draws.inputs(job).key == draws.inputs(job._replace(rank=9, dim=1, method=GD)).key
    assert draws.teacher(job).key == draws.teacher(job._replace(dim=1, method=GD)).key
    assert draws.teacher(job).key != draws.teacher(job._replace(rank=3)).key


@both
def test_distribution(device_data: bool) -> None:
    """Moments of 60,000 numbers each within five standard errors."""
    dim = 100
    students = draws.guesses([Job(GNC, 1, dim, 5)], 0, 600, device_data=device_data, device=CPU)
    a, b, c = (values.double().numpy().ravel() for values in parts(students).values())
    error = 5 / math.sqrt(len(a))
    low, high = draws.A_LOW, draws.A_HIGH
    assert low <= a.min() < low + 1e-3
    assert high - 1e-3 < a.max() <= np.float32(high)
    assert abs(a.mean() - (low + high) / 2) < error * (high - low) / math.sqrt(12)
    for values in (b, c / draws.c_scale(dim)):
        assert abs(values.mean()) < error
        assert abs(values.var() - 1) < error * math.sqrt(2)
        assert abs((values**4).mean() - 3) < error * math.sqrt(96)
    assert abs(np.corrcoef(b[0::2], b[1::2])[0, 1]) < error * math.sqrt(2), "cosine and sine"
    assert abs(np.corrcoef(b, c)[0, 1]) < error


def test_guesses_have_responses_of_norm_1() -> None:
    """The mean square of the infinite response is 1."""
    students = draws.guesses([Job(GNC, 1, 16, 2)], 0, 4000, device_data=True, device=CPU)
    a, b, c = (values.double() for values in parts(students).values())
    gains, products = b * c, a[:, :, None] * a[:, None]
    squares = (gains[:, :, None] * gains[:, None] / (1 - products)).sum((1, 2))  # sum_t k_t^2
    error = squares.std().item() / math.sqrt(len(squares))
    assert abs(squares.mean().item() - 1) < 5 * error
    assert error < 0.05


def test_gradient_descent_begins_smaller_than_a_guess() -> None:
    complete, small = (draws.initial(JOBS, scale, device_data=True, device=CPU) for scale in (1.0, 0.25))
    torch.testing.assert_close(small.a, complete.a, atol=0, rtol=0)
    torch.testing.assert_close(small.b, 0.25 * complete.b)
    torch.testing.assert_close(small.c, 0.25 * complete.c)
