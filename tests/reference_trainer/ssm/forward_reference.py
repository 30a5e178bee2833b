"""The forward pass and its gradients in NumPy and fp64, from their definitions: the reference of every way."""

from __future__ import annotations

import numpy as np
import torch

from reference_trainer.ssm import draws, forward
from reference_trainer.ssm.problem import GNC, Job, Students

CPU = torch.device("cpu")
NAMES = ("outputs", "responses", "da", "db", "dc")
"""Names of the results of `reference` and `found`."""


def case(shape: tuple[int, int, int, int], *, sets: int | None = None, dtype: torch.dtype = torch.float32) -> tuple:
    """Students that require a gradient, and inputs (sets, N, T) in fp64, which is what they are as found."""
    count, measurements, length, dim = shape
    drawn = draws.guesses([Job(GNC, 1, dim, 1)], 0, count, device_data=True, device=CPU)
    students = Students(*(values.to(dtype).requires_grad_() for values in (drawn.a, drawn.b, drawn.c)))
    size = sets or count, measurements, length
    return students, torch.from_numpy(np.random.default_rng(1).standard_normal(size))


def reference(students: Students, inputs: torch.Tensor) -> tuple[np.ndarray, ...]:
    """Run the model step by step in fp64: outputs, responses, and the gradient of a sum of them.

    With L = sum y^2 / 2 + sum_t (t + 1) k_t: dL/dy = y and dL/dk_t = t + 1.
    """
    a, b, c = (values.detach().double().numpy() for values in (students.a, students.b, students.c))
    x = np.repeat(inputs.double().numpy(), len(a) // len(inputs), axis=0)
    length = x.shape[2]
    h = np.zeros((*x.shape[:2], a.shape[1]))
    for t in range(length):
        h = a[:, None] * h + b[:, None] * x[:, :, t, None]
    y = (h * c[:, None]).sum(-1)
    t = np.arange(length)
    powers = a[:, :, None] ** t
    k = ((b * c)[:, :, None] * powers).sum(1)
    w = t + 1 + np.einsum("sn,snt->st", y, x[:, :, ::-1])
    slopes = t * a[:, :, None] ** np.maximum(t - 1, 0)
    da = b * c * np.einsum("sdt,st->sd", slopes, w)
    shared = np.einsum("sdt,st->sd", powers, w)
    return y, k, da, c * shared, b * shared


def found(students: Students, inputs: torch.Tensor, way: str) -> tuple[np.ndarray, ...]:
    outputs, responses = forward.respond(students, inputs, way)
    times = torch.arange(1, responses.shape[1] + 1)
    gradients = torch.autograd.grad(
        outputs.square().sum() / 2 + (times * responses).sum(), (students.a, students.b, students.c)
    )
    return tuple(values.detach().double().numpy() for values in (outputs, responses, *gradients))
