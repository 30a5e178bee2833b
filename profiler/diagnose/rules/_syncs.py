"""What the rules about synchronizations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profiler.diagnose.device import program_blame
from profiler.diagnose.rule import MAX_SITES, Claim, StepCosts, exactly
from profiler.run.model import Site

SYNCHRONIZE: Final = "synchronize"
"""The operation of calls that only wait ends with this."""
MANY: Final = 10.0
"""Reads per step at one line from which it reads element by element. A choice: a loop over what a step computes reads
tens to thousands of elements; losses, norms and metrics are a few values."""
_READS: Final = ("sync", "d2h")
_WAITS: Final = ("sync", "copy")


def sync_claim(costs: StepCosts, chosen: Callable[[float, str], bool]) -> Claim | None:
    """The idle time in and after reads of the device, at the lines that `chosen` selects.

    :param chosen: takes the reads per step of a line, and the operation as the user wrote it.
    """
    calls: dict[Site, float] = {}
    operations: dict[Site, str] = {}
    for call in costs.analysis.call_sites:
        if call.kind in _READS and (call.kind == "sync" or call.blocked_per_step > 0):
            calls[call.site] = calls.get(call.site, 0.0) + call.calls_per_step
            operations.setdefault(call.site, call.operation)
    idle: dict[Site, float] = {}
    taken: dict[str, float] = {}
    for row in program_blame(costs.analysis):
        site = row.site
        if site in calls and site is not None and row.category in _WAITS and chosen(calls[site], operations[site]):
            idle[site] = idle.get(site, 0.0) + row.seconds_per_step
            taken[row.category] = taken.get(row.category, 0.0) + row.seconds_per_step
    if not idle:
        return None
    sites = sorted(idle, key=lambda site: -idle[site])
    values = {"calls": sum(calls[site] for site in idle), "operation": operations[sites[0]] or None}
    return Claim({name: exactly(seconds) for name, seconds in taken.items()}, tuple(sites[:MAX_SITES]), values)
