"""The fast program as one loop: whole chunks stay on the device, and the host only keeps its queue filled.

The switchable pipeline (`reference_trainer.lm.pipeline`) does exactly this where every fix is on; the tests hold both
to the same predictions, losses and counts of syncs, copies, allocations and launches. `as_found.py` is the slow one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import accumulate, embed, modulate, scan, score
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from reference_trainer.lm.pipeline import QUIET_CHUNKS
from reference_trainer.lm.result import IN_FLIGHT


def train(
    text: ChunkedText, device: Device, config: ModelConfig, weights: Weights, *, chunks: int
) -> Iterator[tuple[float | None, Any]]:
    """Run the model over so many chunks of the text.

    Yields the mean 0/1 loss when it is read, else None, and the buffer of the last submitted chunk's predicted ids.
    """
    width, vocabulary, rows = config.width, config.vocabulary, text.tokens_per_chunk
    table, bias, readout_weight, decoder, decoder_bias, *layers = (
        device.upload(np.ascontiguousarray(array, device.real))
        for array in (
            weights.embedding, weights.bias, weights.readout, weights.decoder, weights.decoder_bias, *weights.layer,
        )
    )  # fmt: skip
    state, modulator = device.zeros((config.layers, width)), device.zeros((1,))
    correct, results, totals = device.zeros((1,)), device.zeros((3,)), device.zeros((2,))
    # all memory is allocated here; what the host shares with the device exists twice, one for each chunk in flight
    x, readout, prediction = device.empty((rows, width)), device.empty((rows, width)), device.empty((rows,), "int32")
    projected, logits = device.empty((rows, 2 * width)), device.empty((rows, vocabulary))
    staged = [device.pinned((rows + 1,), "int32") for _ in range(IN_FLIGHT)]
    ids = [device.empty((rows + 1,), "int32") for _ in range(IN_FLIGHT)]
    metrics, in_flight, unread = device.pinned((2,)), deque[tuple[Any, int]](), 0

    def wait() -> float | None:
        ticket, covered = in_flight.popleft()
        device.wait(ticket)  # the one sync of a chunk
        return float(metrics[0]) / covered if covered else None

    with closing(ParallelChunks(text)) as source:
        for number in range(chunks):
            chunk = source.ids(number)  # tokenized in background threads meanwhile
            tokens, slot, position = len(chunk) - 1, number % IN_FLIGHT, number % QUIET_CHUNKS
            staged[slot][: tokens + 1] = chunk
            device.prefetch_into(ids[slot], staged[slot][: tokens + 1])  # the one copy of a chunk
            device.launch(embed.KERNEL, x, table, ids[slot], tokens, width, vocabulary)
            for layer, weight in enumerate(layers):
                device.matmul(projected, x, weight, tokens)
                device.launch(scan.KERNEL, x, projected, bias, state, modulator, tokens, width, layer, config.layers)
            device.matmul(readout, x, readout_weight, tokens)
            device.matmul(logits, readout, decoder, tokens)
            device.launch(score.KERNEL, prediction, correct, logits, decoder_bias, ids[slot], tokens, vocabulary)
            device.launch(modulate.KERNEL, results, correct, modulator, tokens)
            device.launch(accumulate.KERNEL, totals, results, tokens, int(position == 0))
            unread = tokens + (unread if position else 0)
            read = position == QUIET_CHUNKS - 1  # metrics are read every 16 chunks
            in_flight.append((device.fetch_into(metrics, totals), unread) if read else (device.mark(), 0))
            loss = wait() if len(in_flight) == IN_FLIGHT else None
            marks.step(tokens=tokens)
            yield loss, prediction
    while in_flight:
        yield wait(), prediction
    if chunks % QUIET_CHUNKS:
        yield float(device.download(totals)[0]) / unread, prediction
