"""Asks git what has changed in files between a revision and the working tree, as hunks of a diff."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.model import Hunk
from profiler.core.errors import ProfilerError
from profiler.core.git import run_git
from profiler.core.masking import masked_source

MAX_FILES: Final = 20
"""Files that are compared: git starts once for each."""
_HEADER: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_NO_CODE: Final = ("import ", "from ", "def ", "class ", "@", "else", "try", "finally", '"', "'")
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


def changed_lines(root: Path, commit: str) -> dict[str, dict[int, str]]:
    """File, as an absolute path -> number and text of each line of Python code that is new or changed since a commit.

    :raises ProfilerError: git cannot tell them.
    """
    options = (*_OPTIONS, "--unified=0", "--src-prefix=a/", "--dst-prefix=b/")
    diff = run_git(root, ["-c", "core.quotePath=false", "diff", *options, commit, "--", "*.py"])
    if diff.code:
        raise ProfilerError(f"git cannot tell what has changed since {commit}: {diff.error}")
    lines: dict[str, dict[int, str]] = {}
    for part in re.split(r"^diff --git ", diff.out, flags=re.MULTILINE):
        if header := _NEW_NAME.search(part):
            hunks = parse_diff(header[1], part)
            added = ((hunk.line, [line[1:] for line in hunk.lines if line.startswith("+")]) for hunk in hunks)
            numbered = {first + at: text for first, texts in added for at, text in enumerate(texts)}
            lines[str(root / header[1])] = numbered
    for name in new_files(root):
        with suppress(OSError):
            lines[name] = dict(enumerate(Path(name).read_text(encoding="utf-8", errors="replace").splitlines(), 1))
    return lines


def new_files(root: Path) -> frozenset[str]:
    """The files of Python code that git neither has nor ignores, as absolute paths."""
    new = run_git(root, ["ls-files", "-z", "--others", "--exclude-standard", "--", "*.py"])
    return frozenset(str(root / name) for name in new.out.split("\0") if name)


def is_code(line: str) -> bool:
    """Whether a line has more than a comment, brackets or the head of a definition."""
    text = line.partition("#")[0].strip()
    return bool(text.strip("()[]{},:")) and not text.startswith(_NO_CODE)


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
