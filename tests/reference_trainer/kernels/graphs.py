"""Checks that a captured graph of kernels does the same as its launches one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.devices.cuda_memory import CudaBuffer
from reference_trainer.kernels import adamw, grad_norm, scan
from tests.reference_trainer.kernels import checks

STEPS = 4


def replays_are_launches(device: CudaDevice, tokens: int, width: int) -> None:
    """A scan that carries its state, the norm of what it left and AdamW: STEPS times by launches and by replays.

    The graph has scratch memory, a state of its own on the device, and kernels that launch several.
    """
    expected_buffers, launch_once = stepper(device, tokens, width)
    for _ in range(STEPS):
        launch_once()
    found_buffers, launch_once = stepper(device, tokens, width)
    launch_once()
    before = device.counts()
    graph = device.capture(launch_once)
    for _ in range(STEPS - 1):
        device.replay(graph)
    after = device.counts()
    assert after.launches - before.launches == STEPS - 1
    assert after.allocations == before.allocations
    assert graph.launches > 3, f"{graph.launches} launches: kernels that launch several were meant to be in it"
    for name, result, expected in zip(("y", "state", "params", "step"), found_buffers, expected_buffers, strict=True):
        checks.equal(name, device.download(result), device.download(expected))


def stepper(device: CudaDevice, tokens: int, width: int) -> tuple[tuple[CudaBuffer, ...], Callable[[], None]]:
    """(y, state, params, step_state), and what takes a step: the scan's output is the gradient."""
    random = np.random.default_rng((tokens, width))
    shapes = (tokens, width), (tokens, 2 * width), (1, 2 * width), (1, width)
    x, projected, bias, state = (device.upload(checks.normal(random, *shape)) for shape in shapes)
    y, hidden, saved = (device.zeros(shape) for shape in ((tokens, width), (tokens, width), (1, width)))
    size = tokens * width
    params, m, v, norm = (device.zeros((length,)) for length in (size, size, size, 1))
    grads = y.view(0, (size,))
    step_state = device.upload(np.array([0, 3e-2, 0.9, 0.99, 1e-6, 0.1, 2, 5, 0.05, 2, 0, 0], np.float32))

    def step() -> None:
        arrays = y, x, projected, bias, state, saved, hidden
        device.launch(scan.KEEPING, *arrays, tokens, width, 0, 1)
        device.launch(grad_norm.KERNEL, norm, grads, size)
        device.launch(adamw.KERNEL, params, grads, m, v, norm, step_state, size, size)

    return (y, state, params, step_state), step
