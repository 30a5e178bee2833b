"""The values that analysis makes of recorded runs: measures, breakdowns, blame, comparisons.

Everything is a frozen dataclass. Durations are float seconds. A `Measure` whose value is None was not measured, and its
`reason` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from profiler.run.model import RunInfo, Site, StepDefinition

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
    "unattributed",
)
# Device categories of a step, exclusive; idle is what remains of the wall time.
DEVICE_CATEGORIES = ("compute", "copy", "communication", "idle")
# What idle time is charged to while the recorder wrote its own records: no doing of the program, so never a cause.
RECORDING_ITSELF = "recording itself (profiler.marks)"
# How notes begin that tell of other work on the machine: reports say them beside the verdict, which they qualify.
OTHER_PROGRAMS, OTHER_MACHINES = "other programs used", "other virtual machines took"
# Where a part of the input is made, and the parts and endings of their names that conclusions are drawn from.
IN_WORKERS, IN_MAIN = "worker", "main process"
WAITING_FOR_WORK, WAITING_FOR_WORKERS, RECEIVE = "waiting for an index", "waiting for the workers", "receive"
INLINE, OWN_THREAD = ", outside of a loader", ", in a thread of its own"

MIN_SAMPLES = 50
"""Stack samples below which nothing is concluded from them: the 95% interval of a share is wider than +-14 points."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number with its unit and how sure it is; value None: not measured, and `reason` says why."""

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    n: int = 0
    """How many observations (steps, runs, samples) stand behind it."""
    source: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class IdleBlame:
    """Device idle time charged to what the host was doing meanwhile."""

    doing: str
    """In words: 'after the sync', 'in region tokenize', 'python between calls', ..."""
    category: str
    """One of HOST_CATEGORIES."""
    site: Site | None
    seconds_per_step: float
    share_of_wall: float
    gaps_per_step: float


@dataclass(frozen=True, slots=True)
class HotSite:
    """One line of user code with what it asked of the device."""

    site: Site
    kind: str
    """Name of the CallKind: sync, h2d, launch, ..."""
    calls_per_step: float
    seconds_per_step: float
    blocked_per_step: float
    """Seconds of these in which the host was blocked on the device."""
    bytes_per_step: float
    operation: str = ""
    """What the user wrote: item, mask index, to, ...; empty where the kind says it all."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """One line of the user's own code with the host time of the stepping thread below it, from stack samples."""

    site: Site
    calls: str
    """What most of that time was in below the line: the innermost library function; empty: the line itself."""
    seconds_per_step: float
    share: float
    """Of the step's wall time; low and high are its 95% interval."""
    low: float
    high: float
    samples: int
    categories: Mapping[str, float] = field(default_factory=dict)
    """Host category -> seconds per step of it."""


@dataclass(frozen=True, slots=True)
class InputPart:
    """One cause of the time that a loader takes, on the side where the data is made."""

    name: str
    """dataset, collate, tokenize, worker start, pin memory, waiting for a free place, ..."""
    where: str
    """worker | main process"""
    seconds_per_step: float
    """Summed over the workers, a step of the training process."""
    share: float
    """Of the wall time of all workers (or of the training thread)."""
    site: Site | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """A coarse part of a step; the phases exclude each other and sum to the step."""

    name: str
    """data | forward | backward | optimizer | after the optimizer | elsewhere"""
    seconds_per_step: float
    share: float
    """Of the step's wall time; low and high are its 95% interval, the same where it was recorded exactly."""
    low: float
    high: float
    site: Site | None = None
    """The line under which most of it lies."""
    calls: str = ""
    """The function of the user's own that this line calls, where it does."""


@dataclass(frozen=True, slots=True)
class Outside:
    """A stretch of the program in which there are no steps: its start, its end."""

    name: str
    seconds: float
    lines: tuple[LineCost, ...] = ()
    """`seconds_per_step` of these is seconds of the stretch."""


@dataclass(frozen=True, slots=True)
class SpikeLine:
    """A line of the user's own code at which a part of the extra time of long steps lies."""

    site: Site
    share: float
    """Of the extra time of the long steps."""


@dataclass(frozen=True, slots=True)
class Spikes:
    """The few steps that take much longer than the others, and where their extra time lies."""

    count: int
    """Long steps, of `steps` measured ones."""
    steps: int
    every: int
    """The distance between them where it is the same: 10 where every 10th step is one; else 0."""
    times: float
    """How many times as long as the others they take, by the medians of both."""
    share: float
    """Of all measured time what they take beyond the median of all steps."""
    lines: tuple[SpikeLine, ...] = ()
    """The most first; without any, none stands out, or `samples` are too few."""
    samples: int = 0
    """Stack samples in the long steps."""
    enough: bool = False
    """Whether these tell at which lines the extra time lies."""


