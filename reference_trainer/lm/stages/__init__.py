"""The four stages of a chunk: embed, recurrence, decode, loss; and the state that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from reference_trainer.devices.protocol import Device
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.plan import Plan


class Stage(Protocol):
    """One stage, done the way that the plan says."""

    batched: bool

    def begin(self) -> None:
        """Before the first token of a chunk."""

    def token(self, t: int) -> None:
        """Do token `t` (where not batched)."""

    def chunk(self) -> None:
        """Do all tokens (where batched)."""


class Work:
    """The desk that the stages work at; what one stage leaves here, the next one takes up."""

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
        self.prediction: Any = None
        """Predicted ids (rows,) on the device, of which `prediction_row` is the current token's."""
        self.prediction_row = 0
        self.predicted: list[int] | np.ndarray = []
        """Predicted ids that the host knows."""

    def upload(self, array: np.ndarray) -> Any:
        """Real numbers to the device."""
        return self.device.upload(np.ascontiguousarray(array, self.device.real))

    def pooled(self, shape: Sequence[int], dtype: str | None = None) -> Any:
        """Device memory to be used in every chunk where the plan pools; else None: allocate when it is needed."""
        return self.device.empty(shape, dtype) if self.plan.pooled else None
