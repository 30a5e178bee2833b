"""What the doctor looks at, one check a file, found as plug-ins; each tries the thing itself where that is harmless."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from profiler.core.capability import Answer


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look."""

    python: str
    """The interpreter that trains."""
    runs: Path
    """Where runs go."""


class Check(Protocol):
    """One thing that can be measured here, or not.

    Checks run at the same time, each in a thread of its own; one that raises or is late is its own line.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """What can be measured, as the table shows it."""
    order: ClassVar[int]
    needed: ClassVar[bool]
    """Recording at level standard needs it."""
    patience_s: ClassVar[float]
    """Seconds after which its answer is not waited for any longer."""

    def look(self, place: Place) -> Answer:
        """Try it."""
