"""Finds the lines of the program that change settings of torch."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.diagnose.rule import StepCosts
from profiler.run.model import Site
from profiler.run.tables import SETTINGS


def setting_line(costs: StepCosts, name: str) -> tuple[Site, ...]:
    """The line that changes a setting, such as `threads` (`profiler.agent.hooks.settings`); nothing if not known."""
    lines = costs.fact(SETTINGS)
    return (Site.from_fact(lines[name]),) if isinstance(lines, Mapping) and name in lines else ()
