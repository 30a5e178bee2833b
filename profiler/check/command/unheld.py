"""Limits that held for nothing, and counters that were ignored and not there: said, so that nobody relies on them."""

from __future__ import annotations

from collections.abc import Collection

from profiler.check.counters import EVERY
from profiler.check.model import GateResult


def unheld(result: GateResult) -> tuple[str, ...]:
    """Known counters that limits name and no side counted: a runner without a device counts none of its waits."""
    if result.counters_state is None or (result.counters_reason and not result.counters):
        return ()
    there = {line.counter for line in result.counters}
    limits = sorted(set(result.limits.counters) - there - {EVERY})
    ignored = sorted(set(result.limits.ignore) - there)
    lines = []
    if limits:
        lines.append(f"The limit{'s' * (len(limits) > 1)} for {_listed(limits)} held for nothing: {_why(limits)}.")
    if ignored:
        lines.append(f"To ignore {_listed(ignored)} changed nothing: {_why(ignored)}.")
    return tuple(lines)


def _listed(names: Collection[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _why(names: Collection[str]) -> str:
    return f"nothing counted {'it' if len(names) == 1 else 'them'} here"
