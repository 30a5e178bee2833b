"""Helps the rules about copies of single lines."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from profiler.diagnose.device import program_blame
from profiler.diagnose.rule import StepCosts
from profiler.run.model import Site

TO_DEVICE: Final = ("h2d", "d2d")
"""Kinds of copies that give the device its data. Copies to the host are reads of values, which other rules judge."""


def idle_in_copies(costs: StepCosts, sites: Container[Site]) -> dict[Site, float]:
    """Line of these -> seconds per step in which the device is idle while the host copies there, the longest first."""
    idle: dict[Site, float] = {}
    for row in program_blame(costs.analysis):
        if row.category == "copy" and row.site is not None and row.site in sites:
            idle[row.site] = idle.get(row.site, 0.0) + row.seconds_per_step
    return dict(sorted(idle.items(), key=lambda item: -item[1]))
