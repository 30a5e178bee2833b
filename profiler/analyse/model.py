"""Defines the results of analysing recorded runs: measures, breakdowns, idle blame, comparisons.

Everything is a frozen dataclass. Durations are float seconds. A `Measure` whose value is None was not measured, and its
`reason` says why. Facts are codes and values, from which `profiler.report.text` makes sentences. The only sentences
here are `verdict`, `headline` and `details`: `verdict_text` and `comparison_text` in
`profiler.report` add them after the diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from profiler.analyse.finding import Finding, JudgedRun, NotJudged, Predictor
from profiler.core.errors import Notice
from profiler.run.model import MadeObject, RunInfo, Site, StatedResult, StepDefinition
from profiler.run.tables import NON_BLOCKING, CountKind

if TYPE_CHECKING:
    from profiler.analyse.ledger.cells import Ledger

UNATTRIBUTED = "unattributed"
"""The host category of time in which nothing tells what ran."""
# Host categories of a step, exclusive, in the order in which reports show them.
HOST_CATEGORIES = (
    "input",
    "sync",
    "copy",
    "launch",
    "framework",
    "compute",
    "log",
    "checkpoint",
    "python",
    "gil",
    "ranks",
    "waiting",
    "core",
    "throttled",
    UNATTRIBUTED,
)
WAIT_CATEGORIES = ("gil", "ranks", "waiting", "core", "throttled")
"""Time in which the stepping thread did not run although no record says why: it waited for the GIL, for other ranks,
for something else, for a free core, or because its group had used up its CPU quota. A breakdown has each of these only
where it takes time, or where it was not measured and may take time."""
CORELESS_CATEGORIES = ("core", "throttled")
"""Those of them in which the thread could have run."""
# Device categories of a step, exclusive; idle is what remains of the wall time.
DEVICE_CATEGORIES = ("compute", "copy", "communication", "idle")
LEAST_STEPS = 3
"""Steps of a trace from which they tell what recurs: what occurs once is in fewer."""
USUAL_STEPS = 4
"""With fewer measured steps nothing tells what a usual step is, so that the recurrence of a cost is unknown."""
FILLING = "filling"
"""The time in which a device only fills new memory."""
COMMUNICATING, COPYING = "communicating", "copying"
"""Causes that are time of the device: it only communicated, or copied, and no kernel computed at the same time."""
SAME_SIZE = 1.1
"""Steps of which one has up to so many times the other's tokens count as of one size."""
MIN_SAMPLES = 50
"""Stack samples below which nothing is concluded from them: the 95% interval of a share is wider than +-14 points."""

# Phases of a step that are not regions.
AFTER_OPTIMIZER, ELSEWHERE = "after the optimizer", "elsewhere"

BACKWARD, UPDATE = "backward", "optimizer"
"""The phases of a step in which gradients are computed, and in which the optimizer updates the parameters."""

DAMAGE = (
    "run-not-ended", "process-stopped", "metadata-damaged", "damaged-line", "damaged-lines", "file-unreadable",
    "impossible-records", "values-left-out", "lost-texts", "events-without-time", "trace-damaged",
)  # fmt: skip
"""Codes of problems of a run that was read in part. A torn last record is none: it is of the moment of a crash."""
LOADED_MACHINE = ("other-programs", "other-machines")
"""Codes of warnings about other work on the machine: reports show them beside the verdict, which they qualify."""

WITHOUT_CORE, WAITS_FOR_CORE = "without_core", "waits-for-core"
"""Measure of the share of a run in which it waited for a core that others had, and the reason not to compare times of
such runs."""
MAX_WITHOUT_CORE = 0.05
"""Share of a side's time up to which its waits for a core stay in a ratio: they change it by about that share, which is
less than runs vary. On a quiet machine it is below 0.01."""

GIT_COMMIT, ABSENT = "git commit", "-"
"""In the environment of a comparison, the row of the commit, and the value of a side that has none."""

# Names of input parts that are not regions of the program, or that conclusions are drawn from.
WAITING_FOR_INDEX, WAITING_FOR_WORKERS = "waiting for an index", "waiting for the workers"
RECEIVE, SEND = "receive", "send"
THE_LOADER, MARKED_DATA, BETWEEN_BATCHES = "the loader itself", "its region data", "between batches"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number with its unit and how sure it is; value None: not measured, and `reason` says why."""

    name: str
    """Its key in the object of measures."""
    value: float | None
    """The number in `unit`; None: not measured."""
    unit: str
    """The unit, such as `s`, `bytes` or `1/step`; `1`: a share, or a number without a unit."""
    low: float | None = None
    """Lower end of the 95% interval; of a side of a comparison, the lowest run. None: not known, as of few values."""
    high: float | None = None
    """Upper end of the interval, or the highest run; None: not known."""
    n: int = 0
    """How many observations (steps, runs, samples) stand behind it."""
    source: str = ""
    """The code of its source: steps, counters, thread clocks, nvml, ..."""
    reason: Notice | None = None
    """The reason why it was not measured; None: it was."""


class HostState(IntEnum):
    """The activity of the host while the device was idle."""

    AFTER_SYNC = 0
    AFTER_SYNC_IN_REGION = 1
    IN_REGION = 2
    IN_CALL = 3
    BLOCKED_IN_CALL = 4
    BETWEEN_CALLS = 5
    RECORDING = 6
    """The recorder wrote its own records: never a cause of the program's."""
    IN_PYTHON = 7
    """It ran the Python function that the site is of, in a foreign trace with Python frames."""
    EARLIER_WORK = 8
    """A foreign trace had no activity yet, but its first one was submitted, or the host waited for the device: it may
    have run work from before the trace began."""
    WITHOUT_CORE = 9
    """It had no core, or it waited for a device that is a thread and had none."""
    SUBMITTED = 10
    """It had submitted the next work already, in a foreign trace. So the device, and not the host, delayed that."""
    WITHIN_GRAPH = 11
    """The same between two activities of one call, such as the launch of a CUDA graph."""


