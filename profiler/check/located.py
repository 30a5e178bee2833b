"""Where a site is, in words that are the same on every machine, and the text of its line: what baselines hold."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from profiler.run.model import Run

MOST_TEXT: Final = 80
"""Characters of a line's text that are kept: enough to know it again."""
COMPILED: Final = "(compiled)"
"""Stands for the files that torch.compile writes: their names are other ones on each machine."""
_MOST_UP: Final = 3
"""Folders up from the program's own below which a file may still belong to the same checkout."""
_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/|.*/lib(?:64)?/python3(?:\.\d+)?/")
_COMPILED: Final = re.compile(r"/torchinductor_[^/]*/|/torch_compile_debug/")


def folder_of(run: Run) -> str:
    """The folder that the program was started in, where it said so; else that of its script; empty: not known."""
    said = run.info.facts.get("cwd") or run.info.host.get("cwd")
    if said:
        return str(said)
    script = next((word for word in run.info.argv if word.endswith(".py") and word.startswith("/")), "")
    return str(PurePosixPath(script).parent) if script else ""


def place_of(folder: str, words: Sequence[str]) -> str:
    """The folder that files are told from: the one that the program was started in, or the project of its script where
    that is outside of it, so that a command says the same files from anywhere.

    :param words: of the command. A project is where a .git is, else a pyproject.toml, upward from the script.
    """
    script = next((word for word in words if word.endswith(".py")), "")
    if not script or not folder:
        return folder
    above = Path(os.path.normpath(Path(folder) / script)).parents
    projects = [one for mark in (".git", "pyproject.toml") for one in above if (one / mark).exists()]
    if not projects or any(Path(folder).is_relative_to(one) for one in projects):
        return folder
    return str(projects[0])


def shown(file: str, folder: str) -> str:
    """`file` as people know it: below `folder` or its package; nothing of the machine's own folders where it can be.

    train.py, ../lib/model.py, torch/optim/sgd.py; of a file that lies elsewhere the last two parts: …/lib/model.py.
    """
    file = file.encode("utf-8", "replace").decode("utf-8")  # a name that is no text cannot be written as one
    if not file.startswith("/"):
        return file
    if _COMPILED.search(file):
        return COMPILED
    path = PurePosixPath(file)
    if folder and not path.is_relative_to(folder):  # by way of a symbolic link
        real = PurePosixPath(os.path.realpath(file))
        file, path = (str(real), real) if real.is_relative_to(folder) else (file, path)
    if folder and path.is_relative_to(folder) and not _PACKAGES.match(file[len(folder) :]):
        return str(path.relative_to(folder))
    if found := _PACKAGES.match(file):
        return file[found.end() :]
    if folder:
        relative = os.path.relpath(file, folder)
        ups = relative.split("/").count("..")
        if ups <= _MOST_UP and ups < len(PurePosixPath(folder).parts) - 1:
            return relative
    return f"…/{'/'.join(path.parts[-2:])}"


def text_of(file: str, line: int) -> str:
    """What stands in a line now, shortened; empty where it cannot be read. It tells a line that has moved from a new
    one."""
    linecache.checkcache(file)
    return " ".join(linecache.getline(file, line).split())[:MOST_TEXT]
