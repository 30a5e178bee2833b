"""Reads and writes the text of the recorded lines of the user's code, as a file in the run directory.

Whoever closes a run reads it from the program's files: after the program, so that it costs the program nothing, and
only where a file has not changed since the program started, so that it is the code that ran.
"""

from __future__ import annotations

import io
import json
import os
import stat
import time
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypedDict

from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import fits, read_json, write_text
from profiler.core.masking import masked_source
from profiler.core.metrics import SOURCE_LINE
from profiler.core.procfs import CLOCK_TICKS, read_stat, uptime
from profiler.core.syntax import Objects
from profiler.run import store, tables
from profiler.run.code_origin import LIBRARY, USER, code_owner, is_standard_library, package_folders
from profiler.run.model import MadeObject, Site
from profiler.run.source import Lines, read_facts, read_lines, read_names, unreadable

SOURCE_TEXT: Final = "source_text.json"
SCHEMA: Final = "source-text/1"
MAX_CHARACTERS: Final = 200
"""Characters that are kept of a line."""
MAX_LINES: Final = 10_000
"""Lines of a run whose text is kept: more than a program has lines that take a visible share of its time."""
MAX_FILE_BYTES: Final = 1 << 21
"""Longer files are not source code that a person wrote."""


class _Texts(TypedDict):
    lines: dict[str, str]


class _File(_Texts, total=False):
    made: dict[str, list[tuple[int, str]]]


class _Document(TypedDict):
    schema: Literal["source-text/1"]
    files: dict[str, _File]


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """Where the files of a program are, seen from the recorder."""

    started: float
    """When the program started, in seconds since the epoch."""
    folder: str = ""
    """The working directory of the program."""
    root: str = ""
    """The root directory of the program, if it differs from that of the recorder."""

    @classmethod
    def of_process(cls, pid: int) -> ProgramFiles:
        """Return the files of a running process, which may be in a container."""
        process, ours = Path(f"/proc/{pid}"), Path("/proc/self")
        status = read_stat(pid)
        # a start is rounded down to a tick, and the file may have been written in that tick
        started = time.time() - uptime() + status.started_s + 1 / CLOCK_TICKS if status else 0.0
        try:
            is_ours = all((process / link).readlink() == (ours / link).readlink() for link in ("ns/mnt", "root"))
            return cls(started, str((process / "cwd").readlink()), "" if is_ours else str(process / "root"))
        except OSError:  # the process has ended, or is another user's: no file is read
            return cls(0.0)

    def project(self, argv: Sequence[str]) -> str:
        """Return the folder to which the program's files are relative: the root of the git checkout that has its
        script, else its working directory, or the script's folder where that lies elsewhere; empty: not known. A folder
        that the recorder may not read counts as one without a checkout."""
        if not self.folder:
            return ""
        script = next((word for word in argv if word.endswith(".py")), "")
        start = Path(os.path.normpath(Path(self.folder, script))).parent if script else Path(self.folder)
        checkouts = (folder for folder in (start, *start.parents) if self._has_git(folder))
        return str(next(checkouts, Path(self.folder) if start.is_relative_to(self.folder) else start))

    def _has_git(self, folder: Path) -> bool:
        try:
            return Path(f"{self.root}{folder}", ".git").exists()
        except OSError:  # Path.exists raises PermissionError before Python 3.14
            return False

    def lines(self, file: str) -> tuple[str, list[str]] | None:
        """Return the hash of a file and its lines; None if it cannot be read or has changed since the program
        started."""
        path = Path(f"{self.root}/{Path(self.folder, file)}" if self.root else Path(self.folder, file))
        try:
            status = path.stat()
            is_source = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES
            if not is_source or max(status.st_mtime, status.st_ctime) > self.started:
                return None
            data = path.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except (OSError, SyntaxError, ValueError):  # a name with a null character, an encoding that there is not
            return None
        text = io.TextIOWrapper(io.BytesIO(data), encoding, "replace").read()  # lines as Python counts them
        return sha256(data).hexdigest(), text.split("\n")


