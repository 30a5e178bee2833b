"""What can be measured on this machine: one thing, whether it can be, why, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

YES: Final = "yes"
PARTLY: Final = "partly"
NO: Final = "no"
NOT_KNOWN: Final = "not known"
"""The check itself failed, or got no answer in time."""
STATES: Final = (YES, PARTLY, NO, NOT_KNOWN)


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one check."""

    state: str
    """One of STATES."""
    why: str
    """In one line: what was found, with its figures."""
    do: str = ""
    """The one command or change that would better it; empty where there is none or nothing to better."""


@dataclass(frozen=True, slots=True)
class Capability:
    """An answer with what it is about."""

    name: str
    title: str
    answer: Answer
    needed: bool
    """Recording at level standard needs it."""

    @property
    def lacking(self) -> bool:
        """Whether it keeps level standard from working."""
        return self.needed and self.answer.state in {NO, NOT_KNOWN}