@dataclass(frozen=True, slots=True)
class Doing:
    """What one thread was doing most of the time in which it was sampled, whether there are steps or not."""

    pid: int
    tid: int
    process: str
    """rank 0, loader worker, main process, ..., in words."""
    thread: str
    """Its name as the operating system has it; empty: the main thread."""
    answer: str
    """waiting for data, probably blocked in a sync, busy in Python, inside torch operators, idle, ..."""
    share: float
    """Of the thread's samples; low and high are its 95% interval."""
    low: float
    high: float
    samples: int
    site: Site | None
    """The line of the user's own code with most of that."""
    text: str
    """What stands in that line; empty: not known."""
    calls: str
    """The library function in which it was below that line."""
    on_cpu: float | None
    """Share of the time in which it ran on a CPU, by its own clock; None: not measured."""
    gil: float | None
    """Share of the time in which it held the GIL, by windows that saw only the holder; None: there was none."""
    parts: tuple[tuple[str, float], ...] = ()
    """Every answer with its share of the samples, the largest first."""
    lines: tuple[LineCost, ...] = ()
    """Where it was, the largest first: shares of the thread's samples, seconds of the recording, by answer."""

    @property
    def share_at_site(self) -> float:
        """Of the samples those with the answer at its line; the answer's whole share where lines are not known."""
        for line in self.lines:
            if line.site == self.site:
                return line.share * line.categories.get(self.answer, 0.0) / (sum(line.categories.values()) or 1.0)
        return self.share


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


@dataclass(frozen=True, slots=True)
class FlameDiff:
    """One frame of two flame graphs laid over each other: inclusive seconds on the baseline and on the other side."""

    name: str
    before: float
    after: float
    site: Site | None = None
    children: tuple[FlameDiff, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that was not measured, and the reason; shown instead of a zero."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A stretch of a run as a trace that a page can carry; without data, and with the reason, where there is none."""

    data: bytes = b""
    """Chrome trace JSON, gzip."""
    window: str = ""
    """Which stretch it is, in words: steps 40 to 79 of 120, 1.2 s."""
    whole: bool = False
    """True: it is all that was recorded."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What one run says. Names of `measures` are the keys of the JSON report (see docs/json.md)."""

    info: RunInfo
    measures: Mapping[str, Measure]
    """tokens_per_s, steps_per_s, step_time, steps, device_utilization (0..1), host_cpu (cores), device_cpu (cores),
    peak_memory (bytes), loss, accuracy, and X_per_step for every counter X (syncs, h2d, d2h, h2d_bytes, ...)."""
    breakdown: Mapping[str, Measure]
    """Host seconds per step of each of HOST_CATEGORIES; exclusive, they sum to step_time."""
    device_breakdown: Mapping[str, Measure]
    """Device seconds per step of each of DEVICE_CATEGORIES."""
    idle: tuple[IdleBlame, ...] = ()
    """Largest first."""
    hot: tuple[HotSite, ...] = ()
    """Largest first."""
    series: tuple[Series, ...] = ()
    flame: FlameNode | None = None
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    """Doubts that the tool has about this run: few steps, other load on the machine, torn tables, ..."""
    verdict: str = ""
    """One sentence: why it is slow, or that it is not."""
    step: StepDefinition | None = None
    """What a step is in this run, and how that was found."""
    lines: tuple[LineCost, ...] = ()
    """Every millisecond of the stepping thread by line of the user's code, the most seconds first."""
    phases: tuple[Phase, ...] = ()
    """The step in coarse parts, in their order; of runs whose steps hooks found."""
    input: tuple[InputPart, ...] = ()
    """What the loader's time is made of, the most seconds first."""
    outside: tuple[Outside, ...] = ()
    """Time before the first step and after the last."""
    spikes: Spikes | None = None
    """None: no step takes much longer than the others."""
    doing: tuple[Doing, ...] = ()
    """What each thread was doing, the main process and its main thread first."""
    timeline: Timeline | None = None
    """None: nobody asked for one."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A side over the baseline, from interleaved pairs: geometric mean and 95% interval."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    """Pairs."""
    different: bool
    """False: the interval contains 1, no difference seen."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its unrecorded-as-possible runs, and one detailed run."""

    label: str
    command: str
    runs: tuple[Analysis, ...]
    """Light runs: every ratio comes from these only."""
    detail: Analysis | None
    """The breakdown pass: breakdown, blame, flame graph; its times never enter a ratio."""
    measures: Mapping[str, Measure]
    """Over the light runs: median, with the lowest and highest run as low and high."""
    recording_slowdown: Measure
    """How many times slower a step was in the breakdown pass than in the light runs."""


class Extension(Protocol):
    """What only some trainers measure in a comparison; the plug-ins that know it show it."""

    def method_sentences(self) -> Iterable[str]:
        """How it was measured."""

    def verdict_sentence(self) -> str:
        """What the verdict of the comparison says of it; may be empty."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more sides; the first is the baseline."""

    title: str
    created_at: str
    sides: tuple[Side, ...]
    ratios: Mapping[str, Mapping[str, Ratio]]
    """side label -> measure name -> ratio over the baseline."""
    pairs: int
    comparable: bool
    reasons: tuple[str, ...]
    """Why the sides are not comparable."""
    forced: bool
    """True: not comparable, and compared all the same because the user said --anyway."""
    verdict: str
    floor: Side | None = None
    """The least that the baseline's call pattern can cost: the same calls with empty kernels."""
    differences: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Rows of the environment that differ: name, value per side."""
    environment: tuple[tuple[str, str], ...] = ()
    """Rows that are the same on all sides."""
    method: tuple[str, ...] = ()
    """How it was measured, sentence by sentence."""
    flame_diff: FlameDiff | None = None
    """The flame graphs of the baseline and the last side laid over each other."""
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    """By name, such as `ladder`."""
