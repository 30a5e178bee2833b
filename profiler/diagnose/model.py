"""Diagnoses as data: why a run is slow, what a comparison shows, what limits a running program.

`verdict_text`, `comparison_text` and `live_text` in `profiler.report` make the sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Mismatch, Ratio
from profiler.analyse.model.finding import Finding
from profiler.analyse.model.host import Driver, Spikes, ThreadActivity, ThreadState
from profiler.analyse.model.input import InputPart, LoaderUse
from profiler.analyse.model.ledger import Owner
from profiler.analyse.model.measures import UNATTRIBUTED
from profiler.analyse.model.ranks import RankLedger
from profiler.core.errors import Notice
from profiler.core.live import Snapshot
from profiler.run.model import Site

WORTH_NAMING: Final = 0.05
"""Share of a step below which no time is told."""
MOST: Final = 0.5
"""Share that a part must exceed to be most of a whole."""
NEARLY_ALL: Final = 0.9
"""Share of a whole from which what else it has is not worth mentioning. A choice."""
NAMED: Final = 0.1
"""Share from which a part is named at all: time of which nothing is known, since it may hide a cause, or what stands
beside another part. Time without a known cure may lead a verdict from it on."""
WORTH_LEADING: Final = 1.1
"""Gain from which a finding leads the verdict. A choice: a program that can become 10% faster at most is healthy."""
DEVICE_UNSEEN: Final = "device_unseen"
"""Value of a finding that is unsure because the device may have been busy meanwhile, which was not recorded."""
IDLE: Final = "idle-"
"""Before a host category: the time in which a device with a queue is idle, by what the host does meanwhile."""
BETWEEN_OPERATORS: Final = "between-operators"
PYTHON_OR_WAITS: Final = "python-or-device-wait"
SETUP_CALLS: Final = "setup-calls"
SETUP_ONCE, LAUNCHED_ONCE = "setup-once", "launched-once"
SUBMITTED: Final = "submitted"
CODE_OF: Final[Mapping[Owner, str]] = {
    Owner.IMPORT: "import",
    Owner.LIBRARY: "library-code",
    Owner.PYTHON: "standard-library-code",
    Owner.TORCH: "torch-code",
    Owner.USER: "program-code",
}
"""Names of a part of a run by whose code it was."""
OTHER_CODE: Final = "other-code"
RUNS_TRAINING: Final = frozenset(("accelerate", "fastai", "keras", "lightning", "pytorch_lightning", "transformers"))
"""Libraries whose code runs the whole training, so that most of their time is the training's own."""
WAITS_FOR_WORKERS: Final = "waits-for-workers"
RECORDED_COMPUTING: Final = "backward-and-update"
DENORMAL_COMPUTING: Final = "computing-denormal-numbers"
"""Names of time of which the category alone would tell too little."""
OF_TRAINING: Final = ("compute", "framework", RECORDED_COMPUTING, UNATTRIBUTED)
"""Names of time that leads only where nothing else is worth it: what a training is for, and what is not known."""
MOST_UNEXPLAINED: Final = 0.25
"""Share of unexplained time from which a finding has no gain by replay. A choice: 0.2 at most in the public traces that
are whole, and 0.46 and more in those that lack most of their events."""


class RunVerdict(StrEnum):
    """The outcomes of the diagnosis of a run, with what the `share` of the diagnosis means."""

    NOTHING_MEASURED = "nothing-measured"
    THREADS_ONLY = "threads-only"
    """No step was seen: what the main thread did."""
    NO_STEP = "no-step"
    """The hooks were there, and nothing ended a step."""
    DEVICE_IDLE = "device-idle"
    """`share` is the share of time in which the device was idle."""
    DEVICE_IDLE_UNEXPLAINED = "device-idle-unexplained"
    DEVICE_BUSY = "device-busy"
    """Share of time in which the device was busy."""
    DEVICE_UNRECORDED = "device-unrecorded"
    """A trace of a program, or of a machine, with a device lacks what that did."""
    DEVICE_BUSY_SAMPLED = "device-busy-sampled"
    """The same by NVML, which does not see short gaps."""
    COMPUTING = "computing"
    CAUSE = "cause"
    """Something else than computing, or than time of which nothing is known, comes first of what is told."""
    UNKNOWN_STEP = "unknown-step"
    STEP_TIME_ONLY = "step-time-only"
    UNKNOWN = "unknown"


BUSY_DEVICE: Final = (RunVerdict.DEVICE_BUSY, RunVerdict.DEVICE_BUSY_SAMPLED)


@dataclass(frozen=True, slots=True)
class UnknownShare:
    """Part of a step in which too few samples tell what ran."""

    share: float
    samples: int
    has_samples_outside: bool = False
    """Stacks were sampled before the first measured step or after the last."""
    in_trace: bool = False
    """The run is a foreign trace, which has no stack samples."""
    site: Site | None = None
    """The line at which the samples show most of it; None: there are no samples of it."""
    site_share: float = 0.0


