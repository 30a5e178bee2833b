"""Settings of AdamW and of its learning rate over the steps; both are computed on the device (`kernels.adamw`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference_trainer.kernels import adamw


@dataclass(frozen=True, slots=True)
class Optimizer:
    """AdamW with warm-up, cosine decay and clipped gradients.

    The defaults are those that learned best on the default corpus, a step being a chunk of 3,000 tokens. It is short:
    from width 64 and vocabulary 1,024 on the model would know it by heart with less decay (docs/log.md).
    """

    rate: float = 1e-2
    """Highest learning rate."""
    warmup: int = 50
    """Steps over which it rises to that, linearly."""
    total: int = 2000
    """Step from which on it stays at its least; between, it falls along half a cosine."""
    least: float = 0.05
    """The least learning rate, as a share of the highest."""
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.4
    """Weight decay of matrices; biases do not decay."""
    largest_norm: float = 1.0
    """Gradients of a larger norm are scaled down to it."""

    def step_state(self, dtype: np.dtype) -> np.ndarray:
        """The kernel's state before the first step: its settings and its step counter."""
        state = np.zeros(12, dtype)
        state[adamw.RATE] = self.rate
        state[adamw.BETA1] = self.beta1
        state[adamw.BETA2] = self.beta2
        state[adamw.EPS] = self.eps
        state[adamw.WEIGHT_DECAY] = self.weight_decay
        state[adamw.WARMUP] = self.warmup
        state[adamw.TOTAL] = self.total
        state[adamw.LEAST_SHARE] = self.least
        state[adamw.LARGEST_NORM] = self.largest_norm
        return state
