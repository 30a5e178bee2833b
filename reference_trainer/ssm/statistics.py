"""The summary of a sweep: how many jobs succeeded, what they cost, and their results by combination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from statistics import quantiles
from typing import Any

from reference_trainer.ssm.problem import Job, Outcome


@dataclass(frozen=True, slots=True)
class Used:
    """How much one device was used during the measured part."""

    jobs: int
    busy: float
    """Share of its workers' time in which they had a job."""
    utilisation: float | None
    """For a CPU the share of its cores that the workers used, for a GPU the value of its driver; None: unknown."""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """All seeds of a combination: medians over those that were done, and the quartiles of the generalization loss."""

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
    """Statistics of a sweep, which are kept with its results and in its summary."""

    variant: str
    fixes: tuple[str, ...]
    engine: str
    workers: int
    device: str
    jobs: int
    """Number of requested jobs."""
    done: int
    """Number of jobs with an outcome."""
    kept: int
    """Number of those that were already in the results file."""
    failures: Mapping[str, str]
    """Jobs that failed twice, and why."""
    retried: int
    """Number of jobs that were tried a second time, and of groups that were started again because their worker died."""
    success_rate: float | None
    """Success rate of the jobs that this sweep did; None: it had none to do."""
    memory_per_job: float | None
    """Mean bytes per job in addition to what its process held before, over the jobs that this sweep did."""
    devices: Mapping[str, Used]
    wall_s: float
    """Seconds of the measured part, which begins when workers are ready and ends with the last outcome."""
    start_s: float
    """Seconds before it: workers start, load libraries, compile kernels, and do small jobs."""
    jobs_per_s: float | None
    """Jobs per second of the measured part."""
    points: int
    """Number of sequence values that students processed."""
    interrupted: bool
    cells: tuple[Cell, ...]

    @property
    def total_s(self) -> float:
        """Seconds including the start of the workers."""
        return self.start_s + self.wall_s

    @property
    def total_jobs_per_s(self) -> float | None:
        """Jobs per second including the start of the workers, which is most of a short sweep."""
        return None if self.jobs_per_s is None else self.jobs_per_s * self.wall_s / self.total_s

    def as_json(self) -> dict[str, Any]:
        """The statistics as values that JSON can represent: a value that is not finite is null."""
        return plain({**asdict(self), "total_s": self.total_s, "total_jobs_per_s": self.total_jobs_per_s})


def plain(value: Any) -> Any:
    """Convert to values that JSON can represent: a value that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def cells(outcomes: Iterable[Outcome]) -> tuple[Cell, ...]:
    """The cells, sorted by method, rank and dimension."""
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
    """The quartiles of values that may be infinite; NaN (from a training that diverged) counts as the largest."""
    ordered = sorted(value if value == value else float("inf") for value in values)
    if len(ordered) == 1:
        return (ordered[0],) * 3
    if not isfinite(ordered[-1]):  # infinite values cannot be interpolated
        return tuple(ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.5, 0.75))  # type: ignore[return-value]
    low, middle, high = quantiles(ordered, n=4, method="inclusive")
    return low, middle, high
