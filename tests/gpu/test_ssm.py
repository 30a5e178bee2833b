"""The state-space experiments' kernels on a real GPU: the numbers of the CPU, and every way of the forward pass."""

from __future__ import annotations

import pytest
import torch

from reference_trainer.ssm import draws, forward
from reference_trainer.ssm.data import measure
from reference_trainer.ssm.problem import GNC, Job, Students
from reference_trainer.ssm.settings import Settings

pytestmark = pytest.mark.gpu

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SHAPES = [(1, 1, 1, 1), (1, 4, 24, 64), (10, 4, 24, 128), (10, 4, 256, 512), (3, 2, 1000, 37)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def drawn(shape: tuple[int, int, int, int], device: torch.device) -> Students:
    job = Job(GNC, 2, shape[3], 5)
    return draws.guesses([job], 2**40, shape[0], device_data=True, device=device)


def inputs(shape: tuple[int, int, int, int], device: torch.device) -> torch.Tensor:
    out = torch.empty(shape[0], shape[1] * shape[2], device=device)
    draws.fill_normals([draws.Stream(seed, draws.INPUTS) for seed in range(shape[0])], out)
    return out.view(shape[:3])


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-5 of the largest: sums in another order."""
    assert found.device.type == "cuda"
    assert (found.cpu() - expected).abs().max() <= 1e-5 * expected.abs().max()


@each_shape
def test_draws_are_those_of_the_cpu(shape: tuple[int, int, int, int]) -> None:
    for name in "abc":
        close(getattr(drawn(shape, GPU), name), getattr(drawn(shape, CPU), name))
    close(inputs(shape, GPU), inputs(shape, CPU))


def test_data_are_those_of_the_cpu() -> None:
    jobs = [Job(GNC, 2, 8, seed) for seed in range(50)]
    gpu, cpu = (measure(jobs, Settings(), device_data=True, device=device) for device in (GPU, CPU))
    for name in ("inputs", "targets", "responses"):
        assert (getattr(gpu, name).cpu() - getattr(cpu, name)).abs().max() < 1e-4, name


@each_shape
@pytest.mark.parametrize("way", forward.WAYS)
def test_every_way(shape: tuple[int, int, int, int], way: str) -> None:
    """Outputs, responses and gradients, through the graph and without one, against the loop in fp64 on the CPU."""
    expected, found = (
        passed(drawn(shape, CPU), inputs(shape, CPU).double(), forward.LOOP, torch.float64),
        passed(drawn(shape, GPU), inputs(shape, GPU), way, torch.float32),
    )
    for one, other in zip(found, expected, strict=True):
        close(one.float(), other.float())


def passed(students: Students, given: torch.Tensor, way: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    a, b, c = (values.to(dtype).requires_grad_() for values in (students.a, students.b, students.c))
    outputs, responses = forward.respond(Students(a, b, c), given, way)
    gradients = torch.autograd.grad(outputs.square().sum() + responses.sum(), (a, b, c))
    targets = torch.ones_like(outputs).detach()
    at_once = forward.losses_and_gradient(torch.stack((a, b, c)), given, targets, way)
    return tuple(values.detach() for values in (outputs, responses, *gradients, *at_once))


def test_one_set_of_sequences_for_many_guesses() -> None:
    shape = 600, 4, 24, 64
    students = drawn(shape, GPU)
    with torch.no_grad():
        given = inputs((2, 4, 24, 64), GPU)
        loop = forward.last_outputs(students, given, forward.LOOP).cpu()
        for way in forward.WAYS:
            close(forward.last_outputs(students, given, way), loop)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_gpu_while_the_first_is_current() -> None:
    second = torch.device("cuda", 1)
    students = drawn((3, 2, 19, 5), second)
    assert students.a.device == second
    close(students.b, drawn((3, 2, 19, 5), CPU).b)
