"""Many copies of a few bytes each, where one would do."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.diagnose.device import program_blame
from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly
from profiler.run.model import Site

_TO_DEVICE: Final = ("h2d", "d2d")
"""Copies to the host are reads of values, which other rules judge."""
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
        if call.kind in _TO_DEVICE and call.calls_per_step >= MANY and size < TINY:
            many[call.site] = call.calls_per_step, size
    idle: dict[Site, float] = {}
    for row in program_blame(costs.analysis):
        if row.category == "copy" and row.site is not None and row.site in many:
            idle[row.site] = idle.get(row.site, 0.0) + row.seconds_per_step
    if not idle:
        return None
    sites = sorted(idle, key=lambda site: -idle[site])
    values = {"calls": sum(many[site][0] for site in sites), "size": many[sites[0]][1]}
    return Claim({"copy": exactly(sum(idle.values()))}, tuple(sites[:3]), values)


PLUGIN = Rule(
    "tiny-copies",
    "Many small copies between host and device",
    ("{calls:count} copies per step, of {size:size} each.", "The device is idle {share:share} of the time in them."),
    "Collect the values in one tensor, and copy that once per step.",
    judge,
    threshold_source="MANY is a choice; below TINY bytes a copy takes as long as its call.",
    knock_out=KnockOut.STATEMENT,
)
