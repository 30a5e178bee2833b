"""The language model in plain PyTorch, float64, one token after the other: what every forward pass is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from reference_trainer.lm.model import ModelConfig, Weights


@dataclass(frozen=True)
class Expected:
    """What a chunk should give."""

    loss: float
    predictions: np.ndarray
    gaps: np.ndarray
    """(T,) by how much the largest logit leads the second: where it is tiny, fp32 may choose either."""
    modulator: float
    """After the chunk."""


class ReferenceModel:
    """State and modulator are carried from chunk to chunk."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self._weights = {name: torch.from_numpy(getattr(weights, name)).double() for name in weights.__slots__}
        self._state = [torch.zeros(config.width, dtype=torch.float64) for _ in range(config.layers)]
        self.modulator = 0.0

    @property
    def state(self) -> np.ndarray:
        """(layers, D)"""
        return torch.stack(self._state).numpy()

    def chunk(self, ids: np.ndarray) -> Expected:
        logits = torch.stack([self._token(int(current)) for current in ids[:-1]])
        best = torch.topk(logits, 2, dim=1).values
        predictions = torch.argmax(logits, dim=1).numpy()
        reward = float(np.mean(predictions == ids[1:]))
        self.modulator = 0.9 * self.modulator + 0.1 * reward
        return Expected(1 - reward, predictions, (best[:, 0] - best[:, 1]).numpy(), self.modulator)

    def _token(self, token: int) -> torch.Tensor:
        weights = self._weights
        x = weights["embedding"][token]
        for layer, state in enumerate(self._state):
            gate, value = (x @ weights["layer"][layer] + weights["bias"][layer]).chunk(2)
            keep = torch.sigmoid(gate + self.modulator)
            self._state[layer] = keep * state + (1 - keep) * value
            x = x + self._state[layer]
        return x @ weights["readout"] @ weights["decoder"] + weights["decoder_bias"]
