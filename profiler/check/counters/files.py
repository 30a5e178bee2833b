"""Names the program's own files, and tells how they changed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from profiler.core.facts import program
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
    """Return the working folder; where the command names its script or module relatively, it is derived from the files
    of the recorded call sites, so that files of both sides have the names that the repository uses."""
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
    """Return the folder that paths are relative to: the one in which the program was started, or, if its script belongs
    to a project outside that folder, this project. So a command names the same files wherever it is started.

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
    """Return `file` relative to `folder` or to its package, without folders of this machine where that is possible.

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
    """Return a command without its secrets, and without the folders of this machine, where they can be left out.

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
    """Return the script or module that a command runs, as sites name it, and its arguments as one text, without those
    that name where results go. Both are the same on every machine, and secrets are masked.

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
    """Return the script of a portable command if it is neither in the folder nor in its project any more; else
    empty."""
    try:
        argv = shlex.split(command)
    except ValueError:
        return ""
    script = next(filter(_is_relative_script, argv), "")
    folders = {folder, root_folder(folder, argv)}
    return "" if not script or any((Path(parent) / script).exists() for parent in folders) else script


def _is_relative_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("/")
