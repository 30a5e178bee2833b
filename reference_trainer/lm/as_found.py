"""The slow program: it trains token by token through the host, as the bundled trainer was found.

`--variant as-found` runs this loop, and `fixed.py` is its cure. The switchable pipeline does exactly the same where no
fix is on: the tests hold both to the same predictions, losses and counts of syncs, copies, allocations and launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import decode_token, recurrent_step, rewards
from reference_trainer.lm.chunks import Source
from reference_trainer.lm.model import Weights
from reference_trainer.lm.result import Result, Run


def train(source: Source, device: Device, weights: Weights) -> Run:
    """Copy the weights to the device; return the function that runs the model over chunks of the text."""
    (vocabulary, width), depth = weights.embedding.shape, len(weights.layer)
    table = weights.embedding.astype(device.real)  # stays on the host
    layers, bias, readout_weight, decoder, decoder_bias = (
        device.upload(np.ascontiguousarray(array, device.real))
        for array in (
            weights.layer.reshape(-1, 2 * width), weights.bias, weights.readout, weights.decoder, weights.decoder_bias,
        )
    )  # fmt: skip
    state, modulator = device.zeros((depth, width)), device.zeros((1,))
    correct, results = device.zeros((1,)), device.zeros((3,))
    projected, logits = device.zeros((2 * width,)), device.zeros((vocabulary,))

    def run(chunks: Iterator[int]) -> Iterator[Result]:
        for number in chunks:
            ids = source.ids(number).tolist()  # one call of the tokenizer a sample, in the thread that launches
            predicted: list[int] = []
            with marks.region("forward"):
                for current, target in pairwise(ids):
                    # a fresh vector on the host, an allocation on the device, a copy
                    x = device.upload(np.array(table[current : current + 1]))
                    readout = device.empty((1, width))
                    device.launch(
                        recurrent_step.KERNEL, readout, x, layers, bias, readout_weight, state, modulator, projected,
                        width, depth, 0, 0,
                    )  # fmt: skip
                    visitor = device.download(readout)  # sync 1: the readout comes to the host ...
                    readout = device.upload(visitor)  # ... and goes back
                    prediction = device.empty((1,), "int32")
                    device.launch(
                        decode_token.KERNEL, prediction, readout, decoder, decoder_bias, logits, width, vocabulary, 0, 0
                    )
                    predicted.append(int(device.download(prediction)[0]))  # sync 2: what .item() does
                    earned = np.array([1.0 if predicted[-1] == target else 0.0], device.real)
                    device.launch(rewards.REWARD, correct, device.upload(earned))
                device.launch(rewards.MODULATE, results, correct, modulator, len(predicted))
                right = sum(prediction == target for prediction, target in zip(predicted, ids[1:], strict=True))
            accuracy = right / len(predicted)
            yield Result(len(predicted), 1 - accuracy, accuracy, len(predicted), predicted=predicted)

    return run
