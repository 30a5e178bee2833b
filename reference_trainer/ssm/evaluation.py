"""Evaluates students: how well they fit the measurements, and how far their impulse responses are off."""

from __future__ import annotations

import torch

from profiler import marks
from reference_trainer.ssm.forward import respond
from reference_trainer.ssm.problem import Data, Students


def training_losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the measurements; outputs and targets are (..., N), and one may be broadcast."""
    return (outputs - targets).square().mean(-1)


def evaluate(students: Students, data: Data, way: str) -> list[tuple[float, float]]:
    """(training loss, generalization loss) of each of the S students, on the data of the same S.

    :param way: of `forward.respond`.
    """
    with marks.region("evaluate"), torch.no_grad():
        outputs, responses = respond(students, data.inputs, way)
        losses = training_losses(outputs, data.targets)
        distances = (responses - data.responses).square().sum(-1)
        return list(zip(losses.tolist(), distances.tolist(), strict=True))
