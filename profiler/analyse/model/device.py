"""Defines what a device did, why it was idle, and what the program asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from profiler.core.errors import Notice
from profiler.run.model import RunInfo, Site
from profiler.run.tables import NON_BLOCKING, CountKind

FILLING = "filling"
"""The time in which a device only fills new memory."""
COMMUNICATING, COPYING = "communicating", "copying"
"""Causes that are time of the device: it only communicated, or copied, and no kernel computed at the same time."""


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
        """Return whether the host waits for the device."""
        copies = self.kind in (CountKind.H2D, CountKind.D2H)
        return self.kind is CountKind.SYNC or (copies and not self.name.endswith(NON_BLOCKING))

    @property
    def steps(self) -> int:
        """Return the number of steps after the first one, in which was counted."""
        return sum(self.per_step.values())

    @property
    def usual(self) -> tuple[int, int]:
        """Return the number and bytes in most steps."""
        return max(self.per_step, key=lambda each: (self.per_step[each], each), default=(0, 0))

    @property
    def usual_number(self) -> int:
        """Return the median of the number in a step."""
        steps = 0
        for (number, _), alike in sorted(self.per_step.items()):
            steps += alike
            if 2 * steps > self.steps:
                return number
        return 0

    @property
    def mean(self) -> float:
        """Return the mean number in a step."""
        return sum(number * steps for (number, _), steps in self.per_step.items()) / max(1, self.steps)

    @property
    def bytes_per_step(self) -> float:
        """Return the mean bytes of a step."""
        return sum(size * steps for (_, size), steps in self.per_step.items()) / max(1, self.steps)


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What a run that was counted does in its steps."""

    info: RunInfo
    steps: int
    counts: tuple[SiteCount, ...]
    label: str = ""
    """Name of the side of a comparison."""
