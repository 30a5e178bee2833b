"""Defines what all results of an analysis share: categories of time, measures, and what is missing.

Durations are float seconds. A `Measure` whose value is None was not measured, and its `reason` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from profiler.core.errors import Notice

UNATTRIBUTED = "unattributed"
"""The host category of time in which nothing tells what ran."""
# Host categories of a step, exclusive, in the order in which reports show them.
HOST_CATEGORIES = (
    "input", "sync", "copy", "launch", "framework", "compute", "log", "checkpoint", "python", "gil", "ranks", "waiting",
    "core", "throttled", UNATTRIBUTED,
)  # fmt: skip
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
SAME_SIZE = 1.1
"""Steps of which one has up to so many times the other's tokens count as of one size."""
MIN_SAMPLES = 50
"""Stack samples below which nothing is concluded from them: the 95% interval of a share is wider than +-14 points."""


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


@dataclass(frozen=True, slots=True)
class Series:
    """Something over time; `times` in seconds from the start of the measured window."""

    name: str
    unit: str
    times: tuple[float, ...]
    values: tuple[float, ...]


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