WITH_WORK = (HostState.SUBMITTED, HostState.WITHIN_GRAPH)
"""States in which the device had its next work already."""


class SiteOrigin(IntEnum):
    """The call that the site of idle time belongs to."""

    ITSELF = 0
    FOLLOWING_CALL = 1
    PRECEDING_CALL = 2


@dataclass(frozen=True, slots=True)
class IdleBlame:
    """Device idle time charged to what the host was doing meanwhile."""

    state: HostState
    """What the host was doing."""
    subject: str
    """Name of the region, or kind of the call (`sync`, `h2d`, ...), that `state` refers to; else empty."""
    origin: SiteOrigin
    """The call that `site` belongs to."""
    category: str
    """A host category."""
    site: Site | None
    """The line of the user's own code; None: not recorded."""
    seconds_per_step: float
    """Seconds per step of idle time."""
    share_of_wall: float
    """The share of the wall time."""
    gaps_per_step: float
    """Gaps in the device's work per step."""
    is_once: bool = False
    """Whether it occurs once in a foreign trace, as the first calls of a library do."""


@dataclass(frozen=True, slots=True)
class DevicePart:
    """What occupied a device; several devices are averaged."""

    kind: str
    """`compute`, `communication`, `h2d`, `d2h`, `d2d` or `memset`."""
    memory: str
    """The memory on the host's side of a copy: `pageable` or `pinned`; empty: not known."""
    share: float
    """The share of the wall time."""
    exposed: float
    """The share of the wall time in which no more important work hides it: communication and copies are hidden behind
    kernels that compute, and copies behind communication."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of all kernels of one name, summed over the streams and the devices of the process."""

    name: str
    """Name of the kernel."""
    calls_per_step: float
    """Launches per step."""
    seconds_per_step: float
    """Seconds per step."""
    share: float
    """The share of the time of all kernels."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """One line of user code with the calls toward the device that it made."""

    site: Site
    """The line."""
    kind: str
    """What the calls do: `sync`, `h2d`, `d2h`, `launch`, ...; of CPU tensors `might_sync`."""
    calls_per_step: float
    """Calls per step."""
    seconds_per_step: float
    """Seconds per step that the host spends in them."""
    blocked_per_step: float
    """Seconds of these in which the host was blocked on the device."""
    bytes_per_step: float
    """Bytes per step that they copy or allocate."""
    operation: str = ""
    """The operation as the user wrote it: item, mask index, to, ...; empty where the kind is enough."""
    library: Site | None = None
    """The line of a library that makes most of the calls; None: the program makes them, torch, or Python's library."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """One line of the user's own code with the host time of the stepping thread below it, from stack samples."""

    site: Site
    """The line."""
    calls: str
    """The innermost library function that takes most of that time below the line; empty: the line itself."""
    seconds_per_step: float
    """Seconds per step below the line."""
    share: float
    """The share of the step's wall time."""
    low: float
    """Lower end of the 95% interval of `share`."""
    high: float
    """Upper end of the same interval."""
    samples: int
    """Stack samples that show the line."""
    categories: Mapping[str, float] = field(default_factory=dict)
    """Host category -> seconds per step of it; of a thread's lines, a thread's state instead."""
    unrecorded: float = 0.0
    """Seconds per step in no recorded region or call: what ran then is known by stack samples alone."""
    is_outside_torch: bool = False
    """Whether hardly any of this time is in operators of torch, as far as they were counted; False where that is not
    known."""

    @property
    def active(self) -> float:
        """Seconds per step of it in which the thread does not wait for a core."""
        return self.seconds_per_step - sum(self.categories.get(name, 0.0) for name in CORELESS_CATEGORIES)


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function of a library, torch or Python that takes at least a hundredth of a step below one line of the user's
    own code, with what it calls."""

    file: str
    """Its path below the folder of the library, such as `torch/optim/adam.py`."""
    name: str
    below: LineCost
    """That line, with the time in the function only."""
    lines: tuple[Site, ...] = ()
    """The innermost lines of the user's own code in that time, the most first: that line, or lines of code that the
    function calls."""


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """The operators that a line of the user's own code calls in a step; of no line: `site` is None."""

    site: Site | None
    is_backward: bool
    """Whether they are the gradient functions of those operators, in backward passes."""
    caller: str
    """loader | optimizer; empty: the program itself."""
    count: int
    seconds: float
    small_count: int
    """The number of calls of operators that are so small that calling them takes longer than computing them."""
    small_seconds: float


