"""The fast program: whole chunks stay on the device, and the host only keeps its queue filled.

`--variant fixed` runs this loop, the cure of `as_found.py`. The switchable pipeline does exactly the same where every
fix is on: the tests hold both to the same predictions, losses and counts of syncs, copies, allocations and launches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import embed, predict, rewards, scan
from reference_trainer.lm.chunks import Source
from reference_trainer.lm.model import Weights
from reference_trainer.lm.result import IN_FLIGHT, KEPT_CHUNKS, LAST_CHUNKS, QUIET_CHUNKS, Result, Run, kept_place


def train(source: Source, device: Device, weights: Weights, rows: int) -> Run:
    """Allocate all memory for chunks of `rows` tokens; return the function that runs the model over chunks."""
    (vocabulary, width), depth = weights.embedding.shape, len(weights.layer)
    table, bias, readout_weight, decoder, decoder_bias, *layers = (
        device.upload(np.ascontiguousarray(array, device.real))
        for array in (
            weights.embedding, weights.bias, weights.readout, weights.decoder, weights.decoder_bias, *weights.layer,
        )
    )  # fmt: skip
    state, modulator = device.zeros((depth, width)), device.zeros((1,))
    correct, results, totals = device.zeros((1,)), device.zeros((3,)), device.zeros((2,))
    x, readout = device.empty((rows, width)), device.empty((rows, width))
    projected, logits = device.empty((rows, 2 * width)), device.empty((rows, vocabulary))
    # The first chunks keep their predictions, for the comparison with as-found; later ones do until others come.
    predictions = [device.empty((rows,), "int32") for _ in range(KEPT_CHUNKS + LAST_CHUNKS)]
    # What the host shares with the device exists twice, once for each chunk in flight.
    staged = [device.pinned((rows + 1,), "int32") for _ in range(IN_FLIGHT)]
    on_device = [device.empty((rows + 1,), "int32") for _ in range(IN_FLIGHT)]
    metrics = device.pinned((2,))

    def run(chunks: Iterator[int]) -> Iterator[Result]:
        in_flight, unread = deque[tuple[Any, int, int, Any]](), 0

        def collect() -> Result:
            ticket, tokens, covered, predicted = in_flight.popleft()
            device.wait(ticket)  # the one sync of a chunk
            if not in_flight and unread:  # the last chunk of all, with the metrics that nobody has read
                metrics[:], covered = device.download(totals), unread
            loss, accuracy = (float(total) / covered for total in metrics) if covered else (None, None)
            return Result(tokens, loss, accuracy, covered, predicted=predicted)

        for position, number in enumerate(chunks):
            ids = source.ids(number)  # tokenized in background threads meanwhile
            tokens, slot, quiet = len(ids) - 1, position % IN_FLIGHT, position % QUIET_CHUNKS
            chunk, prediction = on_device[slot], predictions[kept_place(number)]
            staged[slot][: tokens + 1] = ids
            with marks.region("forward"):
                device.prefetch_into(chunk, staged[slot][: tokens + 1])  # the one copy of a chunk
                device.launch(embed.EMBED, x, table, chunk, tokens, width, vocabulary)
                for layer, weight in enumerate(layers):
                    device.matmul(projected, x, weight, tokens)
                    device.launch(scan.SCAN, x, projected, bias, state, modulator, tokens, width, layer, depth)
                device.matmul(readout, x, readout_weight, tokens)
                device.matmul(logits, readout, decoder, tokens)
                device.launch(predict.SCORE, prediction, correct, logits, decoder_bias, chunk, tokens, vocabulary)
                device.launch(rewards.MODULATE, results, correct, modulator, tokens)
                device.launch(rewards.ACCUMULATE, totals, results, tokens, int(quiet == 0))
                unread += tokens
                if quiet == QUIET_CHUNKS - 1:  # metrics are read every 16 chunks
                    ticket, covered, unread = device.fetch_into(metrics, totals), unread, 0
                else:
                    ticket, covered = device.mark(), 0
            in_flight.append((ticket, tokens, covered, prediction))
            if len(in_flight) == IN_FLIGHT:
                yield collect()
        while in_flight:
            yield collect()

    return run
