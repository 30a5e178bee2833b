"""The text of the lines that samples name, read while the program runs: later the file may be another, or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from profiler.core.samples import SOURCE_LINE
from profiler.run.store import Frame

_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python3")
_MOST_LINES: Final = 500  # of a process
_MOST_BYTES: Final = 1 << 21  # of a file: longer ones are no one's source
_LONGEST: Final = 160  # characters that are kept of a line


class Sources:
    """Reads each line once, from where the process `pid` itself sees its files."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: set[tuple[str, int]] = set()
        self._files: dict[str, list[str]] = {}

    def fresh(self, stacks: Iterable[tuple[Frame, ...]]) -> list[tuple[int, int, str, float]]:
        """Samples that hold the text of lines of the user's own code that were not read before."""
        rows: list[tuple[int, int, str, float]] = []
        for frames in stacks:
            for file, line, _ in frames:
                if (file, line) in self._known or len(self._known) >= _MOST_LINES or _foreign(file):
                    continue
                self._known.add((file, line))
                if text := self._text(file, line):
                    rows.append((self._pid, 0, f"{SOURCE_LINE}{file}:{line}:{text}", 1.0))
        return rows

    def _text(self, file: str, line: int) -> str:
        lines = self._files.get(file)
        if lines is None:
            lines = self._files[file] = _lines(self._pid, file)
        return lines[line - 1].strip()[:_LONGEST] if 0 < line <= len(lines) else ""


def _foreign(file: str) -> bool:
    return not file or file.startswith("<") or any(part in file for part in _LIBRARIES)


def _lines(pid: int, file: str) -> list[str]:
    """Of the process's own root and folder, which a container has of its own; empty where it cannot be read."""
    within = f"/proc/{pid}/root{file}" if os.path.isabs(file) else f"/proc/{pid}/cwd/{file}"  # noqa: PTH117 - no Path yet
    for path in (Path(within), Path(file)):
        try:
            if path.stat().st_size <= _MOST_BYTES:
                return path.read_text(errors="replace").splitlines()
        except OSError:
            continue
    return []
