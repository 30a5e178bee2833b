"""The kernels of learning against torch in fp64: its autograd, its AdamW, its clipping, its schedules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels import adamw, cross_entropy, grad_norm, scan_backward
from tests.reference_trainer.kernels import checks, checks_backward

STEPS = 20
FACTS = (0.0, 3e-2, 0.9, 0.999, 1e-8, 0.1, 4.0, 18.0, 0.05, 2.0, 0.0, 0.0)


def layer(projected: torch.Tensor, bias: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """h (T, D), plainly."""
    states, h = [], state
    for total in projected + bias:
        gate, value = total.chunk(2)
        keep = torch.sigmoid(gate)
        h = keep * h + (1 - keep) * value
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (1, 3), (23, 5)])
def test_scan_backward_is_autograds(device: HostDevice, tokens: int, width: int) -> None:
    generator = torch.Generator().manual_seed(tokens)
    shapes = (tokens, 2 * width), (1, 2 * width), (1, width), (tokens, width)
    projected, bias, state, grad = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    hidden = layer(projected.requires_grad_(), bias.requires_grad_(), state[0])
    expected = torch.autograd.grad(hidden, (projected, bias), grad)
    inputs = [device.upload(tensor.detach().float().numpy()) for tensor in (grad, projected, bias, hidden, state)]
    dprojected, dbias = device.zeros((tokens, 2 * width)), device.zeros((1, 2 * width))
    device.launch(scan_backward.KERNEL, dprojected, *inputs, dbias, tokens, width, 0, 1)
    for name, buffer, gradient in zip(("dprojected", "dbias"), (dprojected, dbias), expected, strict=True):
        checks.close(name, device.download(buffer), gradient.numpy())


@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 1), (1, 5), (6, 5), (3, 33)])
def test_cross_entropy_is_torchs(device: HostDevice, tokens: int, vocabulary: int) -> None:
    random = np.random.default_rng((tokens, vocabulary))
    logits, bias = (torch.from_numpy(random.standard_normal(shape)) for shape in ((tokens, vocabulary), vocabulary))
    ids = random.integers(0, vocabulary, tokens + 1).astype(np.int32)
    buffers = device.upload(logits.float().numpy()), device.upload(bias.float().numpy()), device.empty((vocabulary,))
    losses, predictions = device.empty((tokens,)), device.empty((tokens,), "int32")
    sizes = 0, tokens, tokens, vocabulary
    device.launch(cross_entropy.KERNEL, *buffers, losses, predictions, device.upload(ids), *sizes)
    following = torch.from_numpy(ids[1:]).long()
    expected = torch.nn.functional.cross_entropy(logits.requires_grad_() + bias.requires_grad_(), following)
    checks.close("losses", device.download(losses).mean(keepdims=True), expected.detach().numpy()[None])
    for buffer, gradient in zip(buffers[::2], torch.autograd.grad(expected, (logits, bias)), strict=True):
        checks.close("gradient", device.download(buffer), gradient.numpy())


def rate_at(step: int) -> float:
    """The learning rate of a step, from 1, by its definition."""
    return checks_backward.rate_at(np.array(FACTS), step)


def test_adamw_is_torchs(device: HostDevice) -> None:
    """Norm, clipping and update, over 20 steps of warm-up, cosine and its end; within 1e-5."""
    size, decayed, random = 40, 25, np.random.default_rng(0)
    start = random.standard_normal(size)
    tensors = [torch.tensor(part, requires_grad=True) for part in (start[:decayed], start[decayed:])]
    groups = [{"params": tensors[:1], "weight_decay": FACTS[adamw.WEIGHT_DECAY]}, {"params": tensors[1:]}]
    betas = FACTS[adamw.BETA1], FACTS[adamw.BETA2]
    optimizer = torch.optim.AdamW(groups, betas=betas, eps=FACTS[adamw.EPS], weight_decay=0)
    params, grads, m, v = (device.upload(array.astype(np.float32)) for array in (start, *np.zeros((3, size))))
    norm, state = device.zeros((1,)), device.upload(np.array(FACTS, np.float32))
    clipped = 0
    for step in range(1, STEPS + 1):
        gradient = random.standard_normal(size) * random.choice([0.01, 1])
        device.upload_into(grads, gradient.astype(np.float32))
        device.launch(grad_norm.KERNEL, norm, grads, size)
        device.launch(adamw.KERNEL, params, grads, m, v, norm, state, size, decayed)
        for tensor, part in zip(tensors, (gradient[:decayed], gradient[decayed:]), strict=True):
            tensor.grad = torch.tensor(part)
        expected_norm = torch.nn.utils.clip_grad_norm_(tensors, FACTS[adamw.LARGEST_NORM]).item()
        clipped += expected_norm > FACTS[adamw.LARGEST_NORM]
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        optimizer.step()
        result, expected = device.download(params), np.concatenate([tensor.detach().numpy() for tensor in tensors])
        assert np.abs(result - expected).max() < 1e-5, f"step {step}: {result} is not {expected}"
        facts = device.download(state)
        assert facts[[adamw.STEP, adamw.LAST_RATE, adamw.NORM]] == pytest.approx([step, rate_at(step), expected_norm])
    assert 0 < clipped < STEPS, f"{clipped} of {STEPS} steps were clipped: both ways must be held"


def test_the_schedule_is_torchs() -> None:
    """Linear warm-up to the highest rate, then a cosine to its least share: as PyTorch's own schedulers do."""
    warmup, total, smallest = (int(FACTS[i]) if i != adamw.LEAST_SHARE else FACTS[i] for i in (6, 7, adamw.LEAST_SHARE))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=FACTS[adamw.RATE])
    highest = FACTS[adamw.RATE]
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warmup, eta_min=smallest * highest)
    for step in range(warmup, total + 1):
        assert rate_at(step) == pytest.approx(cosine.get_last_lr()[0], rel=1e-12), f"step {step}"
        optimizer.step()
        cosine.step()
    assert [rate_at(step) / highest for step in range(1, warmup)] == pytest.approx(np.arange(1, warmup) / warmup)
    assert rate_at(total + 5) == pytest.approx(smallest * highest)
