"""Translates a command's paths from the user's checkout to a revision's, and finds imports that cross between them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.check.worktree.checkout import PREFIX
from profiler.core.errors import ProfilerError


@dataclass(frozen=True, slots=True)
class PathMapping:
    """Maps paths of the working tree to the tree of a revision."""

    root: Path
    tree: Path

    def map_path(self, path: str) -> str | None:
        """The counterpart of an absolute path in the tree, however it spells the root; None if it is elsewhere."""
        if not path.startswith("/"):
            return None
        normal = Path(os.path.normpath(path))
        # links within the repository stay, such as data -> /mnt/data
        top = next((folder for folder in (normal, *normal.parents) if os.path.realpath(folder) == str(self.root)), None)
        if top is None:
            normal, top = Path(os.path.realpath(normal.parent)) / normal.name, self.root
        return str(self.tree / normal.relative_to(top)) if normal.is_relative_to(top) else None

    def map_argument(self, argument: str) -> str:
        """Translate /repo/a.py and --config=/repo/a.yaml; files of an environment stay the user's."""
        option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
        mapped = self.map_path(value)
        return argument if mapped is None or in_environment(Path(value)) else option + equals + mapped

    def map_cwd(self, cwd: Path, rev: str) -> Path:
        """The folder in which the program starts.

        :raises ProfilerError: the revision does not have it.
        """
        relative = cwd.resolve().relative_to(self.root)
        folder = self.tree / relative
        if not folder.is_dir():
            raise ProfilerError(f"{rev} has no folder {relative}, where the command would start: run it from another")
        return folder

    def map_program(self, program: str, cwd: Path, rev: str) -> str:
        """Translate the first word of a command; a relative path into an environment becomes absolute.

        :raises ProfilerError: it is a file of the repository that the revision does not have.
        """
        if "/" not in program:
            return program
        file = cwd / program
        absolute = os.path.normpath(file.absolute())
        if in_environment(file):
            return absolute
        mapped = self.map_path(absolute)
        if mapped is not None and file.exists() and not os.path.lexists(mapped):
            raise ProfilerError(f"{rev} has no {program}: give --link {program} if it is a file that git does not keep")
        return self.map_argument(program)

    def python_path(self, python_path: str, import_paths: Sequence[str]) -> str:
        """PYTHONPATH for the revision.

        :param python_path: the user's; relative entries stay, because they are relative to where a program starts.
        :param import_paths: where the interpreter finds modules without it (editable installs).
        """
        entries = [self.map_path(entry) or entry for entry in python_path.split(os.pathsep)] if python_path else []
        mapped = [path for path in map(self.map_path, import_paths) if path and not in_environment(Path(path))]
        source = [str(self.tree / "src")] if _contains_packages(self.tree / "src") else []
        return os.pathsep.join(dict.fromkeys([*entries, *mapped, *source]))


def in_environment(path: Path) -> bool:
    """Whether `path` lies in a virtual or conda environment."""
    folders = Path(os.path.normpath(path.absolute())).parents
    return any((folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir() for folder in folders)


def working_tree_files(files: Iterable[str], repository: Path) -> tuple[str, ...]:
    """The module files that a revision's program has loaded from the working tree, sorted.

    Files of an environment within the repository (.venv) and files that the revision reaches through --link are
    allowed.
    """
    root = repository.resolve()
    wrong = set()
    for file in files:
        real = Path(os.path.realpath(file))
        linked = any(part.startswith(PREFIX) for part in Path(file).parts)
        if real.is_relative_to(root) and not linked and not in_environment(real):
            wrong.add(str(real))
    return tuple(sorted(wrong))


def refuse_working_tree(files: Iterable[str], repository: Path) -> None:
    """:raises ProfilerError: a revision's program has loaded files of the working tree."""
    if wrong := working_tree_files(files, repository):
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ProfilerError(
            f"the base runs code of the working tree ({wrong[0]}{more}), so both sides would be the same: is the "
            f"project installed in the environment from this folder? Start it from its sources (python -m ...), or "
            f"use --set environment=auto"
        )


def _contains_packages(source: Path) -> bool:
    """Whether modules are imported from `source` rather than from the folder above it."""
    if not source.is_dir() or (source / "__init__.py").exists():
        return False
    return any((entry / "__init__.py").exists() for entry in source.iterdir() if entry.is_dir())
