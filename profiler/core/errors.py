"""Defines errors and notices: what a user must know, as a line, or as a code with its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """Exit codes of every command; documented in docs/exit-codes.md and pinned by a test."""

    OK = 0
    FAIL = 1
    """`check`: FAIL; `doctor`: something that level standard needs is missing."""
    USAGE = 2
    """Bad input (an option, a path, a file that cannot be read), or an internal error; `check`: a program failed."""
    NOT_COMPARABLE = 3
    """The runs cannot be compared, or nothing could be concluded."""
    TARGET_FAILED = 4
    """A recorded program failed; what it recorded until then is kept."""
    INTERRUPTED = 130
    """Ctrl-C; what was recorded until then is kept."""


class ProfilerError(Exception):
    """An error that the user can correct: one line with what is wrong, where, and what to do.

    :param message: the line, without a trailing full stop being required.
    :param exit_code: what the process exits with.
    """

    def __init__(self, message: str, exit_code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# ---------------------------------------------------------------- notices


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, a missing measurement or a limitation, as data. No code reads the sentence that is made of it."""

    code: str
    """Stable identifier in kebab case, such as `few-steps` or `trace-not-recorded`."""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Values that the sentence mentions: numbers in base units, names, sites."""
