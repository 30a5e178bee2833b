"""Tells how the files of the base and the candidate differ: by git's diff, or by their recorded content."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler.check.model import Hunk
from profiler.core.errors import ProfilerError
from profiler.core.facts import repository_folder
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
        """Return the changes of these files, then those of other code that is not new, of MAX_FILES in all; None if git
        cannot tell them.

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
    """Return file, as an absolute path -> the lines of Python code that are new or changed since a commit; in a moved
    file, those that changed there.

    :raises ProfilerError: git cannot tell them.
    """
    lines: dict[str, set[int]] = {}
    for hunk in _changes(root, commit, "--find-renames"):
        if hunk.file.endswith(".py"):
            lines.setdefault(str(root / hunk.file), set()).update(hunk.written())
    return lines


def _changes(root: Path, commit: str, *more: str) -> Iterator[Hunk]:
    """Yield what has changed in code since a commit, with files relative to the root; a new file has no line of the
    base.

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
    """Return the files of Python code that git neither has nor ignores, as absolute paths."""
    new = run_git(root, ["ls-files", "-z", "--others", "--exclude-standard", "--", "*.py"])
    return frozenset(str(root / name) for name in new.out.split("\0") if name)


def parse_diff(file: str, diff: str) -> Iterator[Hunk]:
    """Yield the hunks in a unified diff of one file."""
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


# ---------------------------------------------------------------- by content

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
    """Return the id that git gives to this content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def content_ids(files: Iterable[str], root: str) -> dict[str, str]:
    """Return the ids of the program's own files: those below `root`, and others of its repository."""
    contents = {file: _content(file, root) for file in dict.fromkeys(files)}
    return {file: content_id(content) for file, content in sorted(contents.items()) if content is not None}


def file_changes(before: Mapping[str, str], files: Collection[str], root: str) -> tuple[FileChange, ...]:
    """Return the changes of the files whose former content is known.

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
        filled = _filled_lines(candidate)
        likeness = {
            name: difflib.SequenceMatcher(None, _filled_lines(former), filled, autojunk=False).quick_ratio()
            for name, former in missing.items()
        }
        base = max(likeness, key=lambda name: likeness[name], default="")
        if base and filled and likeness[base] >= _RENAMED:
            changes.append(compare_texts(base, file, missing.pop(base), candidate))
    return tuple(changes)


def compare_texts(base: str, candidate: str, before: str, after: str) -> FileChange:
    """Return the change of one file between two texts; the indentation of lines does not matter."""
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
    """Return the content of a file below the root, or elsewhere in the root's repository; None for another one."""
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
    """Read the content with this id from git. None means that git is absent or has no such content."""
    try:
        result = run_git(Path(root), ["cat-file", "blob", former_id])
    except (ProfilerError, OSError):
        return None
    return None if result.code else result.out


def _filled_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