@dataclass(frozen=True, slots=True)
class TableGradient:
    """The gradient of a table, such as that of an embedding, whose rows a line looks up."""

    site: Site | None
    """The line that looks the rows up; None: a library does so by itself."""
    rows: int
    """Rows of the table."""
    taken: float
    """Rows that a step looks up, the same one several times if so."""
    seconds: float
    """Seconds per step in which the gradient is made."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What the training thread computes before the model in a step, outside of loaders and of torch's operators."""

    whole: LineCost
    """All of it, at the line that calls nearly all of it; where no single one does, at the line with most."""
    calls: str
    """The function of the user's own that this line calls; empty: it is the line with most."""
    lines: tuple[Site, ...]
    """The lines in which it is, the most seconds first; then those that count only because the rest of their function
    does this."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The line of the program below which a library runs the steps, such as `trainer.fit()`."""

    site: Site
    """The line."""
    share: float
    """The share of the measured time below it."""
    functions: tuple[tuple[str, float], ...]
    """Functions of the library below that line, each within the one before, with their shares of the measured time; all
    take more than half of it."""


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


@dataclass(frozen=True, slots=True)
class Phase:
    """A coarse part of a step; the phases exclude each other and sum to the step."""

    name: str
    """`data`, `forward`, `backward`, `optimizer`, `evaluation`, `roll-out`, `without gradients`, `compile`, `after the
    optimizer`, or `elsewhere` for other code."""
    seconds_per_step: float
    """Seconds per step."""
    share: float
    """The share of the step's wall time."""
    low: float
    """Lower end of the 95% interval of `share`."""
    high: float
    """Upper end of the same interval."""
    site: Site | None = None
    """The line under which most of it lies; None: no line has most of it, or it is not known."""
    calls: str = ""
    """The function of the user's own that this line calls, where it does."""
    categories: Mapping[str, float] = field(default_factory=dict)
    """Host category -> seconds per step in this phase, by samples; only of the optimizer, evaluation, roll-outs, work
    without gradients and compilation."""
    further: tuple[Site, ...] = ()
    """Where no line holds most of the phase, the lines with most of it."""
    steps: int = 0
    """The measured steps that have it, of a stage that interrupts the training; 0: not counted."""


class Stage(StrEnum):
    """What a program is doing at a time, in the order in which reports show it."""

    IMPORT = "import"
    START = "start"
    """Before the first step: starting Python, reading data, making the model."""
    COMPILE = "compile"
    """torch.compile compiles code."""
    TRAIN = "train"
    """Training steps, without the stages that interrupt them."""
    EVALUATION = "evaluation"
    ROLLOUT = "roll-out"
    """Reinforcement learning collects experience."""
    NO_GRADIENTS = "without gradients"
    """Other work without gradients that most steps do not have: generated samples, for example."""
    CHECKPOINT = "checkpoint"
    END = "end"
    """After the last step."""


INTERRUPTIONS = (Stage.EVALUATION, Stage.ROLLOUT, Stage.NO_GRADIENTS, Stage.COMPILE)
"""Stages within measured steps that are phases of a step."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """The time that a stage takes of the whole run; the stages exclude each other and sum to the run."""

    stage: Stage
    """The stage."""
    seconds: float
    """Seconds of the whole run."""
    share: float
    """The share of the whole run."""
    low: float
    """Lower end of the 95% interval of `share`."""
    high: float
    """Upper end of the same interval."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage costs that only some steps have: what these take more than the others, waits for a core left out.
    Unlike the time in the stage, it contains what the stage does to the rest of the step, such as cold caches."""

    seconds: float
    """Seconds per step, on average over all steps."""
    low: float
    """Lower end of the 95% interval of `seconds`."""
    high: float
    """Upper end of the same interval."""


class Period(StrEnum):
    """A stretch of a program in which no step was measured."""

    STARTUP = "startup"
    WARM_UP = "warm-up"
    TRACED = "traced"
    """Steps that torch's profiler traced."""
    PAUSE = "pause"
    """Between phases of training."""
    TEARDOWN = "teardown"


@dataclass(frozen=True, slots=True)
class UnmeasuredPeriod:
    """A stretch of the program in which no step was measured, and the lines that took most of it."""

    period: Period
    """The kind of stretch."""
    seconds: float
    """Its length in seconds."""
    lines: tuple[LineCost, ...] = ()
    """`seconds_per_step` of these is seconds of the stretch."""


@dataclass(frozen=True, slots=True)
class SpikeLine:
    """A line of the user's own code at which a part of the extra time of long steps lies."""

    site: Site
    """The line."""
    share: float
    """The share of the extra time of the long steps."""
    calls: str = ""
    """The function of the user's own that this line calls there."""
    imports: str = ""
    """The package that this line imports there."""


