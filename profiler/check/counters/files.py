"""Names the program's own files, and tells how they changed."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from profiler.check.model import Hunk
from profiler.check.worktree.prepare import parse_diff
from profiler.core.errors import ProfilerError
from profiler.core.facts import program, repository_folder
from profiler.core.git import run_git
from profiler.core.masking import masked, masked_command
from profiler.run.code_origin import working_folder
from profiler.run.model import Run

COMPILED_FILE: Final = "(compiled)"
"""Stands for files that torch.compile writes, whose names differ between machines."""
_MAX_UP: Final = 3
"""How many folders above the program's may still belong to the same checkout."""
_INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/|.*/lib(?:64)?/python3(?:\.\d+)?/")
_RESULT_OPTIONS: Final = frozenset({
    "out_dir", "outdir", "output_dir", "output_path", "save_dir", "save_path", "save_folder",
    "log_dir", "logdir", "log_file", "logging_dir", "checkpoint_dir", "ckpt_dir", "default_root_dir", "work_dir",
    "results_dir", "tensorboard_dir", "profile_dir", "run_name", "run_id", "exp_name", "experiment_name",
    "wandb_run_name", "wandb_project",
})  # fmt: skip
"""Options of training scripts that name where results go: a step does the same work whatever their values."""
_COMPILED: Final = re.compile(r"/torchinductor_[^/]*/|/torch_compile_debug/")


def start_folder(run: Run) -> str:
    """The working folder; where the command names its script or module relatively, it is derived from the files of the
    recorded call sites, so that files of both sides have the names that the repository uses."""
    script = program(run.info.argv).removeprefix("./")
    if not script.endswith(".py"):  # a module
        script = f"{script.replace('.', '/')}.py"
    if script and not script.startswith("/"):
        endings = (f"/{script}", f"/{script.removesuffix('.py')}/__main__.py")
        for site in run.sites:
            for ending in endings:
                if site.file.startswith("/") and site.file.endswith(ending):
                    return site.file.removesuffix(ending)
    return working_folder(run)


def root_folder(folder: str, argv: Sequence[str]) -> str:
    """The folder that paths are relative to: the one in which the program was started, or, if its script belongs to
    a project outside that folder, this project. So a command names the same files wherever it is started.

    A project is the nearest folder with a .git, else with a pyproject.toml, above the script.
    """
    script = next((word for word in argv if word.endswith(".py")), "")
    if not script or not folder:
        return folder
    above = Path(os.path.normpath(Path(folder) / script)).parents
    projects = [parent for mark in (".git", "pyproject.toml") for parent in above if (parent / mark).exists()]
    if not projects or any(Path(folder).is_relative_to(project) for project in projects):
        return folder
    return str(projects[0])


def portable_path(file: str, folder: str) -> str:
    """`file` relative to `folder` or to its package, without folders of this machine where that is possible.

    train.py, ../lib/model.py, torch/optim/sgd.py; the last two parts of a file elsewhere: …/lib/model.py.
    """
    file = file.encode("utf-8", "replace").decode("utf-8")  # a name that is not text cannot be written as text
    if not file.startswith("/"):
        return file
    if _COMPILED.search(file):
        return COMPILED_FILE
    path = PurePosixPath(file)
    if folder and not path.is_relative_to(folder):  # the folder may contain a symbolic link to it
        real = PurePosixPath(os.path.realpath(file))
        file, path = (str(real), real) if real.is_relative_to(folder) else (file, path)
    if folder and path.is_relative_to(folder) and not _INSTALLED.match(file[len(folder) :]):
        return str(path.relative_to(folder))
    if package := _INSTALLED.match(file):
        return file[package.end() :]
    if folder:
        relative = os.path.relpath(file, folder)
        ups = relative.split("/").count("..")
        if ups <= _MAX_UP and ups < len(PurePosixPath(folder).parts) - 1:
            return relative
    return f"…/{'/'.join(path.parts[-2:])}"


def portable_command(command: str, folder: str) -> str:
    """A command without its secrets, and without the folders of this machine, where they can be left out.

    :param folder: the folder in which it was started.
    """
    try:
        argv = list(masked(shlex.split(command)))
    except ValueError:  # it is not shell syntax
        return masked_command(command)
    root = root_folder(folder, argv)
    argv = [PurePosixPath(word).name if index == 0 and "/" in word else word for index, word in enumerate(argv)]
    if root != folder:  # its script is named relative to the root
        argv = [os.path.normpath(f"{folder}/{word}") if _is_relative_script(word) else word for word in argv]
    return shlex.join(word.removeprefix(f"{root.rstrip('/')}/") if root else word for word in argv)


def portable_program(argv: Sequence[str], folder: str) -> tuple[str, str]:
    """The script or module that a command runs, as sites name it, and its arguments as one text, without those that
    name where results go. Both are the same on every machine, and secrets are masked.

    :param folder: the folder in which the command was started.
    """
    argv = masked(argv)
    name = program(argv)
    root = root_folder(folder, argv)
    words = argv[argv.index(name) + 1 :] if name in argv else ()
    arguments: list[str] = []
    is_result = False
    for word in words:
        option, sign, value = word.partition("=")
        if is_result and not word.startswith("-"):
            is_result = False
            continue
        is_option = option.startswith("-")
        is_result = is_option and option.lstrip("-").replace("-", "_").lower() in _RESULT_OPTIONS
        if is_result:
            is_result = not sign
        elif is_option and sign:
            arguments += [option, portable_path(value, root)]
        else:
            arguments.append(portable_path(word, root))
    if name.endswith(".py"):
        name = portable_path(
            os.path.normpath(f"{folder}/{name}") if folder and not name.startswith("/") else name, root
        )
        name = PurePosixPath(name).name if name.startswith("\N{HORIZONTAL ELLIPSIS}") else name
    return name, shlex.join(arguments)


def missing_script(command: str, folder: str) -> str:
    """The script of a portable command if it is neither in the folder nor in its project any more; else empty."""
    try:
        argv = shlex.split(command)
    except ValueError:
        return ""
    script = next(filter(_is_relative_script, argv), "")
    folders = {folder, root_folder(folder, argv)}
    return "" if not script or any((Path(parent) / script).exists() for parent in folders) else script


def _is_relative_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("/")


# ---------------------------------------------------------------- how files changed

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
    """Reads the content with this id from git. None means that git is absent or has no such content."""
    try:
        result = run_git(Path(root), ["cat-file", "blob", former_id])
    except (ProfilerError, OSError):
        return None
    return None if result.code else result.out


def _likeness(before: str, after: str) -> float:
    """Share of the lines of two texts that are equal, without those that are empty."""
    first, second = ([line.strip() for line in text.splitlines() if line.strip()] for text in (before, after))
    return difflib.SequenceMatcher(None, first, second, autojunk=False).quick_ratio() if first and second else 0.0
