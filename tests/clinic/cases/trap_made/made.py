"""A training on batches that NumPy makes: in functions that the loop calls, or in a generator that it reads.

`--ill` makes them while the model trains, or computes statistics after each step; `--cured` trains on batches that were
made before, with rare statistics. Without either it is healthy: NumPy chooses rows, or is a layer of the model.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SAMPLES, RATE, BATCH, KEPT = 2048, 8000, 16, 16


def sweep(rng, count):
    """Tones whose pitch rises or falls, with noise."""
    seconds = np.arange(SAMPLES) / RATE
    slope = rng.choice([-400.0, 400.0], (count, 1))
    tones = np.sin(2 * np.pi * (900.0 + slope * seconds) * seconds)  # ill: inline-input
    return tones + 0.2 * rng.standard_normal(tones.shape), (slope[:, 0] > 0).astype(np.int64)  # ill: inline-input


def features(waves):
    frames = np.lib.stride_tricks.sliding_window_view(waves, 256, axis=1)[:, ::32] * np.hanning(256)
    return np.log1p(np.abs(np.fft.rfft(frames, axis=-1))).astype(np.float32)  # ill: inline-input


def make(rng):
    waves, labels = sweep(rng, BATCH)  # ill: inline-input
    return torch.from_numpy(features(waves)), torch.from_numpy(labels)  # ill: inline-input


class Averaged(torch.autograd.Function):
    """A layer that NumPy computes."""

    @staticmethod
    def forward(_, x):
        lengths = np.arange(1, x.shape[1] + 1, dtype=np.float32)
        return torch.from_numpy(np.tanh(np.cumsum(x.numpy(), axis=1) / lengths[:, None]))

    @staticmethod
    def backward(_, gradient):
        return gradient


def quartiles(states):
    return np.percentile(states.numpy(), (25, 50, 75), axis=(0, 1))  # ill: work-after-update


def train_on_sound(steps, ill, is_cured, has_numpy_layer):
    rng = np.random.default_rng(0)
    kept = [make(rng) for _ in range(KEPT)]
    lift, head = nn.Linear(129, 192), nn.Linear(192, 2)
    optimizer = torch.optim.SGD([*lift.parameters(), *head.parameters()], lr=0.05)
    for step in range(steps):
        if step == steps // 5:
            began, cpu = time.perf_counter(), time.process_time()
        if "inline-input" in ill:
            inputs, labels = make(rng)  # ill: inline-input
        else:
            inputs, labels = kept[step % KEPT if is_cured else int(rng.integers(KEPT))]
        hidden = F.relu(lift(inputs))
        if has_numpy_layer:
            hidden = Averaged.apply(hidden)
        loss = F.cross_entropy(head(hidden.mean(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if "work-after-update" in ill or step % 100 == 0:
            quartiles(hidden.detach())  # ill: work-after-update
    print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


def images(makes):
    """Endless batches of blurred noise with the width of the blur as the target."""
    rng, square = np.random.default_rng(1), np.fft.fftfreq(32) ** 2
    distance = square[:, None] + square[None]

    def blurred():
        width = rng.uniform(2.0, 9.0, (BATCH, 1, 1, 1))
        spectrum = np.fft.fft2(rng.standard_normal((BATCH, 3, 32, 32)))  # ill: inline-input
        return np.fft.ifft2(spectrum * np.exp(-width * width * distance)).real, width  # ill: inline-input

    kept = [blurred() for _ in range(KEPT)]
    while True:
        for number in range(KEPT):
            pixels, width = blurred() if makes else kept[number]  # ill: inline-input
            yield torch.tensor(pixels, dtype=torch.float32), torch.tensor(width[:, 0, 0], dtype=torch.float32)


def train_on_images(steps, makes):
    layers = nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(768, 1)
    net = nn.Sequential(*layers)
    adam = torch.optim.Adam(net.parameters(), fused=True)
    for step, (pixels, width) in enumerate(images(makes)):  # ill: inline-input
        if step == steps // 5:
            began, cpu = time.perf_counter(), time.process_time()
        if step == steps:
            break
        adam.zero_grad()
        F.mse_loss(net(pixels), width).backward()
        adam.step()
    print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--ill", action="append", default=[])
parser.add_argument("--cured", action="append", default=[])
parser.add_argument("--style", choices=("function", "generator", "layer"), default="function")
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
if args.style == "generator":
    train_on_images(args.steps, bool(args.ill))
else:
    train_on_sound(args.steps, args.ill, bool(args.cured), args.style == "layer")
