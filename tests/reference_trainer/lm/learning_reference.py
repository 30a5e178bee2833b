"""The learning step in plain PyTorch, float64: autograd, torch's AdamW and clipping, a loop over time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.optimizer import Optimizer

NAMES = ("embedding", "layer", "readout", "decoder", "bias", "decoder_bias")
MATRICES = NAMES[:4]


@dataclass(frozen=True)
class Step:
    """What a step should give."""

    loss: float
    accuracy: float
    gradients: dict[str, np.ndarray]
    """Before they were clipped, by the names of `Weights`."""
    norm: float
    rate: float


class LearningReference:
    """State is carried from chunk to chunk; gradients end at the beginning of the chunk."""

    def __init__(self, config: ModelConfig, weights: Weights, settings: Optimizer) -> None:
        self.parameters = {
            name: torch.tensor(getattr(weights, name), dtype=torch.float64, requires_grad=True) for name in NAMES
        }
        self._state = [torch.zeros(config.width, dtype=torch.float64) for _ in range(config.layers)]
        self._settings = settings
        matrices = [self.parameters[name] for name in MATRICES]
        biases = [self.parameters[name] for name in NAMES if name not in MATRICES]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": biases, "weight_decay": 0.0}],
            lr=settings.rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, self._share)

    def _share(self, done: int) -> float:
        """Share of the highest learning rate in the step after `done` of them."""
        settings, step = self._settings, done + 1
        if step < settings.warmup:
            return step / settings.warmup
        part = min(1.0, (step - settings.warmup) / (settings.total - settings.warmup))
        return settings.least + (1 - settings.least) * (1 + math.cos(math.pi * part)) / 2

    def step(self, ids: np.ndarray) -> Step:
        """Learn from the chunk `ids` (T + 1,)."""
        self._optimizer.zero_grad()
        self._state = [state.detach() for state in self._state]
        logits = self._logits(ids)
        target = torch.from_numpy(ids[1:].astype(np.int64))
        loss = torch.nn.functional.cross_entropy(logits, target)
        loss.backward()
        gradients = {name: each.grad.numpy().copy() for name, each in self.parameters.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self._settings.largest_norm)
        rate = self._schedule.get_last_lr()[0]
        self._optimizer.step()
        self._schedule.step()
        accuracy = (logits.argmax(1) == target).double().mean()
        return Step(loss.item(), accuracy.item(), gradients, norm.item(), rate)

    @torch.no_grad()
    def judge(self, chunks: Iterable[np.ndarray]) -> tuple[float, float]:
        """Loss and accuracy from a state of zero; nothing is learned, and the state of learning stays."""
        remaining, self._state = self._state, [torch.zeros_like(state) for state in self._state]
        logits, targets = [], []
        for ids in chunks:
            logits.append(self._logits(ids))
            targets.append(torch.from_numpy(ids[1:].astype(np.int64)))
        self._state = remaining
        every, target = torch.cat(logits), torch.cat(targets)
        accuracy = (every.argmax(1) == target).double().mean()
        return torch.nn.functional.cross_entropy(every, target).item(), accuracy.item()

    def _logits(self, ids: np.ndarray) -> torch.Tensor:
        values = self.parameters
        x = values["embedding"][torch.from_numpy(ids[:-1].astype(np.int64))]
        for layer, state in enumerate(self._state):
            gates, inputs = (x @ values["layer"][layer] + values["bias"][layer]).chunk(2, dim=1)
            keeps, hidden = torch.sigmoid(gates), []
            for keep, value in zip(keeps, inputs, strict=True):
                state = keep * state + (1 - keep) * value
                hidden.append(state)
            self._state[layer] = state
            x = x + torch.stack(hidden)
        return x @ values["readout"] @ values["decoder"] + values["decoder_bias"]
