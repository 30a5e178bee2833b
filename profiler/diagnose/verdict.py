"""One sentence about one run: how idle the device was, what the host did meanwhile, and at which line."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import Analysis, Doing, IdleBlame
from profiler.core.units import seconds, share
from profiler.diagnose.compare_verdict import compare_verdict
from profiler.diagnose.found import beside_a_busy_device, found_verdict, unknown
from profiler.diagnose.words import WHILE, causes, device_of, place, points, rows_of, sampled, waits_unseen

__all__ = ["compare_verdict", "verdict"]

BUSY: Final = 0.8
"""Share of time from which a device counts as busy: a host that never let it idle would gain at most a quarter."""
_WORTH: Final = 0.05
"""Share of wall below which a second cause is not named."""
_MOST_CAUSES: Final = 2
_STANDING_BY: Final = ("idle", "waiting for another process")
"""What a launcher does while its children work."""
_ALL: Final = 0.95
"""Of an answer's share, that of its line from which one number says both."""


def verdict(analysis: Analysis) -> str:
    """Why the device was idle, that it was busy, or why that is not known."""
    step = analysis.measures.get("step_time")
    if step is None or step.value is None:
        if analysis.doing:
            return _of_threads(analysis.doing)
        return f"Nothing was measured: {step.reason if step else 'no step was closed'}."
    device, busy = device_of(analysis.info), analysis.measures.get("device_utilization")
    idle = sum(row.share_of_wall for row in analysis.idle)
    if analysis.idle and idle > 1 - BUSY:
        return f"The {device} was idle {share(idle)} of the time: {_causes(analysis)}."
    if analysis.idle:
        return (
            f"The {device} was busy {share(1 - idle)} of the time: the host is not what limits this run "
            f"({_causes(analysis, most=1)})."
        )
    if busy is not None and busy.value is not None and sampled(busy):
        if busy.value >= BUSY:
            return _of_busy(analysis, busy.value)
        return _of_host(
            analysis, f"not measured; NVML saw a kernel run {share(busy.value)} of the time, but no short gaps"
        )
    if busy is not None and busy.value is not None:
        if busy.value >= BUSY:
            return f"The {device} was busy {share(busy.value)} of the time: the host is not what limits this run."
        why = next((gap.reason for gap in analysis.missing if "idle" in gap.what), "no blame was recorded")
        return f"The {device} was idle {share(1 - busy.value)} of the time; why was not measured: {why}."
    return _of_host(analysis, busy.reason if busy else "nothing recorded it")


def _of_threads(doings: tuple[Doing, ...]) -> str:
    """What the job was doing where no steps were seen: by its first process that was not merely waiting for others."""
    most = next((doing for doing in doings if doing.answer not in _STANDING_BY), doings[0])
    own = f", {share(most.share_at_site)}" if most.share_at_site < _ALL * most.share else ""
    return f"No step was seen; {most.process} was {most.answer} {share(most.share)} of the time{own}{place(most.site)}."


def _causes(analysis: Analysis, most: int = _MOST_CAUSES) -> str:
    totals: dict[str, float] = {}
    for row in causes(analysis):
        totals[row.category] = totals.get(row.category, 0.0) + row.share_of_wall
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    named = [item for item in ordered[:most] if item[1] >= _WORTH] or ordered[:1]
    if not named:
        return "nothing of the program was seen to cause it"
    return ", ".join(
        _cause(total, rows_of(analysis, category), first=not number) for number, (category, total) in enumerate(named)
    )


def _cause(total: float, rows: list[IdleBlame], *, first: bool) -> str:
    largest = rows[0]
    amount = points(total) + (" of it" if first else "")
    if points(largest.share_of_wall) == points(total):
        return f"{amount} {largest.doing}{place(largest.site)}"
    most = f"{points(largest.share_of_wall)} {largest.doing}{place(largest.site)}"
    return f"{amount} {WHILE[largest.category]} (most: {most})"


def _of_busy(analysis: Analysis, busy: float) -> str:
    """By NVML's word: what the host waits in, and what it launches late, is then the device's work."""
    also = beside_a_busy_device(analysis)
    return (
        f"The {device_of(analysis.info)} was busy {share(busy)} of the time, as NVML saw it (not its short gaps): "
        f"the host is not what limits this run{f'; besides, {also}' if also else ''}."
    )


def _of_host(analysis: Analysis, reason: str) -> str:
    """Without a queue: what the host's time went to."""
    if found := found_verdict(analysis):
        return found
    known = [measure for measure in analysis.breakdown.values() if measure.value]
    if not known and analysis.info.facts.get("device") == "cpu" and analysis.info.level == "light":
        step = analysis.measures["step_time"].value or 0.0
        return f"A step takes {seconds(step)} on average; where that goes is recorded from --level standard on."
    if not known:
        return f"How busy the device was is not known ({reason}), and where the host's time went was not recorded."
    total = sum(measure.value or 0.0 for measure in known)
    largest = max(known, key=lambda measure: measure.value or 0.0)
    value = largest.value or 0.0
    if largest.name == "unattributed":
        return unknown(analysis, value / total)
    if largest.name == "sync" and _has_workers(analysis):
        return (
            f"The process that steps waits for its workers {share(value / total)} of each step: what takes their time "
            "is in their own stacks."
        )
    unsure = largest.name == "python" and waits_unseen(analysis)
    name = "Python or a wait inside CUDA" if unsure else largest.name
    return (
        f"The largest part of a step is {name}: {seconds(value)}, {share(value / total)} of it "
        f"(device idle time: {reason})."
    )


def _has_workers(analysis: Analysis) -> bool:
    """Whether it says that others work for its steps, on a CPU: a wait is then for them, not for a device."""
    facts = analysis.info.facts
    return facts.get("device") == "cpu" and facts.get("engine", "inline") != "inline"
