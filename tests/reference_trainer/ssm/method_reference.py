"""Both methods in NumPy and fp64, a student at a time, from their definitions: the reference of the trainer.

Gradients are derived by hand, optimizers follow their papers. Only the random numbers are those of the trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import torch

from reference_trainer.ssm.data import measure
from reference_trainer.ssm.draws import guesses, initial
from reference_trainer.ssm.problem import GD, Fit, Job, Students
from reference_trainer.ssm.settings import Settings

CPU = torch.device("cpu")
Array = np.ndarray


def reference(job: Job, settings: Settings) -> Fit:
    """Fit the student of the job."""
    data = measure([job], settings, device_data=False, device=CPU)
    case = Case(*(values[0].double().numpy() for values in (data.inputs, data.targets, data.responses)))
    return descend(case, job, settings) if job.method == GD else check(case, job, settings)


class Case:
    """inputs (N, T), targets (N,), response (T,) of a teacher."""

    def __init__(self, inputs: Array, targets: Array, response: Array) -> None:
        self.latest_first = inputs[:, ::-1]
        self.targets, self.response = targets, response

    def impulse(self, a: Array, b: Array, c: Array) -> Array:
        """k_t = sum_j c_j a_j^t b_j, by running the state-space model on an impulse."""
        h, response = np.zeros_like(a), []
        for t in range(len(self.response)):
            h = a * h + b * (t == 0)
            response.append(c @ h)
        return np.array(response)

    def loss(self, a: Array, b: Array, c: Array) -> float:
        return float(np.mean((self.latest_first @ self.impulse(a, b, c) - self.targets) ** 2))

    def distance(self, a: Array, b: Array, c: Array) -> float:
        return float(np.sum((self.impulse(a, b, c) - self.response) ** 2))

    def gradient(self, a: Array, b: Array, c: Array) -> Array:
        """dL/d(a, b, c), (3, d)."""
        times = np.arange(len(self.response))[:, None]
        powers = a**times
        errors = self.latest_first @ self.impulse(a, b, c) - self.targets
        weights = 2 * errors @ self.latest_first / len(errors)  # dL/dk
        slopes = np.where(times > 0, times * a ** np.maximum(times - 1, 0), 0)
        return np.array([b * c * (weights @ slopes), c * (weights @ powers), b * (weights @ powers)])


def _student(students: Students) -> Array:
    return np.array([values[0].double().numpy() for values in (students.a, students.b, students.c)])


def descend(case: Case, job: Job, settings: Settings) -> Fit:
    """Gradient descent until the loss is low enough."""
    student = _student(initial([job], settings.init_scale, device_data=False, device=CPU))
    move = _adam(settings.lr) if settings.optimizer == "adam" else _sgd(settings.lr)
    for epoch in range(settings.epochs + 1):
        loss = case.loss(*student)
        if loss < settings.gd_loss or epoch == settings.epochs:
            break
        student = student - move(case.gradient(*student))
    return Fit(loss, case.distance(*student), loss < settings.gd_loss, epochs=epoch)


def _sgd(lr: float) -> Callable[[Array], Array]:
    return lambda gradient: lr * gradient


def _adam(lr: float) -> Callable[[Array], Array]:
    """Kingma and Ba, Adam, 2015, algorithm 1, with its recommended constants."""
    beta1, beta2, eps = 0.9, 0.999, 1e-8
    mean, square, steps = np.zeros(1), np.zeros(1), 0

    def move(gradient: Array) -> Array:
        nonlocal mean, square, steps
        steps += 1
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        return lr * (mean / (1 - beta1**steps)) / (np.sqrt(square / (1 - beta2**steps)) + eps)

    return move


def check(case: Case, job: Job, settings: Settings) -> Fit:
    """The first guess that is good enough, else the best."""
    best, remaining = inf, None
    for number in range(settings.max_guesses):
        student = _student(guesses([job], number, 1, device_data=False, device=CPU))
        loss = case.loss(*student)
        if loss < best:
            best, remaining = loss, student
        if loss < settings.gnc_loss:
            break
    assert remaining is not None
    return Fit(best, case.distance(*remaining), best < settings.gnc_loss, guesses=number + 1)
