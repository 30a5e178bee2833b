"""Optimizers of a whole batch of students, each of which may have stopped: no update moves those.

torch's own optimizers move every row. These are elementwise, so that a student takes the same steps as alone.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import torch

BETA1: Final = 0.9
BETA2: Final = 0.999
EPS: Final = 1e-8
"""Of Adam (Kingma and Ba, 2015), as torch.optim.Adam has them."""


class Updates(Protocol):
    """Updates of parameters (3, S, d), in place."""

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        """One update; `stopped` (S, 1) says whose parameters stay."""

    def keep(self, rows: torch.Tensor) -> None:
        """Forget all students but those."""


class Descent:
    """Plain gradient descent, as torch.optim.SGD."""

    def __init__(self, lr: float) -> None:
        self._lr = lr

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        parameters.sub_(gradient.masked_fill(stopped, 0), alpha=self._lr)

    def keep(self, rows: torch.Tensor) -> None:
        """It remembers nothing."""


class Adam:
    """As torch.optim.Adam, in its order of operations."""

    def __init__(self, lr: float, parameters: torch.Tensor) -> None:
        self._lr = lr
        self._steps = 0
        self._mean = parameters.new_zeros(parameters.shape)
        self._square = parameters.new_zeros(parameters.shape)

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        self._steps += 1
        self._mean.lerp_(gradient, 1 - BETA1)
        self._square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        spread = (self._square.sqrt() / sqrt(1 - BETA2**self._steps)).add_(EPS)
        # nothing moves by what is divided by infinity
        spread.masked_fill_(stopped, float("inf"))
        parameters.addcdiv_(self._mean, spread, value=-self._lr / (1 - BETA1**self._steps))

    def keep(self, rows: torch.Tensor) -> None:
        self._mean, self._square = self._mean.index_select(1, rows), self._square.index_select(1, rows)


def updates(optimizer: str, lr: float, parameters: torch.Tensor) -> Updates:
    """Those of an optimizer by the name that settings have for it."""
    return Adam(lr, parameters) if optimizer == "adam" else Descent(lr)
