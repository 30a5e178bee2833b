"""A change between two breakdown passes, in the words of a verdict, and how much of the step time it must explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NAMED: Final = 0.1
"""Share of the change in step time that a category or a part must make up to be named beside it."""
EXPLAINS: Final = 0.5
"""The same, to be named as its cause."""


@dataclass(frozen=True, slots=True)
class Change:
    """What went the way of the step time by most, from one breakdown pass to the other."""

    what: str
    """`idle in and after syncs`, `the time of forward`, `all parts`."""
    verb: str
    """fell | rose; of several parts `shrank:` or `grew:`."""
    amounts: str
    """`from 50% to 17% of a step`, and the line."""
    is_cause: bool
    """It makes up most of the change of the step time. Time that nothing recorded explains nothing."""
    several: bool = False
    """Parts of a step of which none makes up most of the change by itself."""
