"""The one error that users of the trainer see, caught once in its `__main__`; and packages that are not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ("numba", "sentencepiece", "threadpoolctl", "torch", "zstandard")
"""What the extra `trainer` installs."""
USAGE: Final = 2
"""Bad input: an option, a corpus, a size that does not fit."""


class TrainerError(Exception):
    """A fault that the user can mend: one line that says what, where and what to do.

    :param exit_code: what the process exits with.
    """

    def __init__(self, message: str, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def missing_packages() -> str:
    """One line that names the packages of PACKAGES that are not installed; empty where all are."""
    names = [name for name in PACKAGES if find_spec(name) is None]
    if not names:
        return ""
    *others, last = names
    listed = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    return f"{listed} not installed: pip install 'training-profiler[trainer]' gets what the bundled trainer needs"
