"""The one error that users of the trainer see; caught once, in its `__main__`."""

from __future__ import annotations

from typing import Final

USAGE: Final = 2
"""Bad input: an option, a corpus, a size that does not fit."""


class TrainerError(Exception):
    """A fault that the user can mend: one line that says what, where and what to do.

    :param exit_code: what the process exits with.
    """

    def __init__(self, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
