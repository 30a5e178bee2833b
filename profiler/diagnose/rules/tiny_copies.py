"""Recognizes many copies of a few bytes each, where one would do."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import MAX_SITES, Claim, Rule, StepCosts, exactly
from profiler.diagnose.rules._copies import TO_DEVICE, idle_in_copies
from profiler.run.model import Site

MANY: Final = 10.0
"""Copies per step of one line. A choice: a batch has a handful of tensors."""
TINY: Final = 1 << 14
"""Bytes of a copy below which its time is that of the call: at the 10 GB/s of a slow link, 1.6 µs, and a call takes
some 5 µs."""


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in the copies of lines that make many small ones."""
    many: dict[Site, tuple[float, float]] = {}
    for call in costs.analysis.call_sites:
        size = call.bytes_per_step / call.calls_per_step if call.calls_per_step else 0.0
        if call.kind in TO_DEVICE and call.calls_per_step >= MANY and size < TINY:
            many[call.site] = call.calls_per_step, size
    idle = idle_in_copies(costs, many)
    if not idle:
        return None
    sites = tuple(idle)
    values = {"calls": sum(many[site][0] for site in sites), "size": many[sites[0]][1]}
    # one copy also saves the allocation and the Python around each of the others
    return Claim({"copy": exactly(sum(idle.values()))}, sites[:MAX_SITES], values, is_least=True)


PLUGIN = Rule(
    "tiny-copies",
    "Many small copies between host and device",
    ("{calls:count} copies per step, of {size:size} each.", "The device is idle {share:share} of the time in them."),
    "Collect the values in one tensor, and copy that once per step.",
    judge,
    threshold_source="MANY is a choice; below TINY bytes a copy takes as long as its call.",
    knock_out=KnockOut.STATEMENT,
)
