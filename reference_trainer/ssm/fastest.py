"""Finds the fastest way of the forward pass for a size and a device: measured once, and shared with other workers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Final, NamedTuple, TypeAlias

import torch

from reference_trainer.ssm import forward
from reference_trainer.ssm.forward import FFT, POWERS, SCAN
from reference_trainer.ssm.problem import Students


class Shape(NamedTuple):
    """What the choice of a way depends on."""

    students: int
    measurements: int
    length: int
    dim: int


ROUNDS: Final = 5
"""Maximum number of measurements of each way."""
ENOUGH_S: Final = 0.1
"""No further round begins after this total time: measuring delays the start of every sweep, and ways that take long
differ by more than chance."""
LARGEST_POWERS: Final = 1 << 28
"""A way that keeps the powers of a is not tried if they take more bytes: its gradient takes a multiple of that."""
AGREE: Final = 1e-3
"""Largest accepted difference of two ways in fp32, relative to the largest output or gradient. More is an error."""
Choices: TypeAlias = dict[tuple[str, bool, tuple[int, ...]], str]
"""The fastest way by device, whether with the gradient, and size as in `Shape`: plain values, which a process without
torch can receive and pass on."""
_chosen: Choices = {}
_log: Final = logging.getLogger(__name__)


def fastest(shape: tuple[int, int, int, int], device: torch.device, *, backward: bool) -> str:
    """The fastest way for students, measurements, length, dim (S, N, T, d), measured once per process and size.

    :param shape: rounded to the nearest powers of two.
    :param backward: with the gradient and a set of sequences for each student, else without and one set for all.
    """
    rounded = Shape(*(1 << round(math.log2(value)) for value in shape))
    key = str(device), backward, tuple(rounded)
    if key not in _chosen:
        _chosen[key] = _measure(rounded, device, backward=backward)
    return _chosen[key]


def choices() -> Choices:
    """The choices of this process so far."""
    return dict(_chosen)


def adopt(others: Choices) -> None:
    """Adopt the choices of another process of this machine, so that they are not measured again."""
    _chosen.update(others)


def _measure(shape: Shape, device: torch.device, *, backward: bool) -> str:
    times = seconds(_candidates(shape, device), shape, device, backward=backward)
    medians = {way: median(values) for way, values in times.items()}
    what = "a forward and backward pass" if backward else "a forward pass"
    took = ", ".join(f"{way} {1e3 * value:.3g} ms" for way, value in medians.items())
    size = " x ".join(map(str, shape))
    _log.debug("%s of %s (students x measurements x length x dimension) on %s: %s", what, size, device, took)
    return min(medians, key=medians.__getitem__)


def _candidates(shape: Shape, device: torch.device) -> list[str]:
    from reference_trainer.ssm.kernels import launch

    ways = [SCAN] if device.type == "cpu" or launch.available() else []
    bytes_of_powers = 4 * shape.students * shape.length * shape.dim
    return [*ways, POWERS, FFT] if bytes_of_powers <= LARGEST_POWERS or not ways else ways


def seconds(ways: list[str], shape: Shape, device: torch.device, *, backward: bool) -> dict[str, list[float]]:
    """How long each way takes, measured in turns after a first pass that is not counted.

    :raises RuntimeError: the ways do not agree.
    """
    parameters, inputs = _example(shape, device, backward=backward)
    with _without_tf32(device):
        _agree({way: _pass(parameters, inputs, way, backward=backward) for way in ways}, shape, device)
    if _uses_tf32(device):
        for way in ways:  # TF32 uses other kernels than the comparison above: load them before timing
            _pass(parameters, inputs, way, backward=backward)
        torch.cuda.synchronize(device)
    times: dict[str, list[float]] = {way: [] for way in ways}
    start = time.perf_counter()
    for number in range(ROUNDS):
        if number and time.perf_counter() - start >= ENOUGH_S:
            break
        for way in ways:
            began = time.perf_counter()
            _pass(parameters, inputs, way, backward=backward)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times[way].append(time.perf_counter() - began)
    return times


def _uses_tf32(device: torch.device) -> bool:
    """Whether the device multiplies fp32 matrices in TF32."""
    return device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32


@contextmanager
def _without_tf32(device: torch.device) -> Iterator[None]:
    """Disable TF32 in a context: its 10-bit mantissa makes ways differ by more than AGREE although they are correct.

    The passes that are timed use TF32 again.
    """
    if not _uses_tf32(device):
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = True


def _agree(results: Mapping[str, torch.Tensor], shape: Shape, device: torch.device) -> None:
    ways = list(results)
    first = results[ways[0]]
    for way, result in results.items():
        off = float((result - first).abs().max() / first.abs().max())
        if not off <= AGREE:
            raise RuntimeError(f"{way} and {ways[0]} differ by {off:.1e} of the largest value at {shape} on {device}")


def _example(shape: Shape, device: torch.device, *, backward: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters (3, S, d) and sequences of that shape, made without drawing from any random generator.

    No output is 0 at any size: ways that all give 0 would agree whatever they compute.
    """
    count = shape.students * shape.dim
    line = torch.arange(1, count + 1, device=device, dtype=torch.float32).div(count).view(shape.students, shape.dim)
    parameters = torch.stack((0.5 + 0.45 * line, torch.cos(line), (1 + torch.sin(5 * line)) / shape.dim))
    size = shape.students if backward else 1, shape.measurements, shape.length
    inputs = torch.cos(torch.arange(math.prod(size), device=device, dtype=torch.float32)).view(size)
    return parameters, inputs


def _pass(parameters: torch.Tensor, inputs: torch.Tensor, way: str, *, backward: bool) -> torch.Tensor:
    if not backward:
        with torch.no_grad():
            return forward.respond(Students(*parameters.unbind()), inputs, way, outputs_only=True)
    targets = torch.zeros(inputs.shape[:2], device=inputs.device)
    _, _, gradient = forward.losses_and_gradient(parameters, inputs, targets, way)
    return gradient
