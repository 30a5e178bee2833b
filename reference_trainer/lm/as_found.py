"""The slow program as one loop: it trains token by token through the host, as the bundled trainer was found.

The switchable pipeline (`reference_trainer.lm.pipeline`) does exactly this where no fix is on; the tests hold both to
the same predictions, losses and counts of syncs, copies, allocations and launches. `fixed.py` is the fast program.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, pairwise

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import decode_token, modulate, recurrent_step, reward
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.model import ModelConfig, Weights


def train(
    text: ChunkedText, device: Device, config: ModelConfig, weights: Weights, *, chunks: int
) -> Iterator[tuple[float, list[int]]]:
    """Run the model over so many chunks of the text; yields each chunk's 0/1 loss and its predicted ids."""
    width, vocabulary = config.width, config.vocabulary
    table = weights.embedding.astype(device.real)  # stays on the host
    layers, bias, readout_weight, decoder, decoder_bias = (
        device.upload(np.ascontiguousarray(array, device.real))
        for array in (
            weights.layer.reshape(-1, 2 * width), weights.bias, weights.readout, weights.decoder, weights.decoder_bias,
        )
    )  # fmt: skip
    state, modulator = device.zeros((config.layers, width)), device.zeros((1,))
    correct, results = device.zeros((1,)), device.zeros((3,))
    projected, logits = device.zeros((2 * width,)), device.zeros((vocabulary,))

    ids: list[int] = []
    samples = cycle(text.samples)
    for _ in range(chunks):
        while len(ids) <= text.tokens_per_chunk:
            ids += text.tokenizer.encode(next(samples))  # one call a sample, in the thread that launches
        chunk, ids = ids[: text.tokens_per_chunk + 1], ids[text.tokens_per_chunk :]
        predicted: list[int] = []
        for current, target in pairwise(chunk):
            # a fresh vector on the host, an allocation on the device, a copy
            x = device.upload(np.array(table[current : current + 1]))
            readout = device.empty((1, width))
            device.launch(
                recurrent_step.KERNEL, readout, x, layers, bias, readout_weight, state, modulator, projected, width,
                config.layers, 0, 0,
            )  # fmt: skip
            visitor = device.download(readout)  # sync 1: the readout comes to the host ...
            readout = device.upload(visitor)  # ... and goes back
            prediction = device.empty((1,), "int32")
            device.launch(
                decode_token.KERNEL, prediction, readout, decoder, decoder_bias, logits, width, vocabulary, 0, 0
            )
            predicted.append(int(device.download(prediction)[0]))  # sync 2: what .item() does
            earned = np.array([1.0 if predicted[-1] == target else 0.0], device.real)
            device.launch(reward.KERNEL, correct, device.upload(earned))
        device.launch(modulate.KERNEL, results, correct, modulator, len(predicted))
        right = sum(prediction == target for prediction, target in zip(predicted, chunk[1:], strict=True))
        marks.step(tokens=len(predicted))
        yield 1 - right / len(predicted), predicted
