"""Files of a run directory that a recorded program appends to, whatever it does to descriptors that it finds open."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

_FIRST: Final = 3
"""Lower numbers are the standard streams, open or closed: never ours."""


class Appended:
    """A file that is opened when it is first appended to, and stays open: opening takes milliseconds on some disks.

    A program may close every descriptor (as daemons do) and open a file of its own under the same number. So before
    each write the number is looked at (0.5 µs), and what is not our file is neither written to nor closed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._descriptor = -1
        self._identity = (0, 0)

    def append(self, folder: Path, data: memoryview) -> None:
        """:raises OSError: it cannot be opened, or not all of it could be written."""
        if not self._is_ours():
            self._open(folder)
        written = 0
        while written < len(data):  # a nearly full disk takes a part, and then fails
            written += os.write(self._descriptor, data[written:])

    def close(self) -> None:
        if self._is_ours():
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_ours(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            there = os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self._identity

    def _open(self, folder: Path) -> None:
        opened = os.open(folder / self._name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        if opened < _FIRST:
            low, opened = opened, fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _FIRST)
            os.close(low)
        there = os.fstat(opened)
        self._descriptor, self._identity = opened, (there.st_dev, there.st_ino)
