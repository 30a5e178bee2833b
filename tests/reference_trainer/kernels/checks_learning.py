"""Checks of the loss, the embedding's gradient and the metrics of learning on any device, against NumPy in float64."""

from __future__ import annotations

import numpy as np

from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import adamw, cross_entropy, embed, rewards
from tests.reference_trainer.kernels.checks import Case, close, equal, normal, table

GUARD = 7.0
"""The values behind the rows of a kernel, which must not change."""


def cross_entropy_by_tiles(device: Device, random: np.random.Generator, tokens: int, vocabulary: int) -> None:
    """Two tiles, the second often shorter: losses, predictions, gradients, and column sums over both."""
    logits, bias = normal(random, tokens, vocabulary) * np.float32(3), normal(random, vocabulary)
    if vocabulary > 2:
        logits[0] = 2 - bias + np.float32(40) * (bias == bias.min())  # a sure token: all others vanish beside it
    ids = random.integers(0, vocabulary, tokens + 1).astype(np.int32)
    total = logits.astype(np.float64) + bias
    terms = np.exp(total - total.max(1, keepdims=True))
    share = terms / terms.sum(1, keepdims=True)
    rows = np.arange(tokens)
    gradient = (share - (ids[1:, None] == np.arange(vocabulary))) / tokens

    on_device, dbias = device.upload(bias), device.upload(np.full(vocabulary, GUARD, np.float32))
    losses, predictions = device.zeros((tokens + 1,)), device.zeros((tokens + 1,), "int32")
    half = -(-tokens // 2)
    for begin in range(0, tokens, half):
        end = min(begin + half, tokens)
        tile = np.full((half + 1, vocabulary), GUARD, np.float32)
        tile[: end - begin] = logits[begin:end]
        buffer = device.upload(tile)
        sizes = begin, end - begin, tokens, vocabulary
        device.launch(cross_entropy.KERNEL, buffer, on_device, dbias, losses, predictions, device.upload(ids), *sizes)
        tile[: end - begin] = gradient[begin:end] * tokens
        result = device.download(buffer)
        result[: end - begin] *= tokens  # of order 1, so that the tolerance means something
        close("gradient", result, tile)
    close("losses", device.download(losses), np.append(-np.log(share[rows, ids[1:]]), 0))
    close("dbias", device.download(dbias), gradient.sum(0))
    predicted = total[rows, device.download(predictions)[:tokens]]
    assert np.all(predicted >= total.max(1) - 1e-4), f"predictions: {predicted} are not the largest, {total.max(1)}"


def cross_entropy_takes_the_first(device: Device, random: np.random.Generator, tokens: int, vocabulary: int) -> None:
    """Small integers: many equal logits, and sums of logit and bias that are exact."""
    logits = random.integers(-2, 3, (tokens, vocabulary)).astype(np.float32)
    bias = random.integers(-2, 3, vocabulary).astype(np.float32)
    ids = random.integers(0, vocabulary, tokens + 1).astype(np.int32)
    losses, predictions = device.zeros((tokens,)), device.zeros((tokens,), "int32")
    buffers = [device.upload(array) for array in (logits, bias, np.zeros(vocabulary, np.float32))]
    sizes = 0, tokens, tokens, vocabulary
    device.launch(cross_entropy.KERNEL, *buffers, losses, predictions, device.upload(ids), *sizes)
    equal("predictions", device.download(predictions), np.argmax(logits + bias, axis=1).astype(np.int32))


def embed_backward_adds(device: Device, random: np.random.Generator, tokens: int, width: int) -> None:
    """Tokens that come often, once and never."""
    vocabulary = 7
    grad, ids = normal(random, tokens + 2, width), random.integers(0, vocabulary - 2, tokens + 1).astype(np.int32)
    ids[tokens // 2] = vocabulary - 2
    table = device.upload(np.full((vocabulary, width), GUARD, np.float32))
    arguments = device.upload(grad), device.upload(ids)
    device.launch(embed.BACKWARD, table, *arguments, tokens, width, vocabulary)
    expected = np.zeros((vocabulary, width))
    np.add.at(expected, ids[:tokens], grad[:tokens])
    result = device.download(table)
    close("dtable", result, expected)
    device.launch(embed.BACKWARD, table, *arguments, tokens, width, vocabulary)
    equal("dtable, again", device.download(table), result)


def learned_sums_up(device: Device, random: np.random.Generator, tokens: int, right: int) -> None:
    losses = random.exponential(size=tokens + 2).astype(np.float32)
    predictions = random.integers(0, 50, tokens + 2).astype(np.int32)
    ids = np.append(-1, predictions)
    ids[1 + right : tokens + 1] += 1
    state = np.zeros(12, np.float32)
    state[[adamw.LAST_RATE, adamw.NORM]] = 0.25, 3
    results = device.zeros((4,))
    buffers = [device.upload(array) for array in (losses, predictions, ids.astype(np.int32), state)]
    device.launch(rewards.LEARNED, results, *buffers, tokens)
    expected = [losses[:tokens].astype(np.float64).mean(), right / tokens, 0.25, 3]
    close("results", device.download(results), np.array(expected))


FEW = table(
    (cross_entropy_by_tiles, (1, 1), (5, 11), (2, 300)),
    (cross_entropy_takes_the_first, (9, 11), (2, 300)),
    (embed_backward_adds, (1, 1), (9, 5)),
    (learned_sums_up, (1, 1), (300, 123)),
)
"""Small enough for the simulator."""

MANY: list[Case] = [
    *FEW,
    *((cross_entropy_by_tiles, tokens, vocabulary) for tokens in (2, 33) for vocabulary in (2, 8, 31, 256, 1000)),
    *((cross_entropy_takes_the_first, 33, vocabulary) for vocabulary in (2, 8, 31, 256, 1000)),
    *((embed_backward_adds, tokens, width) for tokens in (2, 100) for width in (31, 64, 257)),
    *((learned_sums_up, tokens, right) for tokens, right in ((1, 0), (17, 17), (3000, 1234))),
]