@dataclass(frozen=True, slots=True)
class Spikes:
    """The few steps that take much longer than the others, and where their extra time lies."""

    count: int
    """Number of long steps."""
    steps: int
    """Number of measured steps, long ones included."""
    every: int
    """The distance between them where it is the same: 10 where every 10th step is one; else 0."""
    times: float
    """How many times as long as the others they take, by the medians of both."""
    share: float
    """The share of all measured time that they take beyond the median of all steps."""
    lines: tuple[SpikeLine, ...] = ()
    """The most first; without any, none stands out, or `samples` are too few."""
    samples: int = 0
    """Stack samples in the long steps."""
    enough: bool = False
    """True if these samples tell at which lines the extra time lies."""
    stage: str = ""
    """The stage, or the region `loader start` or `garbage collection`, that recorded times show to take most of the
    extra time; or empty."""
    stage_share: float = 0.0
    """The share of the extra time that it takes."""
    categories: Mapping[str, float] = field(default_factory=dict)
    """Host category -> its share of the extra time, by `samples`; empty where these are too few."""
    seconds: float = 0.0
    """What they take beyond the median of all steps, all together."""


class ThreadState(StrEnum):
    """The activity of a sampled thread."""

    WAITING_FOR_DATA = "waiting-for-data"
    MAKING_DATA = "making-data"
    RECEIVING_DATA = "receiving-data"
    SYNC = "blocked-in-sync"
    PROBABLY_SYNC = "probably-blocked-in-sync"
    WAITING_FOR_RANKS = "waiting-for-ranks"
    PYTHON = "busy-in-python"
    TORCH = "in-torch"
    NATIVE = "in-native-code"
    COMPILING = "compiling"
    IMPORTING = "importing"
    CHECKPOINTING = "writing-checkpoint"
    LOGGING = "logging"
    LOCK = "waiting-for-lock"
    GIL = "waiting-for-gil"
    CORE = "waiting-for-core"
    NETWORK = "waiting-for-network"
    CHILD = "waiting-for-process"
    IDLE = "idle"


LOADER_WORKER = "loader worker"
"""The role of a process that makes batches for a loader."""


@dataclass(frozen=True, slots=True)
class ThreadActivity:
    """The activity of one thread while it was sampled, whether there are steps or not."""

    pid: int
    """Number of its process."""
    tid: int
    """Number of the thread."""
    process: str
    """Its role or name: rank 0, loader worker, training process, ..."""
    thread: str
    """Its name as the operating system has it; empty: the main thread."""
    state: ThreadState
    """The most frequent one."""
    share: float
    """The share of the thread's samples."""
    low: float
    """Lower end of the 95% interval of `share`."""
    high: float
    """Upper end of the same interval."""
    samples: int
    """Stack samples of the thread."""
    site: Site | None
    """The line of the user's own code with most samples of that state; None: it runs no code of the user's."""
    calls: str
    """The library function in which it was below that line."""
    on_cpu: float | None
    """Share of the time in which it ran on a CPU, by its own clock; None: not measured."""
    gil: float | None
    """Share of the time in which it held the GIL, by windows that saw only the holder; None: there was none."""
    states: tuple[tuple[ThreadState, float], ...] = ()
    """Every state with its share of the samples, the largest first."""
    lines: tuple[LineCost, ...] = ()
    """Its lines, the largest first: shares of the thread's samples, seconds of the recording, by state."""
    runs: str = ""
    """Without code of the user's: the outermost function of a library in that state, which a library started as a
    thread; empty: there is none."""

    @property
    def share_at_site(self) -> float:
        """Share of samples in this state at this line; the state's total share where lines are not known."""
        for line in self.lines:
            if line.site == self.site:
                return line.share * line.categories.get(self.state, 0.0) / (sum(line.categories.values()) or 1.0)
        return self.share


@dataclass(frozen=True, slots=True)
class RankActivity:
    """What one rank did in a step, in seconds per step."""

    rank: int
    """Number of the rank."""
    pid: int
    """Number of its process."""
    steps: int
    """Measured steps."""
    excluded: int
    """Measured steps that not all ranks have, which are left out where ranks are compared."""
    step_time: float
    """Mean seconds of the steps that all ranks measured; if there is no such step, of all steps of this rank."""
    own_work: float | None
    """The step without the waits for other ranks; None: not recorded, or the ranks do not wait for each other."""
    last: float | None
    """Share of the collectives in which this rank arrived last, where a trace has them; else of the steps in which it
    had most own work. None: not known."""
    categories: Mapping[str, float] = field(default_factory=dict)
    """Host category -> seconds per step; empty where it was not recorded."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that makes the others wait, and the category of its time that exceeds theirs most."""

    rank: int
    """Number of the rank."""
    lead: float
    """Seconds per step of own work beyond the median of the other ranks."""
    category: str
    """A host category, or `device compute`, `device copy`."""
    seconds: float
    """Seconds per step of that category on this rank."""
    others: float
    """The median of the other ranks."""
    site: Site | None = None
    """The line with most of the excess of that category; None: not known."""
    at_line: bool = False
    """Whether more than half of the excess is at this line; else only its function has as much."""
    alone: bool = False
    """Whether no sample of another rank is in the function of this line."""
    alike: tuple[int, ...] = ()
    """Other ranks that are nearly as late."""
    core: float = 0.0
    """Seconds per step that it waits longer for a core than the others, where the category is another one."""
    cpu: float = 0.0
    """Seconds per step that its stepping thread runs longer on a core than that of the others; 0: not known."""


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """A collective in which ranks wait because one of them arrives late."""

    name: str
    """Name of the collective, such as `all_reduce`."""
    site: Site | None
    """The line that calls it; None: not recorded."""
    rank: int
    """The rank that makes the others wait longest."""
    last: float
    """Share of the calls at which this rank was the last."""
    seconds: float
    """Seconds per step for which another rank waits, on average, until this rank arrives."""
    before: Site | None = None
    """The line at which this rank is for longer than the others between the collective before and this one; None:
    `reason` says why it is not known."""
    at_line: bool = False
    """Whether more than half of the difference is at this line; else only its function has as much."""
    reason: Notice | None = None
    """The reason why `before` is not known; None: it is known."""


