"""Doubts about the steps whose counters are compared: whether there were as many as were to be counted."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.check.model import Counted
from profiler.check.nouns import some


def too_short(counted: Sequence[Counted], wanted: int) -> str:
    """A sentence where a program ended before its last counted step; empty where none did.

    :param wanted: counted steps that each process was to take.
    """
    fewest = min((one.steps for one in counted), default=wanted)
    if fewest >= wanted:
        return ""
    return (
        f"The program ended after {fewest} of {some(wanted, 'step')} to count: what it does once in a while may be "
        f"missing. Let it take more steps, or count fewer with --steps."
    )
