"""Diagnoses a device with a queue whose activities were recorded: what it was busy with, and why it was idle.

A foreign trace has no samples, so what the host did is known from its operators, calls and Python functions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from profiler.analyse.model import (
    COMMUNICATING,
    COPYING,
    UNATTRIBUTED,
    Analysis,
    Cause,
    HostState,
    IdleBlame,
    Location,
    LocationKind,
    Measure,
    Topic,
)
from profiler.core.facts import stated_device
from profiler.core.notice import Notice
from profiler.diagnose.model import NAMED, WORTH_NAMING, RunDiagnosis, RunVerdict
from profiler.run.model import Site

BUSY: Final = 0.8
"""Share of time from which a device, or of a step from which computing, counts as the limit."""
MOST: Final = 0.5
"""Share of a category's idle time that a line must exceed to be named as its place."""
MIN_LAUNCHES: Final = 50
"""Launches below which no cause of idle time is named. A step of a model makes hundreds; the public traces with fewer
show first calls, or a single step that is one CUDA graph."""
MAX_CAUSES: Final = 5
"""Causes that a first screen has room for."""
_MAX_PLACES: Final = 3
_COPIES: Final = ("h2d", "d2h", "d2d")
_LAUNCH_CALLS: Final = ("launch", "memset", "event")


def diagnose_device(analysis: Analysis) -> RunDiagnosis | None:
    """What the device was busy with and why it was idle, or that the reason was not measured; None where the run does
    not tell when the device was busy."""
    device = stated_device(analysis.info.facts, analysis.info.devices)
    busy = analysis.measures.get("device_utilization")
    parts = analysis.device_parts
    computing = sum(part.exposed for part in parts if part.kind == "compute") if parts else None
    if analysis.idle:
        idle = _mean_idle(analysis, sum(row.share_of_wall for row in analysis.idle))
        verdict = RunVerdict.DEVICE_IDLE if idle > 1 - BUSY else RunVerdict.DEVICE_BUSY
        few = too_few_launches(analysis) if verdict is RunVerdict.DEVICE_IDLE else None
        idle_causes = _idle_causes(analysis)
        if few and (single := _single_calls(idle_causes)):
            few, idle_causes = None, single
        earlier = sum(row.share_of_wall for row in analysis.idle if row.state is HostState.EARLIER_WORK)
        causes = _named([*([] if few else idle_causes), *_busy_causes(analysis)], verdict)
        value = idle if verdict is RunVerdict.DEVICE_IDLE else 1 - idle
        earlier = earlier if earlier >= WORTH_NAMING else 0.0
        return RunDiagnosis(verdict, device, value, causes, reason=few, computing=computing, earlier=earlier)
    if busy is None or busy.value is None or is_sampled(busy):
        return None
    if busy.value >= BUSY:
        causes = _named(_busy_causes(analysis), RunVerdict.DEVICE_BUSY)
        return RunDiagnosis(RunVerdict.DEVICE_BUSY, device, busy.value, causes, computing=computing)
    why = next((gap.reason for gap in analysis.missing if gap.topic is Topic.IDLE_BLAME), Notice("no-idle-blame"))
    return RunDiagnosis(RunVerdict.DEVICE_IDLE_UNEXPLAINED, device, 1 - busy.value, reason=why)


def is_sampled(busy: Measure) -> bool:
    """Whether only NVML says how busy the device was: it sees no short gaps, so idle time does not follow from it."""
    return busy.source == "nvml"


def program_blame(analysis: Analysis) -> list[IdleBlame]:
    """The idle time that the program can do something about: all but what recording itself took, and what may have
    been work from before a trace began."""
    return [row for row in analysis.idle if row.state not in (HostState.RECORDING, HostState.EARLIER_WORK)]


def _mean_idle(analysis: Analysis, idle: float) -> float:
    """The idle share by the figure of busy time that all parts of a report have, which is a mean over the devices.

    :param idle: the share in which none of them ran, where there is no such figure, or its counter is contradicted.
    """
    busy = analysis.measures.get("device_utilization")
    doubtful = any(notice.code == "busy-mismatch" for notice in analysis.warnings)
    return idle if busy is None or busy.value is None or is_sampled(busy) or doubtful else 1 - busy.value


def too_few_launches(analysis: Analysis) -> Notice | None:
    """The reason not to name causes of idle time in a trace with few launches; None where there are enough."""
    launches = analysis.measures.get("launches_per_step")
    if not analysis.is_trace or launches is None or launches.value is None:
        return None
    count = round(launches.value * launches.n)
    return Notice("few-launches", {"launches": count}) if count < MIN_LAUNCHES else None


