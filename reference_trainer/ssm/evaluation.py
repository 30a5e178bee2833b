"""What both methods share: the task of fitting students, and how well they fit and generalize."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from profiler import marks
from reference_trainer.ssm.forward import respond
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import Data, Job, Students
from reference_trainer.ssm.report_log import ReportLog
from reference_trainer.ssm.settings import Settings


@dataclass(frozen=True, slots=True)
class Task:
    """Jobs of one rank and dimension whose students are fitted together."""

    jobs: tuple[Job, ...]
    data: Data
    """Its S is in the order of the jobs."""
    settings: Settings
    plan: Plan
    device: torch.device
    log: ReportLog

    def singles(self) -> list[Task]:
        """A task for each job."""
        parts = [Data(*(values[row : row + 1] for values in self.data)) for row in range(len(self.jobs))]
        return [replace(self, jobs=(job,), data=data) for job, data in zip(self.jobs, parts, strict=True)]


def training_losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the measurements; outputs and targets are (..., N), and one may be broadcast."""
    return (outputs - targets).square().mean(-1)


def evaluate(students: Students, data: Data, way: str) -> list[tuple[float, float]]:
    """(training loss, generalization loss) of each of the S students, on the data of the same S."""
    with marks.region("evaluate"), torch.no_grad():
        outputs, responses = respond(students, data.inputs, way)
        losses = training_losses(outputs, data.targets)
        distances = (responses - data.responses).square().sum(-1)
        return list(zip(losses.tolist(), distances.tolist(), strict=True))
