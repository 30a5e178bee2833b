"""What is said of a sweep at its end: how its jobs fared, what they took, and what came out of them by combination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from statistics import fmean, quantiles
from typing import Any

from reference_trainer.ssm.problem import Job, Outcome


@dataclass(frozen=True, slots=True)
class Used:
    """One device during the measured part."""

    jobs: int
    busy: float
    """Share of its workers' time in which they had a job."""
    utilisation: float | None
    """Of a CPU the share of its cores that the workers used, of a GPU what its driver says; None: not known."""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """All seeds of a combination: the median over those that were done, and the quartiles of what is asked."""

    method: str
    rank: int
    dim: int
    jobs: int
    fitted: int
    train_loss: float
    generalization_loss: float
    generalization_quartiles: tuple[float, float]
    epochs: float
    guesses: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of a sweep; kept with its results and in its summary."""

    variant: str
    fixes: tuple[str, ...]
    engine: str
    workers: int
    device: str
    jobs: int
    """That were asked for."""
    done: int
    """That have an outcome now."""
    kept: int
    """Of these, that were in the file of results."""
    failures: Mapping[str, str]
    """Jobs that failed twice, and why."""
    retried: int
    """Jobs that were tried a second time, and groups that were begun again because their worker died."""
    success_rate: float | None
    """Of the jobs that this sweep did; None: it had none to do."""
    memory_per_job: float | None
    """Bytes beyond what a job's process held before it, mean over the jobs that this sweep did."""
    devices: Mapping[str, Used]
    wall_s: float
    """The measured part: from workers that are ready to the last outcome."""
    start_s: float
    """Before it: workers started, libraries loaded, kernels compiled, and a first small job."""
    jobs_per_s: float | None
    """In the measured part."""
    points: int
    """Values of sequences that went through students."""
    interrupted: bool
    cells: tuple[Cell, ...]

    @property
    def total_s(self) -> float:
        """With the start of the workers."""
        return self.start_s + self.wall_s

    @property
    def total_jobs_per_s(self) -> float | None:
        """With the start of the workers, which is most of a short sweep."""
        return None if self.jobs_per_s is None else self.jobs_per_s * self.wall_s / self.total_s

    def as_json(self) -> dict[str, Any]:
        """Values that JSON has words for: what is not finite is null."""
        return plain({**asdict(self), "total_s": self.total_s, "total_jobs_per_s": self.total_jobs_per_s})


def plain(value: Any) -> Any:
    """The same in values that JSON has words for: what is not finite is null."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def cells(outcomes: Iterable[Outcome]) -> tuple[Cell, ...]:
    """By method, rank and dimension, in that order."""
    groups: dict[tuple[str, int, int], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.job[:3], []).append(outcome)
    return tuple(_cell(Job(*key, 0), groups[key]) for key in sorted(groups))


def _cell(job: Job, outcomes: Sequence[Outcome]) -> Cell:
    fits = [outcome.fit for outcome in outcomes]
    low, generalization, high = _quartiles([fit.generalization_loss for fit in fits])
    return Cell(
        job.method,
        job.rank,
        job.dim,
        len(fits),
        sum(fit.fitted for fit in fits),
        _quartiles([fit.train_loss for fit in fits])[1],
        generalization,
        (low, high),
        _quartiles([fit.epochs for fit in fits])[1],
        _quartiles([fit.guesses for fit in fits])[1],
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Of values that may be infinite; one that is no number (a training that diverged) is the largest."""
    ordered = sorted(value if value == value else float("inf") for value in values)
    if len(ordered) == 1:
        return (ordered[0],) * 3
    if not isfinite(ordered[-1]):  # no interpolation with what is infinite
        return tuple(ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.5, 0.75))  # type: ignore[return-value]
    low, middle, high = quantiles(ordered, n=4, method="inclusive")
    return low, middle, high


def mean_memory(outcomes: Sequence[Outcome]) -> float | None:
    """Bytes a job."""
    return fmean(outcome.memory_bytes for outcome in outcomes) if outcomes else None
