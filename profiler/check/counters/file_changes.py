"""Tells which lines of a program are the same as when its baseline was written, and which were replaced.

A baseline names the content of each file by its id in git, so that the former text is read from git's objects whatever
was committed, rebased or squashed since. Where git does not have it, nothing is known about the lines of the file.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.model import Hunk
from profiler.check.worktree.source_diff import parse_diff
from profiler.core.errors import ProfilerError
from profiler.core.facts import repository_folder
from profiler.core.git import run_git

_RENAMED: Final = 0.5
"""Share of equal lines from which a file is a renamed one, as `git diff -M` has it."""
_MAX_LINES: Final = 20_000
"""Lines of a file that is compared: a generated one may have more, and takes minutes."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The two versions of a file, by the names that sites have."""

    base: str
    candidate: str
    same: Mapping[int, int]
    """Line of the candidate -> the line of the base that reads the same."""
    replaced: tuple[tuple[range, range], ...]
    """Neighboring lines of the base, and those of the candidate that stand in their place."""
    hunks: tuple[Hunk, ...] = ()


def content_id(content: bytes) -> str:
    """The id that git gives to this content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def content_ids(files: Iterable[str], root: str) -> dict[str, str]:
    """The ids of the program's own files: those below `root`, and others of its repository."""
    contents = {file: _content(file, root) for file in dict.fromkeys(files)}
    return {file: content_id(content) for file, content in sorted(contents.items()) if content is not None}


def file_changes(before: Mapping[str, str], files: Collection[str], root: str) -> tuple[FileChange, ...]:
    """The changes of the files whose former content is known.

    :param before: name of each file of the base -> id of its content.
    :param files: in which the candidate counted something.
    :param root: the folder that names are relative to.
    """
    changes: list[FileChange] = []
    missing: dict[str, str] = {}
    for file, former_id in before.items():
        content = _content(file, root)
        if content is None:
            if (former := _former_text(former_id, root)) is not None:
                missing[file] = former
        elif content_id(content) == former_id:
            lines = range(1, content.count(b"\n") + 2)
            changes.append(FileChange(file, file, dict(zip(lines, lines, strict=True)), ()))
        elif (former := _former_text(former_id, root)) is not None:
            changes.append(compare_texts(file, file, former, _text(content)))
    new = {file: content for file in files if file not in before and (content := _content(file, root)) is not None}
    for file, content in new.items():
        candidate = _text(content)
        likeness = {name: _likeness(former, candidate) for name, former in missing.items()}
        base = max(likeness, key=lambda name: likeness[name], default="")
        if base and likeness[base] >= _RENAMED:
            changes.append(compare_texts(base, file, missing.pop(base), candidate))
    return tuple(changes)


def compare_texts(base: str, candidate: str, before: str, after: str) -> FileChange:
    """The change of one file between two texts; the indentation of lines does not matter."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MAX_LINES:
        return FileChange(base, candidate, {}, ())
    matcher = difflib.SequenceMatcher(None, [*map(str.strip, old)], [*map(str.strip, new)], autojunk=False)
    same: dict[int, int] = {}
    replaced = []
    for kind, begin, end, new_begin, new_end in matcher.get_opcodes():
        if kind == "equal":
            same |= zip(range(new_begin + 1, new_end + 1), range(begin + 1, end + 1), strict=True)
        elif kind == "replace":
            replaced.append((range(begin + 1, end + 1), range(new_begin + 1, new_end + 1)))
    diff = "\n".join(difflib.unified_diff(old, new, lineterm=""))
    return FileChange(base, candidate, same, tuple(replaced), tuple(parse_diff(candidate, diff)))


def _content(file: str, root: str) -> bytes | None:
    """The content of a file below the root, or elsewhere in the root's repository; None for another one."""
    if not root or not file or file.startswith(("/", "\N{HORIZONTAL ELLIPSIS}", "(")):
        return None
    path = Path(os.path.normpath(f"{root}/{file}"))
    if file.startswith("..") and not path.is_relative_to(repository_folder(Path(root)) or root):
        return None
    try:
        return path.read_bytes()
    except (OSError, ValueError):
        return None


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _former_text(former_id: str, root: str) -> str | None:
    """The content that git has of this id; None: it has none, or there is no git."""
    try:
        result = run_git(Path(root), ["cat-file", "blob", former_id])
    except (ProfilerError, OSError):
        return None
    return None if result.code else result.out


def _likeness(before: str, after: str) -> float:
    """Share of the lines of two texts that are equal, without those that are empty."""
    first, second = ([line.strip() for line in text.splitlines() if line.strip()] for text in (before, after))
    return difflib.SequenceMatcher(None, first, second, autojunk=False).quick_ratio() if first and second else 0.0
