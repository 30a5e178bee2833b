"""The trainer's model as one would write it in PyTorch, the recurrence done in several ways."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from reference_trainer.lm.model import ModelConfig
from reference_trainer.lm.optimizer import Optimizer

Recurrence = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(keep (T, D), value (T, D), state before (D,)) -> h (T, D)"""


def loop(keep: torch.Tensor, value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """One time step after the other."""
    hidden = []
    for share, added in zip(keep.unbind(), ((1 - keep) * value).unbind(), strict=True):
        state = share * state + added
        hidden.append(state)
    return torch.stack(hidden)


def associative(keep: torch.Tensor, value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """By torch's associative scan; the state before enters with the first step."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return left[0] * right[0], left[1] * right[0] + right[1]

    added = (1 - keep) * value
    first = added[:1] + keep[:1] * state
    return associative_scan(combine, (keep, torch.cat([first, added[1:]])), dim=0, combine_mode="generic")[1]


class Layers(nn.Module):
    """The leaky-integrator layers; the state is carried on, without its gradient."""

    def __init__(self, config: ModelConfig, recurrence: Recurrence) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(config.width, 2 * config.width) for _ in range(config.layers))
        self.register_buffer("state", torch.zeros(config.layers, config.width))
        self._recurrence = recurrence

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = []
        for projection, state in zip(self.projections, self.state.unbind(), strict=True):
            gate, value = projection(x).chunk(2, dim=1)
            hidden = self._recurrence(torch.sigmoid(gate), value, state)
            states.append(hidden[-1].detach())
            x = x + hidden
        self.state = torch.stack(states)
        return x


class Trainer:
    """One learning step after another; `layers` makes (T, D) of (T, D)."""

    def __init__(self, config: ModelConfig, layers: nn.Module, *, compiled: bool = False) -> None:
        parts = {
            "embedding": nn.Embedding(config.vocabulary, config.width),
            "layers": layers,
            "readout": nn.Linear(config.width, config.width, bias=False),
            "decoder": nn.Linear(config.width, config.vocabulary),
        }
        self._parts = nn.ModuleDict(parts)
        self._loss = torch.compile(self._plain_loss) if compiled else self._plain_loss
        settings = Optimizer()
        self._norm = settings.largest_norm
        self._optimizer = torch.optim.AdamW(
            self._parts.parameters(), lr=1e-3, weight_decay=settings.weight_decay, fused=True
        )

    def _plain_loss(self, current: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        parts = self._parts
        logits = parts["decoder"](parts["readout"](parts["layers"](parts["embedding"](current))))
        return nn.functional.cross_entropy(logits, following)

    def step(self, ids: np.ndarray) -> float:
        """Learn from the chunk `ids` (T + 1,); its loss."""
        wide = torch.from_numpy(ids.astype(np.int64))
        self._optimizer.zero_grad()
        loss = self._loss(wide[:-1], wide[1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self._parts.parameters(), self._norm, foreach=True)
        self._optimizer.step()
        return loss.item()
