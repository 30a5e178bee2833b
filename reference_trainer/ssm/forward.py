"""A student's forward pass, in two equivalent ways: outputs for sequences, and the impulse response.

loop      is as found: a Python loop over time makes new tensors at each step, once for the sequences and again
          for the impulse; it combines parameters in fp32 with inputs in fp64
scan      computes the recurrence over time in one compiled kernel, and its gradient in another (kernels/scan.py),
          in the dtype of the students
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch

from reference_trainer.ssm.problem import Students

LOOP: Final = "loop"
SCAN: Final = "scan"
WAYS: Final = (LOOP, SCAN)


def respond(students: Students, inputs: torch.Tensor, way: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of students at the end of sequences, (S, N), and their impulse responses, (S, T).

    :param students: (S, d); the results can be differentiated with respect to a, b and c.
    :param inputs: (S, N, T), or (J, N, T) with S a multiple of J: the first S / J students get the first sequences,
        and so on; an expanded (S, N, T) counts as (1, N, T). They are not differentiated.
    :param way: one of WAYS. With `loop` the dtypes differ, and the result has the wider one.
    """
    if way == LOOP:
        return last_outputs(students, inputs, way), _impulse_response(students, inputs)
    inputs = (inputs[:1] if inputs.stride(0) == 0 else inputs).to(students.a.dtype)
    graph = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in students)
    return _Scan.apply(*students, inputs) if graph else _scan(*students, inputs)


def last_outputs(students: Students, inputs: torch.Tensor, way: str) -> torch.Tensor:
    """The outputs alone: with `loop` that saves one pass."""
    if way != LOOP:
        return respond(students, inputs, way)[0]
    if 1 < len(inputs) < len(students.a):
        inputs = inputs.repeat_interleave(len(students.a) // len(inputs), 0)
    for h in _states(students, inputs):  # noqa: B007 - nothing uses earlier outputs
        pass
    return _read_out(students, h)


def losses_and_gradient(
    parameters: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor, way: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The work of one epoch: mean squared errors (S,), outputs (S, N), and the errors' gradient (3, S, d).

    For `scan` it is one kernel without a graph: for small students it takes less time than building the autograd graph.

    :param parameters: (3, S, d): a, b and c, contiguous.
    :param inputs: as in `respond`, (J, N, T).
    :param targets: (S, N).
    """
    if way != SCAN:
        leaf = parameters.detach().requires_grad_()
        with torch.enable_grad():
            outputs = last_outputs(Students(*leaf.unbind()), inputs, way)
            losses = (outputs - targets).square().mean(-1)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), outputs.detach(), gradient
    return _fused(parameters.detach(), inputs.to(parameters.dtype), targets.to(parameters.dtype))


# ------------------------------------------------------------ as found


def _states(students: Students, inputs: torch.Tensor) -> Iterator[torch.Tensor]:
    """The states (S, N, d) after each time step."""
    a, b = students.a[:, None], students.b[:, None]
    h = torch.zeros(len(students.a), inputs.shape[1], students.a.shape[1], device=inputs.device)
    for t in range(inputs.shape[2]):
        h = a * h + b * inputs[:, :, t, None]
        yield h


def _read_out(students: Students, h: torch.Tensor) -> torch.Tensor:
    """The outputs y (S, N) of one time step."""
    return (students.c[:, None] * h).sum(-1)


def _impulse_response(students: Students, inputs: torch.Tensor) -> torch.Tensor:
    """The outputs at all times for an impulse that is made on the host and copied."""
    impulse = torch.zeros(1, 1, inputs.shape[2], dtype=inputs.dtype)
    impulse[:, :, 0] = 1
    states = _states(students, impulse.to(inputs.device))
    return torch.stack([_read_out(students, h)[:, 0] for h in states], -1)


# ------------------------------------------------------------ the kernel


def _apply_response(inputs: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
    """The outputs (S, N): the sum over time of each sequence, its latest value first, times the response."""
    weights = responses.flip(1).view(len(inputs), -1, responses.shape[1])
    return (weights @ inputs.transpose(1, 2)).view(len(responses), -1)


def _scan(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and responses without autograd: the caller handles gradients."""
    from reference_trainer.ssm.kernels import launch, scan

    a, b, c, inputs = a.contiguous(), b.contiguous(), c.contiguous(), inputs.contiguous()
    students, channels = a.shape
    _, sequences, length = inputs.shape
    responses = a.new_empty(students, length)
    if launch.on_host(a.device):
        outputs = a.new_empty(students, sequences)
        scan.host_responses(*launch.arrays(responses, outputs, a, b, c, inputs))
        return outputs, responses
    tiles = -(-length // scan.TILE)
    launch.launch(scan.response_block, students * tiles, scan.THREADS, responses, a, b, c, channels, length, tiles)
    return _apply_response(inputs, responses), responses


def _fused(
    parameters: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`losses_and_gradient` by `scan`: by one kernel on the host, by two kernels and two matrix products on a GPU."""
    from reference_trainer.ssm.kernels import launch, scan

    gradient = torch.empty_like(parameters)
    if launch.on_host(parameters.device):
        losses, outputs = parameters.new_empty(len(targets)), torch.empty_like(targets)
        arguments = losses, outputs, gradient, parameters, inputs.contiguous(), targets.contiguous()
        scan.host_losses(*launch.arrays(*arguments))
        return losses, outputs, gradient
    a, b, c = parameters.unbind()
    outputs, _ = _scan(a, b, c, inputs)
    errors = outputs - targets
    weights = _response_gradient(errors * (2 / errors.shape[1]), inputs)
    _gradients_on_gpu(gradient, (a, b, c), weights)
    return errors.square().mean(-1), outputs, gradient


def _response_gradient(doutputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """dL/dk (S, T) from dL/dy (S, N): the sequences, their latest values first, weighted by dL/dy."""
    weighted = doutputs.reshape(len(inputs), -1, inputs.shape[1]) @ inputs
    return weighted.reshape(len(doutputs), -1).flip(1)


def _gradients_on_gpu(gradient: torch.Tensor, parts: tuple[torch.Tensor, ...], weights: torch.Tensor) -> None:
    """Compute the gradient (3, S, d); `parts` are a, b and c, `weights` is dL/dk (S, T)."""
    from reference_trainer.ssm.kernels import launch, scan

    _, students, channels = gradient.shape
    grid = -(-students * channels // scan.THREADS)
    sizes = students, channels, weights.shape[1]
    launch.launch(scan.response_gradients, grid, scan.THREADS, *gradient.unbind(), *parts, weights, *sizes)


class _Scan(torch.autograd.Function):
    """The kernels of kernels/scan.py as an operation of the autograd graph."""

    @staticmethod
    def forward(
        ctx: Any, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        a, b, c, inputs = (tensor.detach().contiguous() for tensor in (a, b, c, inputs))
        ctx.save_for_backward(a, b, c, inputs)
        return _scan(a, b, c, inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, doutputs: torch.Tensor, dresponses: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        from reference_trainer.ssm.kernels import launch, scan

        a, b, c, inputs = ctx.saved_tensors
        gradient = torch.empty((3, *a.shape), dtype=a.dtype, device=a.device)
        da, db, dc = gradient.unbind()
        if launch.on_host(a.device):
            arguments = (da, db, dc, a, b, c, inputs, dresponses.contiguous(), doutputs.contiguous())
            scan.host_gradients(*launch.arrays(*arguments))
        else:
            _gradients_on_gpu(gradient, (a, b, c), dresponses + _response_gradient(doutputs, inputs))
        return da, db, dc, None
