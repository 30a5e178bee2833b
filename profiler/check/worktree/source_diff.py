"""Asks git what has changed in files between a revision and the working tree, as hunks of a diff."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler.check.model import Hunk
from profiler.core.errors import ProfilerError
from profiler.core.git import run_git
from profiler.core.masking import masked_source

MAX_FILES: Final = 20
"""Files whose changes are kept."""
_CODE: Final = ("*.py", "*.yaml", "*.yml", "*.toml")
"""Files that tell what a program does."""
_HEADER: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_NEW_NAME: Final = re.compile(r"^\+\+\+ b/(.*?)\t?$", re.MULTILINE)
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
    files: tuple[str, ...] = ()
    """Files that the candidate is known to run, as sites name them."""

    def hunks(self, files: Iterable[str]) -> tuple[Hunk, ...] | None:
        """The changes of these files, then those of other code that is not new, of MAX_FILES in all; None if git cannot
        tell them.

        :param files: as sites name them; those outside of the repository have no changes.
        """
        try:
            found = tuple(_changes(self.repository, self.commit))
        except ProfilerError:
            return None
        folder, wanted = self.folder.resolve(), list(dict.fromkeys((*files, *self.files)))
        named = [replace(hunk, file=os.path.relpath(self.repository / hunk.file, folder)) for hunk in found]
        changed = {hunk.file: hunk.base for hunk in named}
        others = (file for file, base in changed.items() if base and file not in wanted)
        names = [*(file for file in wanted if file in changed), *others]
        return tuple(hunk for name in names[:MAX_FILES] for hunk in named if hunk.file == name)


def changed_lines(root: Path, commit: str) -> dict[str, set[int]]:
    """File, as an absolute path -> the lines of Python code that are new or changed since a commit; in a moved
    file, those that changed there.

    :raises ProfilerError: git cannot tell them.
    """
    lines: dict[str, set[int]] = {}
    for hunk in _changes(root, commit, "--find-renames"):
        if hunk.file.endswith(".py"):
            lines.setdefault(str(root / hunk.file), set()).update(hunk.written())
    return lines


def _changes(root: Path, commit: str, *more: str) -> Iterator[Hunk]:
    """What has changed in code since a commit, with files relative to the root; a new file has no line of the base.

    :param more: options of git diff.
    :raises ProfilerError: git cannot tell it.
    """
    options = (*_OPTIONS, "--src-prefix=a/", "--dst-prefix=b/", *more)
    diff = run_git(root, ["-c", "core.quotePath=false", "diff", *options, commit, "--", *_CODE])
    if diff.code:
        raise ProfilerError(f"git cannot tell what has changed since {commit}: {diff.error}")
    for part in re.split(r"^diff --git ", diff.out, flags=re.MULTILINE):
        if header := _NEW_NAME.search(part):
            yield from parse_diff(header[1], part)
    for name in new_files(root):
        with suppress(OSError):
            text = Path(name).read_text(encoding="utf-8", errors="replace")
            yield Hunk(
                os.path.relpath(name, root), 0, 1, tuple(f"+{masked_source(line)}" for line in text.splitlines())
            )


def new_files(root: Path) -> frozenset[str]:
    """The files of Python code that git neither has nor ignores, as absolute paths."""
    new = run_git(root, ["ls-files", "-z", "--others", "--exclude-standard", "--", "*.py"])
    return frozenset(str(root / name) for name in new.out.split("\0") if name)


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
