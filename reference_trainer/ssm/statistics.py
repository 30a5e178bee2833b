"""The summary of a sweep: success, cost, results by combination, and how busy its devices were.

The driver of GPUs is sampled; for CPUs the CPU time of the workers counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from operator import itemgetter
from statistics import fmean, quantiles
from typing import Any, Final, Self

from reference_trainer.ssm.engine import Engine
from reference_trainer.ssm.group_work import GroupResult
from reference_trainer.ssm.placement import CPU, cores, gpu_load
from reference_trainer.ssm.problem import Fit, Outcome


@dataclass(frozen=True, slots=True)
class Used:
    """How much one device was used during the measured part: docs/ssm.md explains the fields."""

    jobs: int
    failed: int
    success_rate: float | None
    memory_per_job: float | None
    busy: float
    utilisation: float | None
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
    """Statistics of a sweep, which are kept with its results and in its summary: docs/ssm.md explains the fields."""

    variant: str
    fixes: tuple[str, ...]
    engine: str
    workers: int
    device: str
    jobs: int
    done: int
    kept: int
    failures: Mapping[str, str]
    retried: int
    """Number of jobs that were tried a second time, and of groups that were started again because their worker died."""
    success_rate: float | None
    memory_per_job: float | None
    devices: Mapping[str, Used]
    wall_s: float
    start_s: float
    jobs_per_s: float | None
    points: int
    interrupted: bool
    cells: tuple[Cell, ...]

    @property
    def total_s(self) -> float:
        return self.start_s + self.wall_s

    @property
    def total_jobs_per_s(self) -> float | None:
        return None if self.jobs_per_s is None else self.jobs_per_s * self.wall_s / self.total_s

    def as_json(self) -> dict[str, Any]:
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
    groups: dict[tuple[str, int, int], list[Fit]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.job[:3], []).append(outcome.fit)
    result = []
    for combination, fits in sorted(groups.items(), key=itemgetter(0)):
        names = ("train_loss", "generalization_loss", "epochs", "guesses")
        parts = {name: _quartiles([getattr(fit, name) for fit in fits]) for name in names}
        low, _, high = parts["generalization_loss"]
        medians: dict[str, Any] = {name: quartiles[1] for name, quartiles in parts.items()}
        fitted = sum(fit.fitted for fit in fits)
        result.append(Cell(*combination, len(fits), fitted, generalization_quartiles=(low, high), **medians))
    return tuple(result)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The quartiles of values that may be infinite; NaN (from a training that diverged) counts as the largest."""
    ordered = sorted(value if value == value else float("inf") for value in values)
    if len(ordered) == 1:
        return (ordered[0],) * 3
    if not isfinite(ordered[-1]):  # infinite values cannot be interpolated
        return tuple(ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.5, 0.75))  # type: ignore[return-value]
    low, middle, high = quantiles(ordered, n=4, method="inclusive")
    return low, middle, high


_EVERY_S: Final = 0.2
"""Seconds between samples. The driver averages over the last 1/6 s to 1 s."""


class Utilization:
    """A context that samples the utilization of GPUs; the means are read after it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._samples: dict[str, list[float]] = {name: [] for name in names if name.startswith("cuda")}
        self.why = ""
        """Why there is no mean."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        if self._samples:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def mean(self, name: str) -> float | None:
        """The share of time in which a device was busy; it is None if the device was not sampled."""
        samples = self._samples.get(name)
        return fmean(samples) if samples else None

    def _sample(self) -> None:
        while True:
            try:
                for name, samples in self._samples.items():
                    samples.append(gpu_load(name))
            except Exception as error:  # noqa: BLE001 - a thread's edge; NVML and torch raise errors of their own
                self.why = " ".join(str(error).split()) or type(error).__name__
                return
            if self._ended.wait(_EVERY_S):
                return


def used(
    worked: Sequence[GroupResult], failed: Mapping[str, int], engine: Engine, utilization: Utilization, wall: float
) -> dict[str, Used]:
    """How much each device was used, by name; `failed` are attempts of jobs, an unknown device has an empty name."""
    result: dict[str, Used] = {}
    names = dict.fromkeys([*engine.device_names, *(group.slot for group in worked), *filter(None, failed)])
    for name in names:
        here = [group for group in worked if group.slot == name]
        workers = engine.device_names.count(name) or len({group.process for group in here}) or 1
        share, why_not = utilization.mean(name), ""
        if name.endswith(CPU):
            share = sum(group.cpu_seconds for group in here) / (wall * (here[0].cores if here else cores()))
        elif share is None:
            missing = utilization.why or "no sample was taken"
            unseen = "it belongs to a cluster and is not sampled from this machine"
            why_not = missing if name in engine.device_names else unseen
        memory = [outcome.memory_bytes for group in here for outcome in group.outcomes]
        attempts = len(memory) + failed.get(name, 0)
        result[name] = Used(
            jobs=len(memory),
            failed=failed.get(name, 0),
            success_rate=len(memory) / attempts if attempts else None,
            memory_per_job=fmean(memory) if memory else None,
            busy=sum(group.seconds for group in here) / (wall * workers),
            utilisation=share,
            why_not=why_not,
        )
    return result