@dataclass(frozen=True, slots=True)
class RankLedger:
    """The ranks of a program, and the one that makes the others wait."""

    ranks: tuple[RankActivity, ...]
    """By rank."""
    analysed: int
    """The rank that all other figures of the analysis are about."""
    synchronous: bool
    """Whether the ranks wait for each other, so that their steps end together."""
    straggler: Straggler | None = None
    """The rank that makes the others wait; None: none does, or `reason` says why it is not known."""
    reason: Notice | None = None
    """The reason why the analysis cannot tell whether a rank makes the others wait; None: it can."""
    uniform: bool = False
    """Whether all ranks spend their steps alike, so that what holds for the analysed one holds for all."""
    size: int = 0
    """The number of ranks of the job, of which some may not have been recorded."""
    few_steps: tuple[int, ...] = ()
    """Ranks that are left out, because they ended fewer than half as many steps as the rank with most of them."""
    collectives: tuple[CollectiveWait, ...] = ()
    """The collectives in which ranks wait for a late one, the longest wait first."""

    @property
    def late(self) -> int | None:
        """The rank that makes the others wait; None where there is none."""
        return self.straggler.rank if self.straggler else None


@dataclass(frozen=True, slots=True)
class Series:
    """Something over time; `times` in seconds from the start of the measured window."""

    name: str
    unit: str
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FlameNode:
    """One frame of a flame graph: `value` seconds inclusive of its children."""

    name: str
    value: float
    site: Site | None = None
    children: tuple[FlameNode, ...] = ()
    position: float = 0.0
    """The mean position of its samples within a step: 0 at the begin, 1 at the end."""


@dataclass(frozen=True, slots=True)
class FlameDiff:
    """One frame of two flame graphs laid over each other: inclusive seconds on the baseline and on the other side."""

    name: str
    before: float
    after: float
    site: Site | None = None
    children: tuple[FlameDiff, ...] = ()