class InputAdvice(StrEnum):
    """What the figures of the input suggest."""

    NONE = "none"
    USE_WORKERS = "use-workers"
    CHEAP_BATCHES = "cheap-batches"
    """The training process makes batches that workers could not deliver in less time."""
    NO_WORKERS = "no-workers"
    """Receiving a batch takes longer than making it."""
    PERSISTENT_WORKERS = "persistent-workers"
    LARGER_BATCHES = "larger-batches"
    """Receiving batches takes the time."""
    LATE = "late"
    """The workers have time left, and the training process waits for them."""
    UNEVEN = "uneven"
    """One worker is busy with the batches that take longest, and the others wait for it."""
    WORKERS_LIMIT = "workers-limit"
    """The workers are busy, and mostly compute."""
    MORE_WORKERS = "more-workers"
    """They mostly wait for something that is not a core."""
    MORE_CORES = "more-cores"
    """They mostly wait for a core."""


@dataclass(frozen=True, slots=True)
class InputDiagnosis:
    """What limits the input. Shares are of a step. Shares of workers are of the time in which they exist."""

    advice: InputAdvice
    use: LoaderUse
    cores: int | None = None
    waits: float = 0.0
    """Waiting for workers, but for those that a loader has just started, or ends."""
    receives: float = 0.0
    starts: float = 0.0
    around_starts: float = 0.0
    """Waiting for the first batch of each worker after a start, and for the end of workers after an epoch."""
    sampling: float = 0.0
    """Drawing the indices of batches, also where workers make them: a part of `making`, and none of `waits`."""
    making: float = 0.0
    """All of the loader's time in the training process."""
    batch_seconds: float = 0.0
    """The same in seconds per batch, without the drawing of indices."""
    receive_seconds: float = 0.0
    """Seconds per batch of receiving alone, without waits for a core."""
    made_seconds: float = 0.0
    """Seconds per batch of the dataset, of tokenizing and of collating, in workers without their waits for a core."""
    substantial: float = 0.0
    """Least share of a step with which the input matters."""
    busy: float = 0.0
    """Share of the workers' time in which they do not wait for work."""
    inline: float = 0.0
    """Input that the training thread makes outside of any loader."""
    inline_part: InputPart | None = None

    @property
    def made(self) -> float:
        """Return what of `making` is no drawing of indices, so that workers could do it instead."""
        return self.making - self.sampling


@dataclass(frozen=True, slots=True)
class RunDiagnosis:
    """Why a run is slow, or that it is not."""

    verdict: RunVerdict
    device: str = ""
    share: float = 0.0
    seconds: float = 0.0
    """Seconds of a step."""
    unknown: UnknownShare | None = None
    reason: Notice | None = None
    """Why the device's idle time, or its cause, was not measured."""
    thread: ThreadActivity | None = None
    steps_share: float = 0.0
    """The share of the run that the measured steps are, where that is small."""
    spikes: Spikes | None = None
    ranks: RankLedger | None = None
    """The ranks of the program; all other fields are about the rank that was analysed. None: there is one."""
    driver: Driver | None = None
    """The line below which a library drives the steps."""
    computing: float | None = None
    """Share of the time in which a device with a queue computed; None: not known."""
    is_whole_trace: bool = False
    """Whether the only step is a whole trace, since it has no annotated steps."""
    earlier: float = 0.0
    """Share of the time in which the device may have run work that a foreign trace misses, since it began later."""
    findings: tuple[Finding, ...] = ()
    """What takes the time, in the order in which a verdict tells it."""
    peak_share: float | None = None
    """Share of the card's peak that the program's arithmetic takes; None: not known."""


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """How much a phase of a step grew, in seconds per step; below 0 where it shrank."""

    phase: str
    seconds: float
    site: Site | None = None


class TimeChangeKind(StrEnum):
    """What changed between two breakdown passes."""

    IDLE = "idle"
    """Idle time of the device, by the host category that it is charged to."""
    HOST = "host"
    """A category of the host's time."""
    PHASE = "phase"
    SEVERAL_PHASES = "several-phases"
    ALL_PHASES = "all-phases"


