"""The four stages of a chunk: embed, recurrence, decode, loss; and the state that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reference_trainer.devices.protocol import Device
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.plan import Plan
from reference_trainer.lm.result import KEPT_CHUNKS, LAST_CHUNKS


class Work:
    """The weights, and what one stage leaves for the next."""

    def __init__(self, device: Device, config: ModelConfig, weights: Weights, capacity: int, plan: Plan) -> None:
        self.device = device
        self.config = config
        self.plan = plan
        self.capacity = capacity
        self.layers = [self.upload(layer) for layer in weights.layer] if plan.recurrence == "chunk" else []
        self.all_layers = None if self.layers else self.upload(weights.layer.reshape(-1, 2 * config.width))
        self.bias = self.upload(weights.bias)
        self.readout_weight = self.upload(weights.readout)
        self.decoder = self.upload(weights.decoder)
        self.decoder_bias = self.upload(weights.decoder_bias)
        self.state = device.zeros((config.layers, config.width))
        self.modulator = device.zeros((1,))
        self.correct = device.zeros((1,))
        # the chunk
        self.tokens = 0
        self.ids = np.zeros(1, np.int32)
        """(T + 1,)"""
        self.ids_on_device: Any = None
        # between the stages, of the current token or of the chunk
        self.x: Any = None
        """Embeddings (rows, D) on the device: of the current token, or of the chunk where a stage beside is batched."""
        self.readout: Any = None
        """Readouts (rows, D) on the device, with the same rows."""
        self.visitor: np.ndarray = np.zeros((0, 0))
        """Readouts that visit the host (1, D), or (T, D) where the recurrence or the decoder is batched."""
        self.place = 0
        """Where the predictions of this chunk are kept."""
        self.prediction: Any = None
        """Predicted ids (rows,) on the device, of which `prediction_row` is the current token's."""
        self.prediction_row = 0
        self.predicted: list[int] | np.ndarray = []
        """Predicted ids that the host knows."""

    def upload(self, array: np.ndarray) -> Any:
        """Copy real numbers to the device."""
        return self.device.upload(np.ascontiguousarray(array, self.device.real))

    def memory(self, shape: Sequence[int], dtype: str | None = None) -> Callable[[], Any]:
        """A function that returns device memory: the same at each call where the plan pools, else freshly allocated."""
        if not self.plan.pooled:
            return partial(self.device.empty, shape, dtype)  # no frame of its own: the site is the caller's line
        pooled = self.device.empty(shape, dtype)
        return lambda: pooled

    def predictions(self) -> Callable[[], Any]:
        """A function that returns device memory for the predicted ids of a chunk, which later chunks leave alone.

        A captured graph knows one address only: its chunks share it.
        """
        shape = (self.capacity,)
        if not self.plan.pooled or self.plan.graph:
            return self.memory(shape, "int32")
        pooled = [self.device.empty(shape, "int32") for _ in range(KEPT_CHUNKS + LAST_CHUNKS)]
        return lambda: pooled[self.place]

    def uploader(self, shape: Sequence[int], dtype: str | None = None) -> Callable[[np.ndarray], Any]:
        """A function that copies an array of at most this shape to device memory, which it allocates unless pooled."""
        if not self.plan.pooled:
            return self.device.upload
        return partial(self.device.upload_into, self.device.empty(shape, dtype))  # no frame of its own, as above

    def host_memory(self, shape: Sequence[int], dtype: str | None = None) -> Callable[[], np.ndarray]:
        """A function that returns an array on the host: pinned and always the same with zero-copy, else a fresh one."""
        if not self.plan.zero_copy:
            return lambda: np.empty(shape, dtype or self.device.real)
        pinned = self.device.pinned(shape, dtype)
        return lambda: pinned


class Stage:
    """One stage, token by token or for the whole chunk, as the plan says."""

    batched = False

    def __init__(self, work: Work) -> None:
        self._work = work

    def begin(self) -> None:
        """Prepare a chunk."""

    def token(self, t: int) -> None:
        """Process token `t` (where not batched)."""
        raise NotImplementedError

    def chunk(self) -> None:
        """Process all tokens (where batched)."""
        raise NotImplementedError
