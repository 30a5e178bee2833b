"""Asks git what has changed in files between a revision and the working tree, as hunks of a diff."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.model import Hunk
from profiler.core.git import run_git
from profiler.core.masking import masked_source

MAX_FILES: Final = 20
"""Files that are compared: git starts once for each."""
_HEADER: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_OPTIONS: Final = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--unified=3")


@dataclass(frozen=True, slots=True)
class SourceDiff:
    """The two versions of a program's files that a check compares."""

    repository: Path
    """Top folder of the user's checkout."""
    commit: str
    folder: Path
    """The folder in which the candidate was started; files below it are named relative to it."""
    base_folder: Path
    """Its counterpart in the checkout of the revision."""

    def hunks(self, files: Iterable[str]) -> tuple[Hunk, ...] | None:
        """The changes of the first MAX_FILES of these files; None if git cannot tell them.

        :param files: as sites name them; those outside of the repository have no changes.
        """
        hunks: list[Hunk] = []
        for file in list(filter(None, dict.fromkeys(files)))[:MAX_FILES]:
            path = os.path.normpath(self.folder.resolve() / file)
            if not Path(path).is_relative_to(self.repository):
                continue
            names = "--", str(Path(path).relative_to(self.repository))
            result = run_git(self.repository, ["--literal-pathspecs", "diff", *_OPTIONS, self.commit, *names])
            if result.code:
                return None
            hunks += parse_diff(file, result.out)
        return tuple(hunks)


def parse_diff(file: str, diff: str) -> Iterator[Hunk]:
    """The hunks in a unified diff of one file."""
    start: tuple[int, int] | None = None
    lines: list[str] = []
    for line in diff.split("\n"):
        header = _HEADER.match(line)
        if header or not line.startswith((" ", "-", "+")):
            if start and lines and not line.startswith("\\"):  # not "\ No newline at end of file"
                yield Hunk(file, *start, tuple(lines))
                start, lines = None, []
            if header:
                start = int(header[1]), int(header[2])
        elif start:
            lines.append(masked_source(line))
    if start and lines:
        yield Hunk(file, *start, tuple(lines))