class Topic(StrEnum):
    """The kind of result that is missing."""

    HOST_BREAKDOWN = "host-breakdown"
    DEVICE_BREAKDOWN = "device-breakdown"
    IDLE_BLAME = "idle-blame"
    FLAME_GRAPH = "flame-graph"
    CALL_SITES = "call-sites"
    MEASURE = "measure"
    COLLECTOR = "collector"


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that was not measured, and the reason; shown instead of a zero."""

    topic: Topic
    """The kind of result."""
    reason: Notice
    """The reason why it was not measured."""
    item: str = ""
    """The category of a breakdown, the measure or the collector that is missing; empty: all of it."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """What a part of a lane of a timeline was: a call, a region, or an activity of the device."""

    category: str
    """One of HOST_CATEGORIES or `allocate`; of an activity, one of DEVICE_CATEGORIES."""
    name: str
    site: Site | None
    is_device: bool = False


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """What the host, or a stream of the device, did one after the other."""

    name: str
    """`host`, `device`, `stream 7`"""
    is_device: bool
    begin: tuple[int, ...]
    """ns from the begin of the timeline; ascending, and the parts do not overlap."""
    end: tuple[int, ...]
    event: tuple[int, ...]
    """The number of each part's event in `Timeline.events`."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A stretch of a run for a figure; without lanes, and with the reason, where there is none."""

    lanes: tuple[TimelineLane, ...] = ()
    """The host first."""
    events: tuple[TimelineEvent, ...] = ()
    length: float = 0.0
    """Seconds that the lanes cover."""
    step: int = 0
    """The step that it shows, or a part of, of about median length."""
    step_length: float = 0.0
    """Seconds of that step."""
    offset: float = 0.0
    """Seconds from the begin of that step to that of the timeline."""
    tokens: int = 0
    """Tokens of that step; 0: the program counts none."""
    parts: int = 0
    """The parts of the host's lane in that step, of which the timeline may show some only."""
    whole: tuple[TimelineLane, ...] = ()
    """The same lanes over all of the step, each in parts of one length that have the category which is due: so each
    category has its share of the step. Empty where `lanes` show all of it."""
    reason: Notice | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The results of one run. docs/json.md explains the names of its measures."""

    info: RunInfo
    """What was recorded, how and where."""
    measures: Mapping[str, Measure]
    """Name -> measure of the run."""
    breakdown: Mapping[str, Measure]
    """Host category -> seconds per step; the categories exclude each other, and sum to `step_time`."""
    device_breakdown: Mapping[str, Measure]
    """Device category -> seconds per step; the categories exclude each other."""
    device_parts: tuple[DevicePart, ...] = ()
    """The device's time by kind of work, with what is hidden behind other work."""
    kernels: tuple[KernelTime, ...] = ()
    """The kernels with most time, the most seconds first."""
    float32_products: float = 0.0
    """The share of the wall time in which the device computes products and convolutions in float32 without tensor
    cores; 0 where the names of kernels do not tell."""
    memory_fills: tuple[float, float] = (0.0, 0.0)
    """Seconds per step in which a device, or in a trace of the CPU the host, only fills new memory, as deterministic
    algorithms do, and how often per step; 0 where that is not recorded."""
    steady_launches: float = 0.0
    """The launches that three of four measured steps have at least; 0 where that is not known, or of a single step."""
    idle: tuple[IdleBlame, ...] = ()
    """Idle time of the device by what the host was doing, the most seconds first."""
    call_sites: tuple[CallSite, ...] = ()
    """Calls toward the device by line, the most seconds first."""
    series: tuple[Series, ...] = ()
    flame: FlameNode | None = None
    missing: tuple[Missing, ...] = ()
    """What was not measured."""
    warnings: tuple[Notice, ...] = ()
    """Facts that make the numbers of this run less certain: few steps, other load on the machine, torn tables, ..."""
    verdict: str = ""
    """Why the program is slow, or that it is not, as a sentence; empty before the diagnosis."""
    headline: str = ""
    """The first sentence of `verdict`."""
    details: tuple[str, ...] = ()
    """The other sentences of `verdict`, for a line each."""
    unknown_reason: str = ""
    """Why what ran in a large part of a step is not known, as a sentence; empty where it is known."""
    outcome: str = ""
    """What `verdict` concludes, as a code of `profiler.diagnose.model.RunVerdict` such as `device-idle`."""
    outcome_share: float = 0.0
    """The share that belongs to `outcome`, such as that of idle time."""
    findings: tuple[Finding, ...] = ()
    """What takes the time, in the order in which a verdict tells it; empty before the diagnosis."""
    not_judged: tuple[NotJudged, ...] = ()
    """The rules that cannot judge this run."""
    step: StepDefinition | None = None
    """The definition of a step in this run, and how it was detected; None: the run has no steps."""
    lines: tuple[LineCost, ...] = ()
    """The time of the stepping thread by line of the user's code, the most seconds first."""
    library: tuple[LibraryFunction, ...] = ()
    """The time of the stepping thread in functions that are not the user's, the most seconds first."""
    recording: float = 0.0
    """Seconds of the stepping thread per step that the hooks took, estimated by the number of their records."""
    blocked: float | None = None
    """Seconds of the stepping thread per step in which it could not run, by its clocks; None: they were not read."""
    operators: tuple[OperatorLine, ...] = ()
    """The operators of one step by line, the most seconds first; empty if they were not counted."""
    tables: tuple[TableGradient, ...] = ()
    """The gradients of tables of which rows are looked up, the most seconds first."""
    made: Mapping[tuple[str, int], tuple[MadeObject, ...]] = field(default_factory=dict)
    """File and number of a line -> the objects that it uses, where the lines that make them are known."""
    preparation: Preparation | None = None
    """None: nothing is computed before the model, or it is not known."""
    driver: Driver | None = None
    """Where a library runs the steps; None: the program does so itself, or it is not known."""
    phases: tuple[Phase, ...] = ()
    """The step in coarse parts, in their order; of runs whose steps hooks found."""
    input: tuple[InputPart, ...] = ()
    """The parts of the loader's time, the most seconds first."""
    loader: LoaderUse | None = None
    """How the training process uses its loaders; None: no loader was seen in the measured steps."""
    batches: BatchCurve | None = None
    """How the time of a step depends on the items of its batches; None: the items were not counted."""
    startup_teardown: tuple[UnmeasuredPeriod, ...] = ()
    """Time before the first step, in warm-up and pauses, and after the last step."""
    stages: tuple[StageTime, ...] = ()
    """The time of the whole run by stage; empty if no steps were detected."""
    stage_costs: Mapping[Stage, StageCost] = field(default_factory=dict)
    """Of evaluations and checkpoints that some steps have and others have not."""
    spikes: Spikes | None = None
    """The few steps that take much longer than the others; None: there are none."""
    one_offs: Spikes | None = None
    """The steps that did work which occurs once, and are no measured steps; None: there are none."""
    threads: tuple[ThreadActivity, ...] = ()
    """The activity of each thread, the main process and its main thread first."""
    timeline: Timeline | None = None
    """It is None if it was not requested."""
    ranks: RankLedger | None = None
    """The ranks of the program; None: it has one rank."""
    results: tuple[StatedResult, ...] = ()
    """The results that the program stated with `profiler.result`."""
    path: Path | None = field(default=None, compare=False)
    """What it was loaded from: a run directory, an archive of one, or a trace."""
    ledger: Ledger | None = field(default=None, compare=False, repr=False)
    """All time of the run; None: it could not be divided into cells."""
    replay: Predictor | None = field(default=None, compare=False, repr=False)
    """Simulates the steps with changes; None where the activities of a device were not recorded, and after the findings
    were made, since it holds all records of the run."""

    @property
    def is_trace(self) -> bool:
        """Whether the run is a foreign trace of torch's profiler."""
        return self.step is not None and self.step.is_trace

    @property
    def job_size(self) -> int:
        """The number of ranks of the job, of which this run may hold only some."""
        if self.ranks is not None:
            return max(self.ranks.size, len(self.ranks.ranks) + len(self.ranks.few_steps))
        size = self.info.facts.get("world_size")
        return size if isinstance(size, int) else 1

    @property
    def judged(self) -> JudgedRun | None:
        """What the rules say about it; None where nothing tells what its steps are spent on."""
        step = self.value("step_time")
        return JudgedRun(self.findings, self.not_judged, step) if step and self.info.level != "light" else None

    def value(self, name: str) -> float | None:
        """The value of a measure; None: the run does not have it, or it was not measured."""
        measure = self.measures.get(name)
        return measure.value if measure else None

    @property
    def core_wait(self) -> float:
        """Seconds of a step in which the stepping thread could run and had no core, as far as they are known."""
        measures = (self.breakdown.get(name) for name in CORELESS_CATEGORIES)
        return sum(measure.value or 0.0 for measure in measures if measure is not None)

    @property
    def own_time(self) -> float:
        """Seconds of a step that are the program's own: without waits for a core, and without recording."""
        step = self.value("step_time") or 0.0
        if self.idle:  # of a device, the host's waits are a part of its idle time
            return step
        with_core = max(0.0, step - self.core_wait)
        return with_core - min(self.recording, with_core / 2)

    @property
    def is_undivided(self) -> bool:
        """Whether stack samples are too few to divide any time of a step: only what hooks record is known."""
        return any(each.code == "unrecorded-time" and each.values["of"] == "anything" for each in self.warnings)

    @property
    def samples(self) -> int:
        """The stack samples within the measured steps."""
        return sum(line.samples for line in self.lines)

    @property
    def unattributed_share(self) -> float | None:
        """The share of a step in which nothing tells what ran; None if the breakdown of the step was not measured."""
        part, step = self.breakdown.get(UNATTRIBUTED), self.value("step_time")
        return part.value / step if part and part.value is not None and step else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A side over the baseline, from interleaved pairs: geometric mean and 95% interval."""

    name: str
    """Name of the measure."""
    value: float | None
    """Geometric mean over the pairs; None: `reason` says why there is none."""
    low: float | None
    """Lower end of the 95% interval of `value`; None: too few pairs."""
    high: float | None
    """Upper end of the same interval; None: too few pairs."""
    n: int
    """Number of pairs."""
    different: bool
    """False: the interval contains 1, so that no difference was seen, whatever `value` is."""
    reason: Notice | None = None
    """Why there is no value or no interval; None: there is."""
    bound: float | None = None
    """Where a side waited for a core, so that there is no value: on a quiet machine the ratio is at least that, or at
    most that if it is below 1. None: not known, or there is a value."""

    @property
    def known(self) -> float | None:
        """The value or, where there is none, the bound."""
        return self.bound if self.value is None else self.value

    @property
    def is_doubted(self) -> bool:
        """Whether there is no value because a side waited for a core, or because its interval is too wide."""
        return self.reason is not None and self.reason.code in (WAITS_FOR_CORE, "too-wide")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its unrecorded-as-possible runs, and one detailed run."""

    label: str
    """Name of the side."""
    command: str
    """The command of its program, with secrets masked."""
    runs: tuple[Analysis, ...]
    """Light runs: every ratio comes from these only."""
    detail: Analysis | None
    """The breakdown pass, with the breakdown, the findings and the cells; its times never enter a ratio. None: none was
    made."""
    measures: Mapping[str, Measure]
    """Measures over the light runs: geometric means, so that the quotient of two sides is their ratio, and medians
    where a value is 0 or negative; `low` and `high` are the lowest and the highest run."""
    recording_slowdown: Measure
    """How many times slower a step was in the breakdown pass than in the light runs."""

    def value(self, name: str) -> float | None:
        """The value of a measure; None: the light runs do not have it, or it was not measured."""
        measure = self.measures.get(name)
        return measure.value if measure else None


