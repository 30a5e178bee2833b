"""Gradient descent on all students of a group at once; a student that has fitted takes no further step."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Final, Protocol

from profiler import marks
from reference_trainer.ssm.evaluation import evaluate, training_losses
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import Data, Fit, Job, Students
from reference_trainer.ssm.report_log import ReportLog, reported
from reference_trainer.ssm.settings import Settings

if TYPE_CHECKING:
    import torch

BETA1: Final = 0.9
BETA2: Final = 0.999
EPS: Final = 1e-8
"""Defaults of torch.optim.Adam (Kingma and Ba, 2015)."""


class Updates(Protocol):
    """An update rule, which changes parameters (3, S, d) in place."""

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        """Do one update; parameters of students that are `stopped` (S, 1) do not change."""

    def keep(self, rows: torch.Tensor) -> None:
        """Keep the state of these students only."""


class Descent:
    """Plain gradient descent, like torch.optim.SGD."""

    def __init__(self, lr: float) -> None:
        self._lr = lr

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, stopped: torch.Tensor) -> None:
        parameters.sub_(gradient.masked_fill(stopped, 0), alpha=self._lr)

    def keep(self, rows: torch.Tensor) -> None:
        """Do nothing: there is no state."""


class Adam:
    """Adam with the order of operations of torch.optim.Adam."""

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
        # an update divided by infinity is zero
        spread.masked_fill_(stopped, float("inf"))
        parameters.addcdiv_(self._mean, spread, value=-self._lr / (1 - BETA1**self._steps))

    def keep(self, rows: torch.Tensor) -> None:
        self._mean, self._square = self._mean.index_select(1, rows), self._square.index_select(1, rows)


def updates(optimizer: str, lr: float, parameters: torch.Tensor) -> Updates:
    """The update rule of the optimizer named in the settings."""
    return Adam(lr, parameters) if optimizer == "adam" else Descent(lr)


LOOK_EVERY: Final = 16
"""Epochs between two checks for stopped students, which are computed until then: for half of them on average."""


def fit(
    jobs: Sequence[Job], data: Data, settings: Settings, plan: Plan, *, device: torch.device, log: ReportLog
) -> list[Fit]:
    """Fit the student of each job.

    :param jobs: of one rank and dimension, in the order of the data's S.
    """
    way = way_of(jobs, data, plan, device)
    if plan.batched_seeds:
        return _Together(jobs, data, settings, plan, device=device, log=log, way=way).run()
    return [
        _alone(job, _of(data, row), settings, plan, device=device, log=log, way=way) for row, job in enumerate(jobs)
    ]


def way_of(jobs: Sequence[Job], data: Data, plan: Plan, device: torch.device) -> str:
    """The way of the forward pass, chosen once, for the initial number of students."""
    if plan.recurrence == "loop":
        return "loop"
    from reference_trainer.ssm.fastest import fastest

    together = len(jobs) if plan.batched_seeds else 1
    _, measured, length = data.inputs.shape
    return fastest((together, measured, length, jobs[0].dim), device, backward=True)


def _of(data: Data, row: int) -> Data:
    rows = slice(row, row + 1)
    return Data(data.inputs[rows], data.targets[rows], data.responses[rows])


def _alone(
    job: Job, data: Data, settings: Settings, plan: Plan, *, device: torch.device, log: ReportLog, way: str
) -> Fit:
    import torch

    from reference_trainer.ssm.draws import initial
    from reference_trainer.ssm.forward import respond

    with marks.region("data"):
        drawn = initial([job], settings.init_scale, device_data=plan.device_data, device=device)
    students = Students(*(values.detach().requires_grad_() for values in (drawn.a, drawn.b, drawn.c)))
    parameters = [students.a, students.b, students.c]
    if settings.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(parameters, lr=settings.lr)
    else:
        optimizer = torch.optim.SGD(parameters, lr=settings.lr)
    for epoch in range(settings.epochs + 1):
        with marks.region("forward"):
            outputs = respond(students, data.inputs, way, outputs_only=True)
            losses = training_losses(outputs, data.targets)
            loss = losses.item()
        if log.due(epoch):
            log.report([job], [epoch], reported(losses, outputs, students))
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

    def __init__(
        self,
        jobs: Sequence[Job],
        data: Data,
        settings: Settings,
        plan: Plan,
        *,
        device: torch.device,
        log: ReportLog,
        way: str,
    ) -> None:
        import torch

        from reference_trainer.ssm.draws import initial
        from reference_trainer.ssm.gradient_descent import updates

        with marks.region("data"):
            drawn = initial(jobs, settings.init_scale, device_data=plan.device_data, device=device)
        self._jobs, self._data, self._settings, self._log, self._way = jobs, data, settings, log, way
        self._parameters = torch.stack((drawn.a, drawn.b, drawn.c))
        self._updates = updates(settings.optimizer, settings.lr, self._parameters)
        count = len(jobs)
        self._rows = list(range(count))
        """Positions in the group of the students that are still computed; the tensors below have a row for each."""
        dtype = data.inputs.dtype if way == "loop" else self._parameters.dtype
        self._inputs, self._targets = data.inputs.to(dtype), data.targets.to(dtype)
        self._running = torch.ones(count, dtype=torch.bool, device=device)
        self._epochs = torch.zeros(count, dtype=torch.int64, device=device)
        self._losses = torch.full((count,), torch.nan, dtype=self._targets.dtype, device=device)
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
        a, b, c = self._ended
        judged = evaluate(Students(a, b, c), self._data, self._way)
        return [Fit(*losses, self._found[row][1], epochs=self._found[row][0]) for row, losses in enumerate(judged)]

    def _epoch(self, epoch: int) -> None:
        import torch

        from reference_trainer.ssm.forward import losses_and_gradient

        with marks.region("forward and backward"):
            arguments = self._parameters, self._inputs, self._targets
            losses, outputs, gradient = losses_and_gradient(*arguments, self._way)
        if self._log.due(epoch):
            self._report(epoch, reported(losses, outputs, Students(*self._parameters.unbind())))
        with marks.region("update"):
            self._losses = torch.where(self._running, losses, self._losses)
            self._running &= losses >= self._settings.gd_loss
            if epoch < self._settings.epochs:
                self._epochs += self._running
                self._updates.step(self._parameters, gradient, ~self._running[:, None])

    def _report(self, epoch: int, tensors: dict[str, torch.Tensor]) -> None:
        """Report the students that reached this epoch, including those that stop at it."""
        with marks.region("log"):
            self._readouts += 1
            running_rows = [index for index, running in enumerate(self._running.tolist()) if running]
            jobs = [self._jobs[self._rows[index]] for index in running_rows]
            if jobs:
                self._log.report(
                    jobs, [epoch] * len(jobs), {name: values[running_rows] for name, values in tensors.items()}
                )

    def _look(self) -> None:
        """Leave out the students that have stopped. This waits for the device."""
        with marks.region("results"):
            self._readouts += 1
            running = self._running.tolist()
        stopped = [index for index, still in enumerate(running) if not still]
        if not stopped:
            return
        self._leave(stopped)
        indices = [index for index, still in enumerate(running) if still]
        self._rows = [self._rows[index] for index in indices]
        if indices:
            self._keep(indices)

    def _leave(self, indices: list[int]) -> None:
        if not indices:
            return
        self._readouts += 2
        self._ended[:, [self._rows[index] for index in indices]] = self._parameters[:, indices]
        epochs, losses = self._epochs.tolist(), self._losses.tolist()
        for index in indices:
            self._found[self._rows[index]] = epochs[index], losses[index] < self._settings.gd_loss

    def _keep(self, indices: list[int]) -> None:
        import torch

        rows = torch.tensor(indices, device=self._running.device)
        self._parameters = self._parameters.index_select(1, rows)
        self._updates.keep(rows)
        self._inputs, self._targets = self._inputs[rows], self._targets[rows]
        self._running, self._epochs, self._losses = self._running[rows], self._epochs[rows], self._losses[rows]
