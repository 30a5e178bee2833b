"""All settings of a sweep in one block."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Final

from reference_trainer.errors import TrainerError
from reference_trainer.program import flag
from reference_trainer.ssm.problem import DIMS, GD, GNC, RANKS, SEEDS, Job

OPTIMIZERS: Final = ("adam", "sgd")
UNUSED: Final = {"precision": "students, losses and responses are in fp32 in every variant"}
"""Performance settings that have no effect here, and why."""
MOST_JOBS: Final = 1_000_000
"""Maximum jobs per method. All are kept in memory: about 200 bytes each before and 1 kB after they are done."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a sweep: what to fit, how, and where."""

    num_seeds: int = 10
    first_seed: int = 0
    teacher_ranks: tuple[int, ...] = (1, 2)
    student_dims: tuple[int, ...] = (8, 16, 32, 64, 128)
    sequence_length: int = 24
    """T: length of the input sequences and of the impulse responses."""
    measurements: int = 3
    """N: number of sequences that a student is fitted to."""
    gd: bool = True
    gnc: bool = True

    optimizer: str = "adam"
    lr: float = 0.003
    init_scale: float = 0.1
    """Gradient descent begins with B and C drawn as guesses are, multiplied by this."""
    epochs: int = 500
    """Maximum number of updates of gradient descent."""
    gd_loss: float = 0.01
    """Gradient descent stops below this training loss: the same as for guesses, so that the methods can be compared."""
    gnc_loss: float = 0.01
    """A guess with a training loss below it is accepted."""
    max_guesses: int = 10_000
    batch_size: int | None = None
    """Guesses that are drawn and checked together for all jobs of a group. None: FIRST_BATCH of `guess_and_check` per
    job at first, and more while guesses get cheaper."""
    report_every: int = 10
    """Updates or guesses between two reports."""

    variant: str = "as-found"
    fixes: tuple[str, ...] | None = None
    """Names of fixes, instead of those of the variant."""
    device: str = "auto"
    engine: str = "pool"
    """Used with flat-sweep only, as is `workers`: without it jobs are done one after another in this process."""
    address: str | None = None
    """Address of a Ray cluster; None: start one on this machine."""
    workers: int | None = None
    """Number of workers of the engine; None: as many as fit on the devices, on a CPU one per core."""
    results: Path | None = None
    """File that outcomes are appended to; jobs that it already contains are skipped."""
    log: Path | None = None
    """File that reports are written to; None: /dev/null."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, minimum = getattr(self, field.name), int(field.name != "first_seed")
            if isinstance(value, int) and not isinstance(value, bool) and value < minimum:
                raise TrainerError(f"{flag(field.name)} {value}: must be at least {minimum}")
        for name in ("lr", "init_scale", "gd_loss", "gnc_loss"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise TrainerError(f"{flag(name)} {value}: must be a number above 0")
        for name in ("teacher_ranks", "student_dims"):
            values = getattr(self, name)
            if not values:
                raise TrainerError(f"{flag(name)}: give at least one value")
            if min(values) < 1:
                raise TrainerError(f"{flag(name)} {min(values)}: must be at least 1")
            if len(set(values)) < len(values):
                raise TrainerError(f"{flag(name)}: a value is given twice")
        self._check_size()
        if not (self.gd or self.gnc):
            raise TrainerError("nothing to do: remove --no-gd or --no-gnc")
        if self.optimizer not in OPTIMIZERS:
            raise TrainerError(f"unknown optimizer {self.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}")

    def _check_size(self) -> None:
        if self.seeds.stop > SEEDS:
            raise TrainerError(f"{flag('num_seeds')} {self.num_seeds}: the last seed must be below {SEEDS:,}")
        for name, limit in (("teacher_ranks", RANKS), ("student_dims", DIMS)):
            if max(getattr(self, name)) >= limit:
                raise TrainerError(f"{flag(name)} {max(getattr(self, name))}: must be below {limit:,}")
        count = self.num_seeds * len(self.teacher_ranks) * len(self.student_dims)
        if count > MOST_JOBS:
            raise TrainerError(
                f"{flag('num_seeds')} {self.num_seeds}: with all ranks and dimensions these are {count:,} jobs per "
                f"method, and a sweep does at most {MOST_JOBS:,}: split them into several sweeps with --first-seed"
            )

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(name for name, wanted in ((GD, self.gd), (GNC, self.gnc)) if wanted)

    @property
    def seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.num_seeds)

    def jobs(self) -> tuple[Job, ...]:
        """All jobs of the sweep, in the order of the as-found program: seeds innermost."""
        return tuple(
            Job(method, rank, dim, seed)
            for method in self.methods
            for rank in self.teacher_ranks
            for dim in self.student_dims
            for seed in self.seeds
        )
