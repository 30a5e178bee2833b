"""Gradients of the scan and of the fused loss, on the host device in fp64, against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels import cross_entropy, scan_backward, scan_learn


def upload(device: HostDevice, tensor: torch.Tensor) -> Any:
    return device.upload(tensor.detach().contiguous().numpy())


def scan_function(device: HostDevice) -> Any:
    """The scan with its gradient as an autograd function: (x, projected, bias) -> y, from a state that is given."""

    class Scan(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, projected: torch.Tensor, bias: torch.Tensor, state: np.ndarray) -> Any:
            tokens, width = x.shape
            ctx.sizes = tokens, width, 0, 1
            y, hidden, saved = (device.empty(shape) for shape in (x.shape, x.shape, state.shape))
            ctx.buffers = upload(device, projected), upload(device, bias[None]), hidden, saved
            inputs = upload(device, x), *ctx.buffers[:2], device.upload(state)
            device.launch(scan_learn.KERNEL, y, *inputs, saved, hidden, *ctx.sizes)
            return torch.from_numpy(device.download(y))

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            tokens, width = ctx.sizes[:2]
            dprojected, dbias = device.empty((tokens, 2 * width)), device.empty((1, 2 * width))
            projected, bias, hidden, saved = ctx.buffers
            above = upload(device, grad)
            device.launch(scan_backward.KERNEL, dprojected, above, projected, bias, hidden, saved, dbias, *ctx.sizes)
            result = (torch.from_numpy(device.download(buffer)) for buffer in (dprojected, dbias))
            dprojected, dbias = result
            return grad, dprojected, dbias[0], None

    return Scan.apply


def loss_function(device: HostDevice) -> Any:
    """The fused loss with its gradient as an autograd function: (logits, bias) -> mean cross-entropy."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: torch.Tensor, bias: torch.Tensor, ids: np.ndarray) -> Any:
            tokens, vocabulary = logits.shape
            buffers = upload(device, logits), upload(device, bias), device.empty((vocabulary,))
            losses, predictions = device.empty((tokens,)), device.empty((tokens,), "int32")
            sizes = 0, tokens, tokens, vocabulary
            device.launch(cross_entropy.KERNEL, *buffers, losses, predictions, device.upload(ids), *sizes)
            ctx.save_for_backward(*(torch.from_numpy(device.download(buffers[index])) for index in (0, 2)))
            return torch.from_numpy(device.download(losses)).mean()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            dlogits, dbias = ctx.saved_tensors
            return grad * dlogits, grad * dbias, None

    return Loss.apply


def numbers(random: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal(shape)).requires_grad_()


@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (1, 3), (7, 3), (35, 2)])
def test_gradient_of_the_scan(double: HostDevice, tokens: int, width: int) -> None:
    random = np.random.default_rng((tokens, width))
    inputs = [numbers(random, *shape) for shape in ((tokens, width), (tokens, 2 * width), (2 * width,))]
    assert torch.autograd.gradcheck(scan_function(double), (*inputs, random.standard_normal((1, width))))


@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 1), (1, 5), (6, 5), (3, 33)])
def test_gradient_of_the_fused_loss(double: HostDevice, tokens: int, vocabulary: int) -> None:
    random = np.random.default_rng((tokens, vocabulary))
    inputs = numbers(random, tokens, vocabulary), numbers(random, vocabulary)
    ids = random.integers(0, vocabulary, tokens + 1).astype(np.int32)
    assert torch.autograd.gradcheck(loss_function(double), (*inputs, ids))


def test_a_wrong_gradient_is_seen(double: HostDevice) -> None:
    """The check itself: the value of one loss with the gradient of another does not pass."""
    random = np.random.default_rng(1)
    apply, ids = loss_function(double), random.integers(0, 5, (2, 5)).astype(np.int32)

    def mixed(logits: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        value, another = (apply(logits, bias, each) for each in ids)
        return value.detach() + another - another.detach()

    assert not torch.autograd.gradcheck(mixed, (numbers(random, 4, 5), numbers(random, 5)), raise_exception=False)
