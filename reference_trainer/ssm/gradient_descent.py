"""Gradient descent on all students of a group at once; a student that has fitted takes no further step."""

from __future__ import annotations

from math import sqrt
from typing import Final

import torch

from profiler import marks
from reference_trainer.ssm.draws import initial
from reference_trainer.ssm.evaluation import Task, evaluate, training_losses
from reference_trainer.ssm.forward import LOOP, last_outputs, losses_and_gradient
from reference_trainer.ssm.problem import Fit, Students
from reference_trainer.ssm.report_log import reported

BETA1: Final = 0.9
BETA2: Final = 0.999
EPS: Final = 1e-8
"""Defaults of torch.optim.Adam (Kingma and Ba, 2015)."""


class Descent:
    """Plain gradient descent, like torch.optim.SGD, on parameters (3, S, d)."""

    def __init__(self, lr: float, parameters: torch.Tensor) -> None:
        self._lr = lr

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        """Update the parameters in place, but not those of students that are `stopped` (S, 1)."""
        parameters.sub_(gradient.masked_fill(stopped, 0), alpha=self._lr)

    def keep(self, rows: torch.Tensor) -> None:
        """Do nothing: there is no state to keep."""


class Adam(Descent):
    """Adam with the order of operations of torch.optim.Adam."""

    def __init__(self, lr: float, parameters: torch.Tensor) -> None:
        super().__init__(lr, parameters)
        self._steps = 0
        self._mean, self._square = torch.zeros_like(parameters), torch.zeros_like(parameters)

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        self._steps += 1
        self._mean.lerp_(gradient, 1 - BETA1)
        self._square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        spread = (self._square.sqrt() / sqrt(1 - BETA2**self._steps)).add_(EPS)
        # an update divided by infinity is zero
        spread.masked_fill_(stopped, float("inf"))
        parameters.addcdiv_(self._mean, spread, value=-self._lr / (1 - BETA1**self._steps))

    def keep(self, rows: torch.Tensor) -> None:
        self._mean, self._square = self._mean.index_select(1, rows), self._square.index_select(1, rows)


LOOK_EVERY: Final = 16
"""Epochs between two checks for stopped students, which are computed until then: for half of them on average."""


def fit(task: Task) -> list[Fit]:
    """Fit the student of each job."""
    if task.plan.batched_seeds:
        return _Together(task).run()
    return [_alone(single) for single in task.singles()]


def _initial(task: Task) -> Students:
    with marks.region("data"):
        scale, on_device = task.settings.init_scale, task.plan.device_data
        return initial(task.jobs, scale, device_data=on_device, device=task.device)


def _alone(task: Task) -> Fit:
    """Fit the student of the task's only job."""
    settings, data, way = task.settings, task.data, task.plan.recurrence
    students = Students(*(values.detach().requires_grad_() for values in _initial(task)))
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    optimizer: torch.optim.Optimizer = kind([*students], lr=settings.lr)
    for epoch in range(settings.epochs + 1):
        with marks.region("forward"):
            outputs = last_outputs(students, data.inputs, way)
            losses = training_losses(outputs, data.targets)
            loss = losses.item()
        if task.log.due(epoch):
            task.log.report(task.jobs, [epoch], reported(losses, outputs, students))
        if not loss >= settings.gd_loss or epoch == settings.epochs:
            break
        with marks.region("backward"):
            optimizer.zero_grad()
            losses.sum().backward()
        with marks.region("update"):
            optimizer.step()
    marks.count("readouts", epoch + 1)
    ((train_loss, generalization_loss),) = evaluate(students, data, way)
    return Fit(train_loss, generalization_loss, loss < settings.gd_loss, epochs=epoch)


class _Together:
    """Fits all students of a group at once."""

    def __init__(self, task: Task) -> None:
        self._task, self._settings, self._way = task, task.settings, task.plan.recurrence
        self._parameters = torch.stack(_initial(task))
        kind = Adam if task.settings.optimizer == "adam" else Descent
        self._updates = kind(task.settings.lr, self._parameters)
        count = len(task.jobs)
        self._rows = list(range(count))
        """Positions in the group of the students that are still computed; the tensors below have a row for each."""
        dtype = task.data.inputs.dtype if self._way == LOOP else self._parameters.dtype
        self._inputs, self._targets = task.data.inputs.to(dtype), task.data.targets.to(dtype)
        self._running = torch.ones(count, dtype=torch.bool, device=task.device)
        self._epochs = torch.zeros(count, dtype=torch.int64, device=task.device)
        self._losses = torch.full((count,), torch.nan, dtype=dtype, device=task.device)
        """The last loss of each student while it was running."""
        self._ended = torch.empty_like(self._parameters)
        """Final parameters of all students of the group."""
        self._found: dict[int, tuple[int, bool]] = {}
        """By position in the group: (number of updates, whether it fits)."""
        self._readouts = 0

    def run(self) -> list[Fit]:
        for epoch in range(self._settings.epochs + 1):
            if epoch and epoch % LOOK_EVERY == 0:
                self._look()
                if not self._rows:
                    break
            self._epoch(epoch)
        self._leave(list(range(len(self._rows))))
        marks.count("readouts", self._readouts)
        judged = evaluate(Students(*self._ended), self._task.data, self._way)
        return [Fit(*losses, self._found[row][1], epochs=self._found[row][0]) for row, losses in enumerate(judged)]

    def _epoch(self, epoch: int) -> None:
        with marks.region("forward and backward"):
            arguments = self._parameters, self._inputs, self._targets
            losses, outputs, gradient = losses_and_gradient(*arguments, self._way)
        if self._task.log.due(epoch):
            with marks.region("log"):  # the students that reached this epoch, including those that stop at it
                self._readouts += 1
                rows = [index for index, running in enumerate(self._running.tolist()) if running]
                jobs = [self._task.jobs[self._rows[index]] for index in rows]
                if jobs:
                    tensors = reported(losses, outputs, Students(*self._parameters))
                    chosen = {name: values[rows] for name, values in tensors.items()}
                    self._task.log.report(jobs, [epoch] * len(jobs), chosen)
        with marks.region("update"):
            self._losses = torch.where(self._running, losses, self._losses)
            self._running &= losses >= self._settings.gd_loss
            if epoch < self._settings.epochs:
                self._epochs += self._running
                self._updates.step(self._parameters, gradient, ~self._running[:, None])

    def _look(self) -> None:
        """Leave out the students that have stopped. This waits for the device."""
        with marks.region("results"):
            self._readouts += 1
            running = self._running.tolist()
        if all(running):
            return
        self._leave([index for index, still in enumerate(running) if not still])
        indices = [index for index, still in enumerate(running) if still]
        self._rows = [self._rows[index] for index in indices]
        rows = torch.tensor(indices, dtype=torch.int64, device=self._running.device)
        self._parameters = self._parameters.index_select(1, rows)
        self._updates.keep(rows)
        self._inputs, self._targets = self._inputs[rows], self._targets[rows]
        self._running, self._epochs, self._losses = self._running[rows], self._epochs[rows], self._losses[rows]

    def _leave(self, indices: list[int]) -> None:
        if not indices:
            return
        self._readouts += 2
        self._ended[:, [self._rows[index] for index in indices]] = self._parameters[:, indices]
        epochs, losses = self._epochs.tolist(), self._losses.tolist()
        for index in indices:
            self._found[self._rows[index]] = epochs[index], losses[index] < self._settings.gd_loss
