"""Helps the rules about synchronizations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from profiler.diagnose.device import program_blame
from profiler.diagnose.rule import MAX_SITES, Claim, Cost, StepCosts, exactly
from profiler.run.model import Site

MANY: Final = 10.0
"""Reads per step at one line from which it reads element by element. A choice: a loop over what a step computes reads
tens to thousands of elements; losses, norms and metrics are a few values."""
_READS: Final = ("sync", "d2h")
_OF_OPERATIONS: Final = {
    "synchronize": "left-over-synchronize",
    "empty_cache": "empty-cache",
    **dict.fromkeys(("mask index", "nonzero", "masked_select", "unique"), "shape-from-values"),
}
"""End of the operation of calls that wait, but read no number -> the rule about them."""
_WAITS: Final = ("sync", "copy")


@dataclass(slots=True)
class Read:
    """A line that reads values from the device."""

    site: Site
    calls: float
    """Reads per step."""
    operation: str
    """As the user wrote it; it may be empty."""
    categories: dict[str, float] = field(default_factory=dict)
    """Category -> seconds per step in which the device is idle in and after the reads."""

    @property
    def seconds(self) -> float:
        """Seconds per step in all of them."""
        return sum(self.categories.values())


def rule_of_waits(calls: float, operation: str) -> str:
    """The name of the rule about the waits at a line.

    :param calls: waits per step at the line.
    :param operation: as the user wrote it; it may be empty.
    """
    for end, rule in _OF_OPERATIONS.items():
        if operation.endswith(end):
            return rule
    return "per-element-reads" if calls >= MANY else "hidden-sync"


def waits_with_idle_time(costs: StepCosts, rule: str) -> list[Read]:
    """The waits for the device that this rule is about, and after which it is idle: the longest idle time first."""
    reads: dict[Site, Read] = {}
    for call in costs.analysis.call_sites:
        if call.kind in _READS and (call.kind == "sync" or call.blocked_per_step > 0):
            read = reads.setdefault(call.site, Read(call.site, 0.0, call.operation))
            read.calls += call.calls_per_step
    for row in program_blame(costs.analysis):
        if row.site is not None and row.site in reads and row.category in _WAITS:
            idle = reads[row.site].categories
            idle[row.category] = idle.get(row.category, 0.0) + row.seconds_per_step
    idle_reads = (
        read for read in reads.values() if read.categories and rule_of_waits(read.calls, read.operation) == rule
    )
    return sorted(idle_reads, key=lambda read: -read.seconds)


def sync_claim(costs: StepCosts, rule: str) -> Claim | None:
    """The idle time in and after the waits for the device that this rule is about."""
    reads = waits_with_idle_time(costs, rule)
    if not reads:
        return None
    sites = tuple(read.site for read in reads[:MAX_SITES])
    values = {"calls": sum(read.calls for read in reads), "operation": reads[0].operation or None}
    return Claim(idle_costs(reads), sites, values)


def idle_costs(reads: Iterable[Read]) -> dict[str, Cost]:
    """The idle time of these reads, as the costs of a claim."""
    total: dict[str, float] = {}
    for read in reads:
        for category, seconds in read.categories.items():
            total[category] = total.get(category, 0.0) + seconds
    return {category: exactly(seconds) for category, seconds in total.items()}
