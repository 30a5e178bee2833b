"""Diagnoses a device with a queue whose activities were recorded: why it was idle, or that it was busy."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import Analysis, Cause, HostState, IdleBlame, Location, LocationKind, Measure, Topic
from profiler.core.facts import stated_device
from profiler.core.notice import Notice
from profiler.diagnose.model import WORTH_NAMING, RunDiagnosis, RunVerdict
from profiler.run.model import Site

BUSY: Final = 0.8
"""Share of time from which a device, or of a step from which computing, counts as the limit."""
MOST: Final = 0.5
"""Share of a category's idle time that a line must exceed to be named as its place."""
_MAX_CAUSES: Final = 2


def diagnose_device(analysis: Analysis) -> RunDiagnosis | None:
    """Why the device was idle, that it was busy, or that the reason was not measured; None where the run does not tell
    when the device was busy."""
    device = stated_device(analysis.info.facts, analysis.info.devices)
    if analysis.idle:
        idle = sum(row.share_of_wall for row in analysis.idle)
        if idle > 1 - BUSY:
            return RunDiagnosis(RunVerdict.DEVICE_IDLE, device, idle, _idle_causes(analysis, _MAX_CAUSES))
        return RunDiagnosis(RunVerdict.DEVICE_BUSY, device, 1 - idle, _idle_causes(analysis, 1))
    busy = analysis.measures.get("device_utilization")
    if busy is None or busy.value is None or is_sampled(busy):
        return None
    if busy.value >= BUSY:
        return RunDiagnosis(RunVerdict.DEVICE_BUSY, device, busy.value)
    why = next((gap.reason for gap in analysis.missing if gap.topic is Topic.IDLE_BLAME), Notice("no-idle-blame"))
    return RunDiagnosis(RunVerdict.DEVICE_IDLE_UNEXPLAINED, device, 1 - busy.value, reason=why)


def is_sampled(busy: Measure) -> bool:
    """Whether only NVML says how busy the device was: it sees no short gaps, so idle time does not follow from it."""
    return busy.source == "nvml"


def program_blame(analysis: Analysis) -> list[IdleBlame]:
    """The idle time that the program can do something about: all but what recording itself took."""
    return [row for row in analysis.idle if row.state is not HostState.RECORDING]


def _idle_causes(analysis: Analysis, limit: int) -> tuple[Cause, ...]:
    """The categories that most of the idle time is charged to; at least one where there is any."""
    rows: dict[str, list[IdleBlame]] = {}
    for row in program_blame(analysis):
        rows.setdefault(row.category, []).append(row)
    causes = []
    for category, blamed in rows.items():
        largest = max(blamed, key=lambda row: row.share_of_wall)
        location = _idle_location(blamed)
        causes.append(Cause(category, sum(row.share_of_wall for row in blamed), location=location, blame=largest))
    causes.sort(key=lambda cause: -cause.share)
    return tuple(cause for cause in causes[:limit] if cause.share >= WORTH_NAMING) or tuple(causes[:1])


def _idle_location(rows: list[IdleBlame]) -> Location | None:
    """The line that more than half of a category's idle time is charged to."""
    lines: dict[Site | None, float] = {}
    for row in rows:
        lines[row.site] = lines.get(row.site, 0.0) + row.share_of_wall
    site = max(lines, key=lambda line: lines[line])
    share = lines[site] / (sum(lines.values()) or 1.0)
    return Location(LocationKind.LINE, (site,), share, share, share) if site is not None and share > MOST else None