def _single_calls(causes: Iterable[Cause]) -> list[Cause]:
    """The cause of which one call that blocks, allocates or sets the device up takes nearly all of the time: then few
    launches are enough to name it."""
    rows = [(cause, cause.blame) for cause in causes]
    return [
        cause
        for cause, row in rows
        if row
        and row.share_of_wall >= BUSY
        and (row.state is HostState.BLOCKED_IN_CALL or (row.state is HostState.IN_CALL and cause.category == "launch"))
    ]


def _named(causes: Iterable[Cause], verdict: RunVerdict) -> tuple[Cause, ...]:
    """The causes to name, the largest first: all from NAMED on, and of an idle device the largest if it is worth it.

    Time without a core says nothing about the program. So it comes last, and beside it the other causes count by their
    share of the remaining time.
    """
    ordered = sorted(causes, key=lambda cause: (cause.category == "core", -cause.share))
    own = 1.0 - sum(cause.share for cause in ordered if cause.category == "core")
    first = WORTH_NAMING if verdict is RunVerdict.DEVICE_IDLE else NAMED
    named = (
        cause
        for number, cause in enumerate(ordered)
        if cause.share >= (NAMED if number else first) * (1.0 if cause.category == "core" else own)
    )
    return tuple(named)[:MAX_CAUSES]


# ---------------------------------------------------------------- a busy device


def _busy_causes(analysis: Analysis) -> list[Cause]:
    """Time in which the device communicated or copied, and no kernel computed."""
    causes = []
    for category, kinds in ((COMMUNICATING, ("communication",)), (COPYING, _COPIES)):
        parts = sorted((part for part in analysis.device_parts if part.kind in kinds), key=lambda part: -part.exposed)
        exposed = sum(part.exposed for part in parts)
        causes.append(Cause(category, exposed, parts=tuple(part for part in parts if part.exposed >= WORTH_NAMING)))
    return causes


# ---------------------------------------------------------------- an idle device


def _idle_causes(analysis: Analysis) -> list[Cause]:
    """The idle time by category; what nothing recorded in a trace may be Python."""
    key: Callable[[IdleBlame], tuple[str, str]] = trace_category if analysis.is_trace else _category
    operators = analysis.breakdown.get("framework")
    has_functions = any(row.state is HostState.IN_PYTHON for row in analysis.idle)
    rows: dict[tuple[str, str], list[IdleBlame]] = {}
    for row in program_blame(analysis):
        rows.setdefault(key(row), []).append(row)
    causes = []
    for (category, code), blamed in rows.items():
        largest = max(blamed, key=lambda row: row.share_of_wall)
        known = code != "between-operators" or (operators is not None and operators.value and not has_functions)
        notice = Notice(code) if code and known else None
        share = sum(row.share_of_wall for row in blamed)
        places = _places(blamed) if analysis.is_trace else ()
        blame = None if category == UNATTRIBUTED and analysis.is_trace else largest
        causes.append(Cause(category, share, None, None, _idle_location(blamed), (), notice, blame, places))
    return causes


def _category(row: IdleBlame) -> tuple[str, str]:
    return row.category, ""


def trace_category(row: IdleBlame) -> tuple[str, str]:
    """The category of a row of a trace, and the code of what is to be added; calls that launch are the framework's."""
    if row.category == "launch":
        return ("framework", "") if row.subject in _LAUNCH_CALLS else ("launch", "setup-calls")
    if row.category in ("python", UNATTRIBUTED) and row.state is not HostState.IN_PYTHON:
        return UNATTRIBUTED, "between-operators"
    return row.category, ""


def _places(rows: list[IdleBlame]) -> tuple[IdleBlame, ...]:
    """The operators, calls and functions with at least NAMED of the wall time each, the largest first."""
    merged: dict[tuple[HostState, str, str], IdleBlame] = {}
    for row in rows:
        key = row.state, row.subject, str(row.site) if row.state is HostState.IN_PYTHON else ""
        before = merged.get(key)
        if before is None:
            merged[key] = row
        else:
            site = row.site if row.site == before.site else None
            merged[key] = replace(before, site=site, share_of_wall=before.share_of_wall + row.share_of_wall)
    named = (row for row in merged.values() if row.share_of_wall >= NAMED and row.state is not HostState.BETWEEN_CALLS)
    return tuple(sorted(named, key=lambda row: -row.share_of_wall)[:_MAX_PLACES])


def _idle_location(rows: list[IdleBlame]) -> Location | None:
    """The line that more than half of a category's idle time is charged to."""
    lines: dict[Site | None, float] = {}
    for row in rows:
        lines[row.site] = lines.get(row.site, 0.0) + row.share_of_wall
    site = max(lines, key=lambda line: lines[line])
    share = lines[site] / (sum(lines.values()) or 1.0)
    kind = LocationKind.FUNCTION if any(row.state is HostState.IN_PYTHON for row in rows) else LocationKind.LINE
    return Location(kind, (site,), share, share, share) if site is not None and share > MOST else None
