"""Trains torch.nn.GRU on the text that the language model learns from, as a yardstick: what a standard model reaches.

Embedding, layers of the same width and number, readout and decoder are those of the language model, but for the GRU
layers, which have about three times the parameters of its own. The optimizer is AdamW with warm-up and cosine decay
likewise.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn

from reference_trainer.lm.ngrams import Yardstick
from reference_trainer.lm.optimizer import Optimizer

if TYPE_CHECKING:
    from reference_trainer.lm.model import ModelConfig

STREAMS: Final = 32
"""Parts of the text that are read side by side, because a GRU can only be parallel over those."""
LENGTH: Final = 32
"""Tokens of each stream in a step; gradients reach back so far, and the state is carried on."""
RATE: Final = 1e-2
"""Highest learning rate: 0.01 with 32 tokens reached 2.68 nats at preset tiny, 0.005 with 64 tokens 2.73."""
WEIGHT_DECAY: Final = 0.02


class Gru(nn.Module):
    """torch's own GRU of the model's width and as many layers, its state carried on."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.GRU(config.width, config.width, config.layers)
        self.state: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, state = self.layers(x, self.state)
        self.state = state.detach()
        return y


class GruModel(nn.Module):
    """Logits (T, B, V) of token ids (T, B)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.gru = Gru(config)
        self.readout = nn.Linear(config.width, config.width, bias=False)
        self.decoder = nn.Linear(config.width, config.vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.readout(self.gru(self.embedding(ids))))


def train_gru(config: ModelConfig, training: np.ndarray, held_out: np.ndarray, *, tokens: int, seed: int) -> Yardstick:
    """Train on the ids `training` (N,) until `tokens` tokens were learned from; the result on `held_out` (T + 1,)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GruModel(config)
    began = time.process_time()
    learned = _train(model, training, tokens)
    took = time.process_time() - began
    model.gru.state = None
    with torch.no_grad():
        ids = torch.from_numpy(held_out.astype(np.int64))
        scores = torch.cat([model(part[:, None])[:, 0].log_softmax(1) for part in ids[:-1].split(1000)])
        loss = nn.functional.nll_loss(scores, ids[1:]).item()
        accuracy = (scores.argmax(1) == ids[1:]).double().mean().item()
    size = sum(parameter.numel() for parameter in model.parameters())
    return Yardstick("torch.nn.GRU", loss, accuracy, parameters=size, tokens=learned, cpu_s=took)


def _train(model: GruModel, training: np.ndarray, tokens: int) -> int:
    """Train by AdamW with warm-up and cosine decay; returns the number of tokens that were learned from."""
    settings = Optimizer()
    streams = min(STREAMS, max(1, (len(training) - 1) // LENGTH))
    length = min(LENGTH, len(training) - 1)
    steps = max(1, round(tokens / (streams * length)))
    warmup = max(1, round(steps * settings.warmup / settings.total))
    starts = np.arange(streams) * (len(training) // streams)
    betas = settings.beta1, settings.beta2
    adamw = torch.optim.AdamW(model.parameters(), RATE, betas, settings.eps, WEIGHT_DECAY, foreach=True)
    for step in range(steps):
        remaining = min(1.0, (steps - step) / max(1, steps - warmup))
        wave = settings.least + (1 - settings.least) * 0.5 * (1 - math.cos(math.pi * remaining))
        adamw.param_groups[0]["lr"] = RATE * min((step + 1) / warmup, wave)
        positions = (starts + step * length + np.arange(length + 1)[:, None]) % len(training)
        ids = torch.from_numpy(training[positions].astype(np.int64))
        loss = nn.functional.cross_entropy(model(ids[:-1]).flatten(0, 1), ids[1:].flatten())
        adamw.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.largest_norm, foreach=True)
        adamw.step()
    return steps * streams * length