@dataclass(frozen=True, slots=True)
class TimeChange:
    """What changed most in the direction of the step time from one breakdown pass to the other."""

    kind: TimeChangeKind
    name: str
    """A host category or a phase; empty for several phases."""
    faster: bool
    """Whether the step became faster, so that this fell."""
    is_cause: bool
    """It makes up most of the change of the step time. Time that nothing recorded explains nothing."""
    before: float = 0.0
    after: float = 0.0
    as_shares: bool = False
    """`before` and `after` are shares of a step; else seconds per step."""
    site: Site | None = None
    """The line that takes most of it, on the side where it is larger."""
    site_seconds: float | None = None
    phases: tuple[PhaseChange, ...] = ()
    """The phases that went the way of the step time, the largest change first."""
    against: tuple[PhaseChange, ...] = ()
    """The phase that went the other way most, where it is worth naming."""
    step_seconds: float = 0.0
    """Change of the step time; set for several phases only."""

    @property
    def is_several(self) -> bool:
        """Return whether no phase makes up most of the change by itself."""
        return self.kind in (TimeChangeKind.SEVERAL_PHASES, TimeChangeKind.ALL_PHASES)


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A counter that changed in the direction of the step time, per step."""

    name: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class WorkerMove:
    """The work of a side is done in other processes: what its stepping process does then explains nothing."""

    engine: str
    workers: int


@dataclass(frozen=True, slots=True)
class Growth:
    """An entry of the ledger that takes longer in each step than in the baseline: seconds."""

    site: Site | None
    package: str
    """The library in which it is spent; empty: the line itself."""
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class SideDiagnosis:
    """One side against the baseline."""

    base: str
    side: str
    speed: Ratio | None
    """None, or without a value: its speed relative to the baseline is not known, and `reason` says why."""
    unit: str = ""
    devices: tuple[str, ...] = ()
    reason: Notice | None = None
    moved: WorkerMove | None = None
    change: TimeChange | None = None
    explained: bool = False
    """`change` is the cause of the difference in speed."""
    counters: tuple[CounterChange, ...] = ()
    busy: tuple[float, float] | None = None
    """Share of time in which the device was busy, before and after, where nothing else is known to have changed."""
    grown: tuple[Growth, ...] = ()
    """What takes longer in each step of a slower side, the largest first."""
    slowed: tuple[str, float] | None = None
    """Label of the side whose breakdown pass was slowed down too much to explain its light runs, and how much."""


@dataclass(frozen=True, slots=True)
class ComparisonDiagnosis:
    """What a comparison shows."""

    comparable: bool
    forced: bool
    mismatches: tuple[Mismatch, ...]
    sides: tuple[SideDiagnosis, ...] = ()
    starts: tuple[tuple[str, float], ...] = ()
    """Label and seconds before the first step, of sides whose programs state it."""
    ranks: tuple[tuple[str, RankLedger | None, int], ...] = ()
    """Label, ranks and size of the job of every side. The ranks are None where one process was recorded. Empty where
    that holds for every side."""


class LiveLimit(StrEnum):
    """What limits a running program, as far as it can be seen from outside."""

    UNKNOWN = "unknown"
    GPU = "gpu"
    HOST = "host"
    HOST_OR_WAITS = "host-or-waits"
    """The host, or waits in which it spins."""
    CPU = "cpu"
    THREAD = "thread"
    CORES = "cores"
    """Too few free cores."""
    RECORDED_PART = "recorded-part"
    """The recorded part of the steps that is named with the figures."""
    WORKERS = "workers"
    DISK = "disk"
    WAIT_FOR_GPU = "wait-for-gpu"
    """It waits, perhaps for the GPU."""
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class LiveDiagnosis:
    """What limits a running program now, with the figures that say so; shares are of 1."""

    limit: LiveLimit
    stalled: float | None = None
    """Seconds without a step, where that is unusually long."""
    role: str = ""
    thread_cpu: float = 0.0
    part: str = ""
    """Name of the recorded part of the steps that the thread spends much time in; the thread spent the share
    `part_share` of the last `part_window` seconds in it."""
    part_share: float = 0.0
    part_window: float = 0.0
    gpu: float | None = None
    cores_used: float | None = None
    cores: float = 0.0
    delayed: float = 0.0
    """Share of time in which the thread waited for a free core."""
    busy_workers: int = 0
    workers: int = 0
    throttled: float = 0.0
    """Share of time in which it had no core because the CPU quota of its group was used up: an estimate."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """A running program at one moment, with what is known of why it is slow: what a screen or an exporter reads."""

    snapshot: Snapshot
    diagnosis: LiveDiagnosis
    analysis: Analysis | None = None
    """What was recorded so far, with the findings."""
    not_judged: str = ""
    """Why there is no analysis."""


def busy_thread(analysis: Analysis) -> ThreadActivity | None:
    """Return the first thread that does not stand by, as a launcher does while its children work; None without
    threads."""
    working = (thread for thread in analysis.threads if thread.state not in (ThreadState.IDLE, ThreadState.CHILD))
    return next(working, next(iter(analysis.threads), None))


def is_large_of_run(finding: Finding) -> bool:
    """Tell whether what occurs once, or grows, takes so much that a verdict may be about it."""
    is_open = finding.is_growth and not finding.share  # how long the run is may not be known yet
    return finding.of_steps >= NAMED and (finding.share >= NAMED or is_open)


def is_worth(finding: Finding) -> bool:
    """Tell whether a finding may lead a verdict: by its gain, without one by its share, and of time that no rule
    explains by the share that is certain."""
    if finding.gains:
        return finding.gain >= WORTH_LEADING
    name, sure = finding.rule.name, finding.low
    if finding.has_cure:
        name, sure = max(finding.costs, key=lambda each: finding.costs[each], default=""), finding.share
    return sure >= NAMED and (name not in OF_TRAINING or bool(finding.known_cure))
