"""Defines the answers of the doctor's checks to whether something can be measured on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

YES: Final = "yes"
PARTLY: Final = "partly"
NO: Final = "no"
NOT_KNOWN: Final = "not known"
"""The check itself failed, or got no answer in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one check."""

    state: str
    """YES, PARTLY, NO or NOT_KNOWN."""
    why: str
    """The reason in one line, with figures."""
    do: str = ""
    """The command or change that would improve it; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Capability:
    """A check with its answer."""

    name: str
    title: str
    answer: Answer
    needed: bool
    """Recording at level standard needs it."""

    @property
    def lacking(self) -> bool:
        """Whether recording at level standard does not work because of it."""
        return self.needed and self.answer.state in {NO, NOT_KNOWN}