def write_source_text(run: Path, files: ProgramFiles) -> None:
    """Write the text of the recorded lines into the run directory; nothing where there is none.

    :raises OSError: it cannot be written.
    """
    numbers = defaultdict[str, set[int]](set)
    own = set[str]()
    for file, line, is_own in sorted(set(_recorded_lines(run)))[:MAX_LINES]:
        numbers[file].add(line)
        own |= {file} if is_own else set()
    document = {}
    for file, chosen in sorted(numbers.items()):
        if content := files.lines(file):
            digest, lines = content
            objects = Objects("\n".join(lines) if file in own else "")  # to parse a library's file takes longer
            made = {str(line): found for line in sorted(chosen) if (found := list(objects.made(line)))}
            chosen |= {line for found in made.values() for line, _ in found if line}
            texts = {
                line: masked_source(lines[line - 1].strip()[: 2 * MAX_CHARACTERS])[:MAX_CHARACTERS]
                for line in sorted(chosen)
                if line <= len(lines)
            }
            texts_of = {str(line): text for line, text in texts.items() if text}
            document[file] = {"sha256": digest, "lines": texts_of, "made": made}
    if document:
        text = json.dumps({"schema": SCHEMA, "files": document}, indent=1)
        write_text(run / SOURCE_TEXT, text + "\n")


class SourceText(NamedTuple):
    """What a run directory has of the source of the program."""

    lines: Lines
    """Empty where none were recorded."""
    made: Mapping[tuple[str, int], tuple[MadeObject, ...]]
    """File and number of a line -> the objects that it uses, with the lines that make them."""
    problems: tuple[Notice, ...]
    """What is wrong with the file."""


def read_source_text(run: Path) -> SourceText:
    """Read the text of the recorded lines of a run."""
    try:
        document = read_json(run / SOURCE_TEXT)
        if not fits(document, _Document):
            raise TypeError("another schema, or values of other types")
        lines = {
            (file, int(number)): text[:MAX_CHARACTERS]
            for file, content in document["files"].items()
            for number, text in content["lines"].items()
        }
        made = {
            (file, int(number)): tuple(
                MadeObject(Site(file, line, "", lines.get((file, line), "")), called) for line, called in objects
            )
            for file, content in document["files"].items()
            for number, objects in content.get("made", {}).items()
        }
    except FileNotFoundError:
        return SourceText(dict(_sampled_lines(read_names(run / store.RECORDER))), {}, ())
    except ProfilerError as error:
        return SourceText({}, {}, (unreadable(run / SOURCE_TEXT, error),))
    except (ValueError, TypeError) as error:
        damage = Notice("metadata-damaged", {"file": SOURCE_TEXT, "error": type(error).__name__})
        return SourceText({}, {}, (damage,))
    return SourceText(lines, made, ())


def _sampled_lines(names: Iterable[str]) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield the text of lines as older runs have it: among the names of samples."""
    for name in names:
        if name.startswith(SOURCE_LINE):
            file, _, remainder = name[len(SOURCE_LINE) :].partition(":")
            line, _, text = remainder.partition(":")
            if line.isdecimal():
                yield (file, int(line)), text


def _recorded_lines(run: Path) -> Iterator[tuple[str, int, bool]]:
    """Yield the lines of the user's code that the tables and the facts of a run name, and those of libraries that call
    the device; each with whether it is the user's."""
    folders = [
        entry for entry in run.iterdir() if entry.name == store.RECORDER or tables.pid_of(entry.name) is not None
    ]
    facts = {folder: read_facts(folder) for folder in folders}
    packages = package_folders({name: value for stated in facts.values() for name, value in stated.items()})
    for folder in folders:
        sites, frames = read_lines(folder)
        for file, line in sites | frames | set(_lines_of_facts(facts[folder])):
            if line > 0 and not file.startswith("<"):
                owner = code_owner(file, packages)
                if owner == USER or (owner == LIBRARY and (file, line) in sites and not is_standard_library(file)):
                    yield file, line, owner == USER


def _lines_of_facts(fact: Any) -> Iterator[tuple[str, int]]:
    """Yield the lines in a fact: objects with `file` and `line`, and frames of [file, line, function]."""
    match fact:
        case [str(file), int(line), str()]:
            yield file, line
        case Mapping():
            if place := _place(fact):
                yield place
            yield from _in_all(fact.values())
        case [*_]:
            yield from _in_all(fact)


def _place(fact: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the file and the number of an object that is a line."""
    file, line = fact.get("file"), fact.get("line")
    return (file, line) if isinstance(file, str) and isinstance(line, int) else None


def _in_all(facts: Iterable[Any]) -> Iterator[tuple[str, int]]:
    for fact in facts:
        yield from _lines_of_facts(fact)


def with_source(fact: Any, lines: Lines) -> Any:
    """Return a fact with the text of its lines: `source` of an object, a fourth element of a frame."""
    match fact:
        case [str(file), int(line), str()]:
            return [*fact, text] if (text := lines.get((file, line))) else fact
        case Mapping():
            parts = {name: with_source(value, lines) for name, value in fact.items()}
            place = _place(fact)
            return parts | {"source": lines[place]} if place and place in lines else parts
        case [*_]:
            return [with_source(value, lines) for value in fact]
    return fact
