"""Runs the CUDA kernels in Numba's simulator, launched as on a GPU; prints a JSON line a check.

A program of its own: NUMBA_ENABLE_CUDASIM=1 must be set before Numba is imported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from reference_trainer.ssm import draws, forward
from reference_trainer.ssm.kernels import launch
from reference_trainer.ssm.problem import GNC, Job, Students
from tests.reference_trainer.ssm.forward_reference import CPU, case, found

JOBS = [Job(GNC, 2, 7, seed) for seed in (3, 2**62)]


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Launch as on a GPU, on tensors of the CPU."""
    usual, launch.on_host = launch.on_host, lambda device: False
    try:
        yield
    finally:
        launch.on_host = usual


def agree(work: Callable[[], tuple[torch.Tensor, ...]], tolerance: float) -> None:
    """Compare the results of the CUDA kernels with those of the host."""
    expected = work()
    with as_on_a_gpu():
        arguments = work()
    for item, another in zip(arguments, expected, strict=True):
        torch.testing.assert_close(item, another, atol=tolerance, rtol=tolerance)


def normals(columns: int) -> tuple[torch.Tensor, ...]:
    out = torch.full((2, columns), torch.nan)
    draws.fill_normals([draws.inputs(job) for job in JOBS], out)
    return (out,)


def students(dim: int) -> tuple[torch.Tensor, ...]:
    jobs = [job._replace(dim=dim) for job in JOBS]
    drawn = draws.guesses(jobs, 2**33, 3, device_data=True, device=CPU)
    return drawn.a, drawn.b, drawn.c


def response(shape: tuple[int, int, int, int], sets: int) -> tuple[torch.Tensor, ...]:
    arguments, inputs = case(shape, sets=sets)
    return tuple(map(torch.from_numpy, found(arguments, inputs, forward.SCAN)))


def epoch() -> tuple[torch.Tensor, ...]:
    arguments, inputs = case((4, 2, 19, 5), sets=2)
    parameters = torch.stack((arguments.a, arguments.b, arguments.c)).detach()
    return forward.losses_and_gradient(parameters, inputs, torch.ones(4, 2), forward.SCAN)


def diverged() -> tuple[torch.Tensor, ...]:
    """Use a above 1, below 0 and at 0."""
    a = torch.tensor([[-0.9, 0.0, 1.1]])
    out = forward.respond(Students(a, torch.ones(1, 3), torch.ones(1, 3)), torch.ones(1, 1, 35), forward.SCAN)
    return tuple(out)


CHECKS: dict[str, Callable[[], None]] = {
    **{f"normals {n}": lambda n=n: agree(lambda: normals(n), 1e-6) for n in (1, 2, 3, 4, 77)},
    **{f"students {dim}": lambda dim=dim: agree(lambda: students(dim), 1e-6) for dim in (1, 2, 3, 4, 9)},
    **{
        f"scan {shape} {sets}": lambda shape=shape, sets=sets: agree(lambda: response(shape, sets), 1e-4)
        for shape, sets in (((1, 1, 1, 1), 1), ((2, 2, 16, 3), 2), ((4, 2, 19, 5), 2), ((1, 1, 35, 131), 1))
    },
    "epoch": lambda: agree(epoch, 1e-5),
    "scan beyond 1": lambda: agree(diverged, 1e-5),
}

if __name__ == "__main__":
    from tests.reference_trainer.kernels.simulate import hasten, report

    hasten()
    warnings.filterwarnings("ignore", message="overflow encountered")  # words wrap round
    for name, check in CHECKS.items():
        report(name, check)