class Extension(Protocol):
    """A part of a comparison that only some trainers measure; their plug-ins show it."""

    def method_sentences(self) -> Iterable[str]:
        """How it was measured."""

    def verdict_sentence(self) -> str:
        """Its part of the comparison's verdict; it may be empty."""

    def next_command(self) -> str:
        """Arguments of the profiler that measure each fix of the trainer by itself; empty where they would not."""


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """How the results of a run differ from those of the run that it is compared with."""

    different: int
    """Number of values that differ by more than their tolerance."""
    compared: int
    """Number of values that were compared."""
    call: int
    """The call of `profiler.result` with that name that states the first of them, from 1 on."""
    calls: int
    """The calls with that name that were compared."""
    position: int
    """Where the first of them is among the values of that call, from 0 on."""
    values: tuple[float, float] | None = None
    """The two values there; None: the values are not stored, only their checksums differ."""
    counts: tuple[int, int] | None = None
    """Where the numbers of values of a call differ: these numbers. None: they do not differ."""


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """Whether all runs of a comparison state the same results of one name."""

    name: str
    """Name of the results."""
    runs: int
    """Number of runs that were compared with the first run that states results of that name."""
    compared: int
    """Number of stored values that all these runs have in common with it."""
    stated: int
    """Number of values that the run with most of them states: more than `compared` where only some of them are stored,
    and where runs have different lengths."""
    near_ties: int
    """Number of values that may differ, because the two largest scores were nearly equal."""
    missing: tuple[str, ...]
    """Labels of the sides of which some run states no result of that name."""
    side: str
    """Label of the side of the run that differs most; empty: none differs."""
    difference: ResultDifference | None
    """How that run differs; None: all results are the same."""
    never: tuple[str, ...] = ()
    """Labels of the sides of which no run states a result of that name."""

    @property
    def are_same(self) -> bool:
        """Whether runs of all sides were compared, and none differs."""
        return bool(self.compared) and not self.missing and self.difference is None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A fact in which a run differs from the first run of the baseline, so that they are not comparable."""

    name: str
    """Name of the fact, or of the result."""
    before: str = ""
    """Its value on the baseline."""
    after: str = ""
    """Its value in the other run."""
    result: ResultComparison | None = None
    """The comparison of the results of the programs, if these differ; None: a fact differs."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more sides; the first is the baseline."""

    title: str
    """Name of the comparison."""
    created_at: str
    """When it was made, ISO 8601, UTC."""
    sides: tuple[Side, ...]
    """All sides in order."""
    ratios: Mapping[str, Mapping[str, Ratio]]
    """Label of a side -> name of a measure -> ratio over the baseline."""
    pairs: int
    """Interleaved pairs of runs behind every ratio."""
    comparable: bool
    """False: the sides must not be compared; `mismatches` say why."""
    mismatches: tuple[Mismatch, ...]
    """Why the sides are not comparable: facts, or else results, that differ."""
    forced: bool
    """True: not comparable, and compared nevertheless because the user gave --anyway."""
    verdict: str
    """How much faster the sides are and why, as a sentence."""
    headline: str = ""
    """The beginning of `verdict` that reads well in large type."""
    why: tuple[str, ...] = ()
    """What changed along with the speed of the last side, as sentences."""
    floor: Side | None = None
    """The least that the baseline's call pattern can cost: the same calls with empty kernels. None: it was not
    measured."""
    differences: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Facts of the environment that differ: name, and one value per side, `-` where a side has none."""
    packages: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Installed packages that differ: name, and one version per side, `-` where a side has none. They are looked up
    where the commands run different Pythons."""
    environment: tuple[tuple[str, str], ...] = ()
    """Rows that are the same on all sides."""
    method: tuple[Notice, ...] = ()
    """How it was measured."""
    flame_diff: FlameDiff | None = None
    """The flame graphs of the baseline and the last side laid over each other."""
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    """Extension by its name, such as `ladder`."""
    results: tuple[ResultComparison, ...] = ()
    """The stated results of all runs compared with those of the first run; empty: no run states any."""
    planned: int | None = None
    """The rounds that were planned, if a signal stopped the recording before all runs were made; None: all were
    made."""


