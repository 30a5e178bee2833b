"""Defines what the host did: lines, phases and stages of steps, long steps, and threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from profiler.analyse.model.measures import CORELESS_CATEGORIES
from profiler.run.model import Site

# Phases of a step that are not regions.
AFTER_OPTIMIZER, ELSEWHERE = "after the optimizer", "elsewhere"
BACKWARD, UPDATE = "backward", "optimizer"
"""The phases that compute gradients and update the parameters."""


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
    """Whether hardly any of this time is in counted operators of torch. False: it is not known, or much is."""

    @property
    def active(self) -> float:
        """Return the seconds per step of it in which the thread does not wait for a core."""
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
    """The gradient of a table, such as an embedding: a line looks up some of its rows."""

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
        """Return the share of samples in this state at this line; the state's total share where lines are not known."""
        for line in self.lines:
            if line.site == self.site:
                return line.share * line.categories.get(self.state, 0.0) / (sum(line.categories.values()) or 1.0)
        return self.share


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
