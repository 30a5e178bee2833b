"""Checks of each kernel on any device: run with random numbers, compared with NumPy in float64.

They are run on the host device, in Numba's simulator of CUDA, and on a real GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import decode_token, embed, predict, recurrent_step, rewards, scan

TOLERANCE = 1e-5
"""Tolerance of results of order 1: fp32 has 1.2e-7, and sums of some hundred products lose a factor of 10 or 20."""


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def close(name: str, found: np.ndarray, expected: np.ndarray, smallest: float = 1.0) -> None:
    """Fail with the numbers where they differ by more than the tolerance times the largest value, or `smallest`."""
    error = np.abs(found - expected) / max(smallest, np.abs(expected).max())
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error[worst] <= TOLERANCE, f"{name}{list(worst)}: {found[worst]} is not {expected[worst]}"


def equal(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    assert np.array_equal(found, expected), f"{name}: {found.tolist()} is not {expected.tolist()}"


def leaky(h: np.ndarray, gate: np.ndarray, value: np.ndarray) -> np.ndarray:
    keep = 1 / (1 + np.exp(-gate))
    return keep * h + (1 - keep) * value


def embed_gathers(device: Device, random: np.random.Generator, tokens: int, width: int) -> None:
    vocabulary = 7
    table, ids = normal(random, vocabulary, width), random.integers(0, vocabulary, tokens + 1).astype(np.int32)
    x = device.zeros((tokens + 2, width))  # buffers are as long as the longest chunk
    device.launch(embed.EMBED, x, device.upload(table), device.upload(ids), tokens, width, vocabulary)
    equal("x", device.download(x), np.concatenate([table[ids[:-1]], np.zeros((2, width), np.float32)]))


def scan_carries_its_state(device: Device, random: np.random.Generator, tokens: int, width: int) -> None:
    layers, layer, calls = 3, 1, 2
    bias, state = normal(random, layers, 2 * width), normal(random, layers, width)
    modulator = np.array([0.3], np.float32)
    on_device = [device.upload(array) for array in (bias, state, modulator)]
    h = state[layer].astype(np.float64)
    for _ in range(calls):
        x, projected = normal(random, tokens, width), normal(random, tokens, 2 * width) * np.float32(3)
        buffer = device.upload(x)
        device.launch(scan.SCAN, buffer, device.upload(projected), *on_device, tokens, width, layer, layers)
        expected = np.empty((tokens, width))
        for t in range(tokens):
            total = projected[t].astype(np.float64) + bias[layer]
            h = leaky(h, total[:width] + modulator[0], total[width:])
            expected[t] = x[t] + h
        close("x", device.download(buffer), expected)
    carried = state.astype(np.float64)
    carried[layer] = h
    close("state", device.download(on_device[1]), carried)


def score_counts(device: Device, random: np.random.Generator, tokens: int, vocabulary: int) -> None:
    # small integers: many ties, and sums that are exact in fp32
    logits = random.integers(-2, 3, (tokens, vocabulary)).astype(np.float32)
    bias = random.integers(-2, 3, vocabulary).astype(np.float32)
    ids = random.integers(0, vocabulary, tokens + 1).astype(np.int32)
    expected = np.argmax(logits + bias, axis=1)  # the first of equal ones
    ids[1 : tokens // 2 + 1] = expected[: tokens // 2]
    predictions, correct = device.zeros((tokens,), "int32"), device.upload(np.array([5], np.float32))
    arguments = [device.upload(array) for array in (logits, bias, ids)]
    device.launch(predict.SCORE, predictions, correct, *arguments, tokens, vocabulary)
    equal("predictions", device.download(predictions), expected.astype(np.int32))
    equal("correct", device.download(correct), np.array([5 + np.sum(expected == ids[1:])], np.float32))


def decode_takes_the_first(device: Device, random: np.random.Generator, width: int, vocabulary: int) -> None:
    readout = random.integers(-2, 3, width).astype(np.float32)
    weight = random.integers(-1, 2, (width, vocabulary)).astype(np.float32)
    bias = random.integers(-1, 2, vocabulary).astype(np.float32)
    predictions, logits = device.zeros((3,), "int32"), device.zeros((vocabulary,))
    readouts = np.stack([readout * 0, readout])
    arguments = [device.upload(array) for array in (readouts, weight, bias)]
    device.launch(decode_token.KERNEL, predictions, *arguments, logits, width, vocabulary, 2, 1)
    expected = np.array([0, 0, np.argmax(readout @ weight + bias)], np.int32)
    equal("predictions", device.download(predictions), expected)


def compare_counts(device: Device, random: np.random.Generator, right: int, tokens: int) -> None:
    ids = random.integers(0, 9, tokens + 1).astype(np.int32)
    predictions = ids[1:] + np.int32(1)
    predictions[:right] -= np.int32(1)
    correct, on_device = device.upload(np.array([5], np.float32)), [device.upload(a) for a in (predictions, ids)]
    for t in range(tokens):
        device.launch(rewards.COMPARE, correct, *on_device, t, t)
    equal("correct", device.download(correct), np.array([5 + right], np.float32))


def step_carries_its_state(device: Device, random: np.random.Generator, layers: int, width: int) -> None:
    weights, readout_weight = normal(random, layers * width, 2 * width), normal(random, width, width)
    weights /= np.float32(np.sqrt(width))
    bias, state = normal(random, layers, 2 * width), normal(random, layers, width)
    modulator = np.array([-0.4], np.float32)
    on_device = [device.upload(array) for array in (weights, bias, readout_weight, state, modulator)]
    readouts, projected = device.zeros((3, width)), device.zeros((2 * width,))
    h = state.astype(np.float64)
    for _ in range(2):
        x = normal(random, width)
        rows = device.upload(np.stack([x * 0, x]))
        device.launch(recurrent_step.KERNEL, readouts, rows, *on_device, projected, width, layers, 2, 1)
        y = x.astype(np.float64)
        for layer in range(layers):
            total = y @ weights[layer * width : (layer + 1) * width] + bias[layer]
            h[layer] = leaky(h[layer], total[:width] + modulator[0], total[width:])
            y += h[layer]
        close("readouts", device.download(readouts), np.stack([y * 0, y * 0, y @ readout_weight]))
    close("state", device.download(on_device[3]), h)


def modulate_closes_a_chunk(device: Device, random: np.random.Generator, tokens: int, right: int) -> None:
    results, correct = device.zeros((3,)), device.upload(np.array([right], np.float32))
    modulator = device.upload(np.array([0.5], np.float32))
    device.launch(rewards.MODULATE, results, correct, modulator, tokens)
    moved = 0.9 * 0.5 + 0.1 * right / tokens
    close("results", device.download(results), np.array([1 - right / tokens, right / tokens, moved]))
    close("modulator", device.download(modulator), np.array([moved]))
    equal("correct", device.download(correct), np.zeros(1, np.float32))


def reward_adds(device: Device, random: np.random.Generator, begin: int, amount: int) -> None:
    correct, earned = (device.upload(np.array([value], np.float32)) for value in (begin, amount))
    device.launch(rewards.REWARD, correct, earned)
    equal("correct", device.download(correct), np.array([begin + amount], np.float32))


def matmul_multiplies(device: Device, random: np.random.Generator, rows: int, size: int) -> None:
    inner, columns = size, 2 * size + 1
    a, b = normal(random, rows + 2, inner), normal(random, inner, columns)
    out = device.zeros((rows + 2, columns))
    device.matmul(out, device.upload(a), device.upload(b), rows)
    expected = np.zeros((rows + 2, columns))
    expected[:rows] = a[:rows].astype(np.float64) @ b
    close("out", device.download(out), expected)


def predict_takes_the_first(device: Device, random: np.random.Generator, tokens: int, vocabulary: int) -> None:
    logits = random.integers(-2, 3, (tokens, vocabulary)).astype(np.float32)
    bias = random.integers(-2, 3, vocabulary).astype(np.float32)
    predictions = device.zeros((tokens,), "int32")
    device.launch(predict.PREDICT, predictions, device.upload(logits), device.upload(bias), tokens, vocabulary)
    equal("predictions", device.download(predictions), np.argmax(logits + bias, axis=1).astype(np.int32))


def accumulate_begins_anew(device: Device, random: np.random.Generator, tokens: int, chunks: int) -> None:
    totals, expected = device.upload(np.array([7, 7], np.float32)), np.zeros(2)
    for number in range(chunks):
        results = normal(random, 3)
        device.launch(rewards.ACCUMULATE, totals, device.upload(results), tokens, int(number == 0))
        expected += results[:2].astype(np.float64) * tokens
    close("totals", device.download(totals), expected)


Check = Callable[[Device, np.random.Generator, int, int], None]
Case = tuple[Check, int, int]


def table(*rows: tuple) -> list[Case]:
    """The cases of rows that consist of a check and its sizes."""
    return [(check, *size) for check, *sizes in rows for size in sizes]


FEW = table(
    (embed_gathers, (1, 1), (3, 5)),
    (scan_carries_its_state, (1, 1), (35, 3), (2, 40)),
    (score_counts, (1, 1), (9, 11), (2, 300)),
    (decode_takes_the_first, (1, 1), (3, 11), (4, 300)),
    (step_carries_its_state, (1, 1), (3, 5)),
    (modulate_closes_a_chunk, (7, 3)),
    (reward_adds, (3, 1)),
    (compare_counts, (2, 3)),
    (predict_takes_the_first, (1, 1), (3, 300)),
    (accumulate_begins_anew, (7, 3)),
    (matmul_multiplies, (3, 4)),
)
"""Small enough for the simulator, where every CUDA thread is one of Python."""

MANY: list[Case] = [
    *FEW,
    *((embed_gathers, tokens, width) for tokens in (2, 100) for width in (31, 64, 257)),
    *((scan_carries_its_state, tokens, width) for tokens in (15, 16, 17, 100) for width in (1, 2, 31, 64, 130)),
    *((score_counts, tokens, vocabulary) for tokens in (1, 33) for vocabulary in (2, 8, 31, 256, 1000)),
    *((decode_takes_the_first, width, vocabulary) for width in (2, 33, 128) for vocabulary in (2, 31, 256, 1000)),
    *((step_carries_its_state, layers, width) for layers in (1, 4) for width in (2, 31, 64, 130)),
    *((modulate_closes_a_chunk, tokens, right) for tokens, right in ((1, 0), (1, 1), (3000, 1234))),
    *((matmul_multiplies, rows, size) for rows in (1, 31) for size in (1, 7, 64)),
]


def name(case: Case) -> str:
    return f"{case[0].__name__}-{case[1]}x{case[2]}"


def run(device: Device, case: Case) -> None:
    """Do one check; the random numbers depend on its sizes only."""
    check, first, second = case
    check(device, np.random.default_rng((first, second)), first, second)