@dataclass(frozen=True, slots=True)
class SiteCount:
    """What one line of a program does in each step, of one kind and name, counted exactly."""

    kind: CountKind
    name: str
    """The operator or call, with what memory a copy uses."""
    site: Site | None
    """With the file relative to the folder of the project; None: no line of the program."""
    before: int
    """Number before the first step ended: the program starts, and its first step may differ."""
    before_bytes: int
    per_step: Mapping[tuple[int, int], int]
    """Number and bytes in a step -> number of such steps, after the first step."""
    others: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Process and number of a step whose number is not `usual_number` -> by how much it differs."""
    frames: tuple[tuple[Site, int], ...] = ()
    """The lines of libraries that make the calls where `site` calls a library, each with their number; the most
    frequent first. torch and Python's own library are none."""

    @property
    def waits(self) -> bool:
        """Whether the host waits for the device."""
        copies = self.kind in (CountKind.H2D, CountKind.D2H)
        return self.kind is CountKind.SYNC or (copies and not self.name.endswith(NON_BLOCKING))

    @property
    def steps(self) -> int:
        """The number of steps after the first one, in which was counted."""
        return sum(self.per_step.values())

    @property
    def usual(self) -> tuple[int, int]:
        """Number and bytes in most steps."""
        return max(self.per_step, key=lambda each: (self.per_step[each], each), default=(0, 0))

    @property
    def usual_number(self) -> int:
        """The median of the number in a step."""
        steps = 0
        for (number, _), alike in sorted(self.per_step.items()):
            steps += alike
            if 2 * steps > self.steps:
                return number
        return 0

    @property
    def mean(self) -> float:
        """The mean number in a step."""
        return sum(number * steps for (number, _), steps in self.per_step.items()) / max(1, self.steps)

    @property
    def bytes_per_step(self) -> float:
        """The mean bytes of a step."""
        return sum(size * steps for (_, size), steps in self.per_step.items()) / max(1, self.steps)


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What a run that was counted does in its steps."""

    info: RunInfo
    steps: int
    counts: tuple[SiteCount, ...]
    label: str = ""
    """Name of the side of a comparison."""
