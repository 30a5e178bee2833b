"""Tells how busy a device with a queue was, or why that is not known."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import WITH_WORK, HostState, IdleBlame
from profiler.analyse.model.measures import LEAST_STEPS, UNATTRIBUTED, Measure, Topic
from profiler.core.errors import Notice
from profiler.core.facts import stated_device
from profiler.diagnose.model import (
    BETWEEN_OPERATORS,
    LAUNCHED_ONCE,
    SETUP_CALLS,
    SETUP_ONCE,
    SUBMITTED,
    WORTH_NAMING,
    RunDiagnosis,
    RunVerdict,
)

BUSY: Final = 0.8
"""Share of time from which a device, or of a step from which computing, counts as the limit."""
MIN_LAUNCHES: Final = 50
"""Launches of a trace whose steps do not repeat below which no cause of idle time is named. A step of a model makes
hundreds; the public traces with fewer show first calls, or a single step that is one CUDA graph."""
MANY_LAUNCHES: Final = 10
"""Launches per step from which they are many. A choice: a step of a few CUDA graphs or fused kernels has fewer."""
MAX_LISTED: Final = 5
"""Parts of a step or of a run that are listed, of those that no rule explains."""
COPIES: Final = ("h2d", "d2h", "d2d")
"""Kinds of copies, of calls and of parts of a device's time."""
_LAUNCH_CALLS: Final = ("launch", "memset", "event")


def diagnose_device(analysis: Analysis) -> RunDiagnosis | None:
    """Return how busy the device was, or why its idle time was not measured; None where the run does not tell when."""
    device = stated_device(analysis.info.facts, analysis.info.devices)
    busy = analysis.measures.get("device_utilization")
    parts = analysis.device_parts
    computing = sum(part.exposed for part in parts if part.kind == "compute") if parts else None
    if analysis.idle:
        idle = _mean_idle(analysis, sum(row.share_of_wall for row in analysis.idle))
        verdict = RunVerdict.DEVICE_IDLE if idle > 1 - BUSY else RunVerdict.DEVICE_BUSY
        few = too_few_launches(analysis) if verdict is RunVerdict.DEVICE_IDLE else None
        if any(finding.is_told for finding in analysis.findings):
            few = None
        earlier = sum(row.share_of_wall for row in analysis.idle if row.state is HostState.EARLIER_WORK)
        value = idle if verdict is RunVerdict.DEVICE_IDLE else 1 - idle
        earlier = earlier if earlier >= WORTH_NAMING else 0.0
        return RunDiagnosis(verdict, device, value, reason=few, computing=computing, earlier=earlier)
    if busy is None or busy.value is None or is_sampled(busy):
        return None
    if busy.value >= BUSY:
        return RunDiagnosis(RunVerdict.DEVICE_BUSY, device, busy.value, computing=computing)
    why = next((gap.reason for gap in analysis.missing if gap.topic is Topic.IDLE_BLAME), Notice("no-idle-blame"))
    return RunDiagnosis(RunVerdict.DEVICE_IDLE_UNEXPLAINED, device, 1 - busy.value, reason=why)


def is_sampled(busy: Measure) -> bool:
    """Return whether only NVML says how busy the device was: it sees no short gaps, so idle time does not follow from
    it."""
    return busy.source == "nvml"


def program_blame(analysis: Analysis) -> list[IdleBlame]:
    """Return the idle time but for what recording took, and what may have been work from before a trace began."""
    return [row for row in analysis.idle if row.state not in (HostState.RECORDING, HostState.EARLIER_WORK)]


def hides_waits(analysis: Analysis) -> bool:
    """Return whether Python of this run may be a wait inside CUDA: calls toward the device were not recorded."""
    launch = analysis.breakdown.get("launch")
    return analysis.info.facts.get("device") == "cuda" and (launch is None or launch.value is None)


def _mean_idle(analysis: Analysis, idle: float) -> float:
    """Return the idle share by the figure of busy time that all parts of a report have, which is a mean over the
    devices.

    :param idle: the share in which none of them ran, where there is no such figure, or its counter is contradicted.
    """
    busy = analysis.measures.get("device_utilization")
    doubtful = any(notice.code == "busy-mismatch" for notice in analysis.warnings)
    return idle if busy is None or busy.value is None or is_sampled(busy) or doubtful else 1 - busy.value


def missing_device(analysis: Analysis) -> Notice | None:
    """Return the notice that a trace lacks what its GPU did; None where it has that, or shows no GPU."""
    devices = ", ".join(dict.fromkeys(str(each.get("name") or "GPU") for each in analysis.info.devices))
    kind = analysis.info.facts.get("device")
    if not analysis.is_trace or analysis.idle or not (kind == "cuda" or (kind == "cpu" and devices)):
        return None
    return Notice("trace-without-device", {"device": devices or "GPU"})


def too_few_launches(analysis: Analysis) -> Notice | None:
    """Return the reason not to name causes of idle time in a trace; None with enough launches, or where its steps
    repeat them. Two steps alone may both be unusual: they must have many."""
    launches = analysis.measures.get("launches_per_step")
    if not analysis.is_trace or launches is None or launches.value is None:
        return None
    count, steady = round(launches.value * launches.n), analysis.steady_launches
    repeats = steady >= (1.0 if launches.n >= LEAST_STEPS else MANY_LAUNCHES)
    return None if repeats or count >= MIN_LAUNCHES else Notice("few-launches", {"launches": count})


def trace_category(category: str, subject: str, state: HostState, *, is_once: bool) -> tuple[str, str]:
    """Return the category of idle time of a trace, and the code of what is to be added. Calls that launch are the
    framework's. What occurs once is a category of its own, which no cure can change."""
    if state in WITH_WORK:
        return SUBMITTED, SUBMITTED
    if category == "launch" and subject not in _LAUNCH_CALLS:
        return (SETUP_ONCE, SETUP_ONCE) if is_once else ("launch", SETUP_CALLS)
    if category in ("launch", "framework"):
        return (LAUNCHED_ONCE, LAUNCHED_ONCE) if is_once else ("framework", "")
    if category in ("python", UNATTRIBUTED) and state is not HostState.IN_PYTHON:
        return UNATTRIBUTED, BETWEEN_OPERATORS
    return category, ""
