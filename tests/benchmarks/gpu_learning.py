"""The learning side of `bench_gpu`: its kernels, the scan in blocks of time or serial, graphs, and a whole step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.devices.cuda_memory import CudaBuffer
from reference_trainer.kernels import (
    adamw,
    cross_entropy,
    embed,
    empty,
    grad_norm,
    rewards,
    scan,
    scan_backward,
    time_blocks,
)
from reference_trainer.kernels.matmul import ACCUMULATE, TRANSPOSE_A, TRANSPOSE_B
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.optimizer import Optimizer
from reference_trainer.lm.parameters import flatten, layout

Works = dict[str, tuple[Callable[[], object], float, float]]
"""Name -> what to time, the operations and the bytes that it needs at least."""
WIDTHS = (32, 256, 1024, 4096, 8192, 12288, 16384)
STEPS = 10
GRAPH_LAUNCHES = 100


@dataclass(frozen=True)
class Data:
    """What kernels are timed on."""

    config: ModelConfig
    weights: Weights
    ids: np.ndarray
    """Token ids of a chunk (T + 1,)."""

    @property
    def tokens(self) -> int:
        return len(self.ids) - 1


def noise(device: CudaDevice, shape: tuple[int, ...]) -> CudaBuffer:
    """Normal numbers: with zeros, a GPU needs less power and its clocks may be higher."""
    buffer = device.empty(shape)
    buffer.tensor.normal_()
    return buffer


def learning_kernels(device: CudaDevice, data: Data) -> Works:
    """Each kernel and product of a learning step that the forward pass does not have. Gradients are noise."""
    config, weights, tokens = data.config, data.weights, data.tokens
    width, vocabulary, places = config.width, config.vocabulary, layout(config)
    size = places.size
    x, y, hidden, grad = (noise(device, (tokens, width)) for _ in range(4))
    projected, dprojected = (noise(device, (tokens, 2 * width)) for _ in range(2))
    layer, dlayer = device.upload(weights.layer[0]), device.zeros((width, 2 * width))
    bias, dbias = device.upload(weights.bias[:1]), device.zeros((1, 2 * width))
    state, saved = (device.zeros((1, width)) for _ in range(2))
    logits, decoder = device.zeros((tokens, vocabulary)), device.upload(weights.decoder)
    decoder_bias, ddecoder_bias, losses = (device.zeros((length,)) for length in (vocabulary, vocabulary, tokens))
    ids = device.upload(data.ids)
    predictions, table = device.zeros((tokens,), "int32"), device.upload(weights.embedding)
    params, grads = device.upload(flatten(weights, places, device.real)), noise(device, (size,))
    m, v = (device.zeros((size,)) for _ in range(2))
    device.matmul(projected, x, layer, tokens)
    device.matmul(logits, x, decoder, tokens)
    norm, results, step_state = (
        device.zeros((1,)),
        device.zeros((4,)),
        device.upload(Optimizer().step_state(device.real)),
    )
    cells, sizes = tokens * width, (tokens, width, 0, 1)
    loss = logits, decoder_bias, ddecoder_bias, losses, predictions, ids, 0, tokens, tokens, vocabulary
    backward = dprojected, grad, projected, bias, hidden, saved, dbias
    moved_by_product = 4 * (3 * cells + 2 * width**2)
    return {
        "scan, keeping": (
            lambda: device.launch(scan.KEEPING, y, x, projected, bias, state, saved, hidden, *sizes),
            0, 20 * cells,
        ),
        "scan backward": (lambda: device.launch(scan_backward.KERNEL, *backward, *sizes), 0, 24 * cells),
        "gradient of a layer": (
            lambda: device.matmul(dlayer, x, dprojected, tokens, TRANSPOSE_A), 4 * cells * width, moved_by_product,
        ),
        "gradient of a layer's input": (
            lambda: device.matmul(grad, dprojected, layer, tokens, TRANSPOSE_B | ACCUMULATE),
            4 * cells * width, moved_by_product + 4 * cells,
        ),
        "gradient of the decoder": (
            lambda: device.matmul(decoder, y, logits, tokens, TRANSPOSE_A),
            2 * cells * vocabulary, 4 * (cells + tokens * vocabulary + width * vocabulary),
        ),
        "cross-entropy": (lambda: device.launch(cross_entropy.KERNEL, *loss), 0, 8 * tokens * vocabulary),
        "embed backward": (
            lambda: device.launch(embed.BACKWARD, table, grad, ids, tokens, width, vocabulary),
            0, 4 * (cells + vocabulary * width),
        ),
        "gradient norm": (lambda: device.launch(grad_norm.KERNEL, norm, grads, size), 0, 4 * size),
        "adamw": (
            lambda: device.launch(adamw.KERNEL, params, grads, m, v, norm, step_state, size, size), 0, 28 * size,
        ),
        "learned": (
            lambda: device.launch(rewards.LEARNED, results, losses, predictions, ids, step_state, tokens), 0, 0,
        ),
    }  # fmt: skip


@contextmanager
def cut(serial_width: int) -> Iterator[None]:
    """Scans are serial from so many channels on."""
    before = time_blocks.SERIAL_WIDTH
    time_blocks.SERIAL_WIDTH = serial_width
    try:
        yield
    finally:
        time_blocks.SERIAL_WIDTH = before


def scans_over_width(
    device: CudaDevice, tokens: int, seconds_of: Callable[[CudaDevice, Callable[[], object]], float]
) -> dict[str, Any]:
    """Seconds of a scan forward and backward, in blocks of time and serial: where SERIAL_WIDTH should be."""
    found: dict[str, Any] = {"SERIAL_WIDTH": time_blocks.SERIAL_WIDTH, "tokens": tokens}
    for width in WIDTHS:
        grad, hidden = (noise(device, (tokens, width)) for _ in range(2))
        projected, dprojected = (noise(device, (tokens, 2 * width)) for _ in range(2))
        bias, dbias = (device.zeros((1, 2 * width)) for _ in range(2))
        state, saved, modulator = device.zeros((1, width)), device.zeros((1, width)), device.zeros((1,))
        sizes = tokens, width, 0, 1
        forward = grad, projected, bias, state, modulator
        backward = dprojected, grad, projected, bias, hidden, saved, dbias
        found[str(width)] = row = {"blocks": time_blocks.time_blocks(tokens, width)[0]}
        for name, serial_width in (("in blocks", 1 << 62), ("serial", 1)):
            with cut(serial_width):
                row[f"forward, {name}"] = seconds_of(
                    device, lambda arguments=(*forward, *sizes): device.launch(scan.SCAN, *arguments)
                )
                row[f"backward, {name}"] = seconds_of(
                    device, lambda arguments=(*backward, *sizes): device.launch(scan_backward.KERNEL, *arguments)
                )
    return found


def graph_costs(device: CudaDevice, wall_seconds: Callable[..., float]) -> dict[str, float]:
    """Wall seconds of GRAPH_LAUNCHES empty kernels, launched one by one and as one graph."""

    def launch() -> None:
        for _ in range(GRAPH_LAUNCHES):
            device.launch(empty.KERNEL)

    launch()
    graph = device.capture(launch)
    return {
        "launches": GRAPH_LAUNCHES,
        "one by one": wall_seconds(device, launch, calls=5),
        "graph": wall_seconds(device, lambda: device.replay(graph), calls=5),
    }


def learning_step(device: CudaDevice, data: Data) -> dict[str, Any]:
    """A step of learning, two chunks in flight; operations of its products alone, once forward and twice backward."""
    config, tokens, ids = data.config, data.tokens, data.ids
    chunk = LearnChunk(device, config, data.weights, tokens)
    for _ in range(2):
        chunk.submit(ids)
        chunk.collect()
    before = device.counts()
    begin = time.perf_counter()
    chunk.submit(ids)
    for _ in range(STEPS - 1):
        chunk.submit(ids)
        chunk.collect()
    chunk.collect()
    seconds = (time.perf_counter() - begin) / STEPS
    after = device.counts()
    width = config.width
    weights = 2 * config.layers * width**2 + width**2 + width * config.vocabulary  # of products: not the embedding
    return {
        "seconds": seconds,
        "tokens_per_s": tokens / seconds,
        "tflops": 6 * tokens * weights / seconds / 1e12,
        **{
            name: (getattr(after, name) - getattr(before, name)) / STEPS
            for name in ("syncs", "allocations", "launches")
        },
    }
