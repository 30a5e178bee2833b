"""Results of checks over time, as types: a history, its series and the places where their level changed.

Imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SCHEMA: Final = 1
"""Of a line of the history. 1: the first."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A slow-down as it was measured."""

    slowdown: float
    """Share: 0.05 is 5% slower than the base of that check."""
    low: float | None
    high: float | None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One check."""

    time: str
    """ISO 8601, UTC."""
    state: str
    """PASS | FAIL | INCONCLUSIVE"""
    commit: str = ""
    """Of the candidate; empty: it was in no repository."""
    what: str = ""
    """The candidate, as people know it."""
    base_commit: str = ""
    base: str = ""
    mode: str = ""
    command: str = ""
    sentence: str = ""
    counters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Counter -> least and most of the candidate's processes, per step; '(workers)' behind those of a loader's."""
    slowdowns: Mapping[str, Bounds] = field(default_factory=dict)
    """Line of the throughput gate -> what it measured."""
    step_time: float | None = None
    """s, median; of this machine, and gates nothing."""
    tokens_per_s: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint: cpu, cores, GPU, kernel, python, torch."""


@dataclass(frozen=True, slots=True)
class History:
    """A file of results, in the order in which they were appended."""

    path: str
    entries: tuple[Entry, ...]
    doubts: tuple[str, ...] = ()
    """Lines that could not be read."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """From one result on, a series has another level."""

    at: int
    """Index, in the history, of the first result at the new level."""
    last: int
    """Index of the last one before, of the same series."""
    before: float
    after: float
    p: float | None = None
    """Share of random orders of the series that look at least as much like a change; None: it is exact."""


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over the checks that can be held against each other."""

    name: str
    """'syncs' | 'step time' | 'tokens/s' | 'slow-down, typical step'"""
    unit: str
    """1/step, s, tokens/s, share"""
    at: tuple[int, ...]
    """Indices in the history."""
    values: tuple[float, ...]
    changes: tuple[ChangePoint, ...] = ()
    machine: str = ""
    """What the values hold for only; empty: for any machine."""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Trend:
    """What a history says."""

    history: History
    series: tuple[Series, ...]
    """Of the last result's program and machine first; counters before times."""
    method: str = ""
    """In words, with its rate of false alarms."""
