"""Defines how a program gets its batches: the parts of the input, loaders and their workers, and sizes of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler.run.model import Site

# Names of input parts that are not regions of the program, or that conclusions are drawn from.
WAITING_FOR_INDEX, WAITING_FOR_WORKERS = "waiting for an index", "waiting for the workers"
RECEIVE, SEND = "receive", "send"
THE_LOADER, MARKED_DATA, BETWEEN_BATCHES = "the loader itself", "its region data", "between batches"


@dataclass(frozen=True, slots=True)
class InputPart:
    """One cause of the time that the input takes, on the side where the data is made."""

    name: str
    """Name of a region, such as `dataset`, `collate`, `tokenize` or `pin memory`, or of a wait, such as `waiting for
    the workers`."""
    where: Literal["worker", "main process"]
    """The process that spends the time."""
    seconds_per_step: float
    """Summed over the workers, a step of the training process."""
    share: float
    """The share of the wall time of all workers (or of the training thread)."""
    site: Site | None = None
    """The line with most of it; None: not known."""
    context: Literal["loader", "inline", "own thread"] = "loader"
    """The place in the main process: inside a loader, outside any in the stepping thread, or another thread."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """A loader of the training process: where it was made, with which settings, and how long the process is in it."""

    name: str
    """Its class and where it was made, which other records refer to."""
    site: Site
    """The line that makes it."""
    variable: str
    """What it was assigned to, such as `self.loader`; empty: nothing, or not known."""
    workers: int
    """Number of worker processes."""
    batch_size: int | None = None
    """Items of a batch; None: not known."""
    prefetch_factor: int | None = None
    """Batches that each worker prepares ahead; None without workers."""
    pin_memory: bool = False
    """Whether it copies batches into pinned memory."""
    persistent_workers: bool = False
    """Whether its workers stay from epoch to epoch."""
    share: float = 0.0
    """The share of the time of all loaders that the stepping thread is in this one."""
    is_iterable: bool = False
    """Whether its dataset is an IterableDataset, of which each worker reads all unless it splits itself."""
    made_anew: bool | None = None
    """Whether the program makes it anew each time that it iterates over it; None: not known."""


@dataclass(frozen=True, slots=True)
class LoaderUse:
    """How the training process uses its loaders, and what the processes of their workers do, in the measured steps."""

    batches: float
    """Batches per step."""
    starts: float
    """Starts of a loader's iteration per step."""
    workers: int = 0
    """Workers at the same time; 0: the training process makes its batches itself."""
    worker_cpu: float | None = None
    """Share of the workers' time in which they ran on a CPU; None: not measured."""
    worker_core_wait: float | None = None
    """Share of the workers' time in which they waited for a core; None: not measured."""
    busiest_worker: float = 0.0
    """Share of its time in which the worker makes batches that waits least for work: a loader that keeps the order of
    its batches gives each worker as many as the others, and waits for the slowest. 0: not known, or no such loader."""
    file_wait: float | None = None
    """Share of the time in which batches are made, in workers or else in the training process, without waits for a
    core, that waits for files; None: not measured, or by too few samples."""
    socket_wait: float | None = None
    """The same for sockets; None: not measured, or by too few samples."""
    free_cores: float | None = None
    """Cores that the program may use and no program used, on average; None: not measured."""
    loaders: tuple[LoaderSettings, ...] = ()
    """The loaders with the largest share first; empty: their settings are not known."""
    around_starts: float = 0.0
    """Seconds per step in which the training process waits for the first batch of each worker after each start, and for
    the end of workers after each epoch."""
    worker_processes: int = 0
    """Processes of workers that existed in the measured steps: more than `workers` where they were started anew."""


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """How the time of a step, without waits for the loader, depends on the items of its batches: a line through two
    measured sizes. All but `size` are None where all batches have about the same size."""

    size: float
    """Items per step, the most frequent number."""
    other: float | None = None
    """Another number of items; None: all batches have about the same size."""
    seconds: float | None = None
    """Median seconds of a step with `size` items; None: no line was fitted."""
    other_seconds: float | None = None
    """Median seconds of a step with `other` items; None: no line was fitted."""
    fixed: float | None = None
    """Seconds per step that do not depend on the number of items; None: no line was fitted."""
    low: float | None = None
    """Lower end of the 95% interval of `fixed`; None: no line was fitted."""
    high: float | None = None
    """Upper end of the same interval; None: no line was fitted."""
