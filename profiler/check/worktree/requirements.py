"""Finds out whether a revision requires other packages than the working tree, and what is installed for it.

Read are the files of the nearest folder, from the working folder upward, that requires something: requirements.txt,
else requirements.lock, else every requirements*.txt; without them the project of pyproject.toml, setup.cfg or setup.py.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CONDA_FILES: Final = ("environment.yml", "environment.yaml")
_PROJECT_FILES: Final = ("pyproject.toml", "setup.cfg", "setup.py")
_UV_LOCK: Final = "uv.lock"
_PATTERNS: Final = (
    *("requirements*.txt", "requirements/*.txt", "requirements*.lock", *_PROJECT_FILES),
    *(_UV_LOCK, "poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", *CONDA_FILES),
)
_UNREAD: Final = {"poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", *CONDA_FILES}
"""Neither pip nor uv installs what these list."""
_PROJECT_KEYS: Final = ("dependencies", "optional-dependencies", "requires-python", "dynamic")
"""The parts of [project] that decide which packages are installed."""
_INCLUDE: Final = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
_LOCAL: Final = re.compile(r"^(?:-e\s+|--editable[\s=]+)?(?:\S+\s*@\s*)?(?:file://)?(?P<path>[./][^\[\s;]*)")
_COMMENT: Final = re.compile(r"(^|\s)#.*$")


@dataclass(frozen=True, slots=True)
class Requirements:
    """The packages that the programs of one folder need."""

    folder: Path
    files: tuple[Path, ...]
    """Requirements files."""
    projects: tuple[Path, ...]
    """Folders of local projects, which are installed editable for each check."""
    is_locked: bool = False
    """uv.lock has the versions of all packages; only uv reads it."""

    def key(self) -> str:
        """Return a text that is equal for equal sets of packages."""
        files = _with_includes([self.folder / _UV_LOCK, *self.files])
        files += [project / name for project in self.projects for name in _PROJECT_FILES]
        return json.dumps(list(map(significant_text, files)))

    def arguments(self) -> list[str]:
        """Return what `pip install` gets, to install everything in one resolution, local projects included."""
        in_files = local_projects(self.folder, self.files)
        words = [word for file in self.files for word in ("-r", str(file))]
        return words + [str(project) for project in self.projects if project not in in_files]


def find_requirements(tree: Path, cwd: Path, *, project_installed: bool) -> Requirements | None:
    """Return the requirements for a program in folder `cwd` of `tree`; None if no folder up to `tree` requires
    anything.

    :param project_installed: the user's environment contains a project of this repository, so the revision needs its
        own.
    """
    for folder in _folders(tree.resolve(), cwd):
        preferred = (folder / "requirements.txt", folder / "requirements.lock")
        file = next((file for file in preferred if file.is_file()), None)
        files = (file,) if file else tuple(sorted(folder.glob("requirements*.txt")))
        toml: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            toml = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        has_setup = (folder / "setup.py").is_file() or bool(significant_text(folder / "setup.cfg"))
        is_project = "project" in toml or "poetry" in toml.get("tool", {}) or has_setup
        if files or is_project:
            is_locked = "project" in toml and (folder / _UV_LOCK).is_file()
            needs_project = is_project and (project_installed or is_locked or not files)
            return Requirements(
                folder,
                files,
                projects=tuple(dict.fromkeys([folder] * needs_project + local_projects(folder, files))),
                is_locked=is_locked,
            )
    return None


def can_install(changed: Iterable[str], *, with_uv: bool) -> bool:
    """Return whether one of the changed files tells pip, or uv, what to install."""
    return bool({Path(name).name for name in changed} - _UNREAD - (set() if with_uv else {_UV_LOCK}))


def local_projects(folder: Path, files: Sequence[Path]) -> list[Path]:
    """Return folders that requirements files install, such as `-e .[dev]` and `./lib`."""
    lines = (line for file in _with_includes(files) for line in significant_text(file).splitlines())
    paths = ((folder / match["path"]).resolve() for line in lines if (match := _LOCAL.match(line)))
    return [path for path in paths if path.is_dir()]


def changed_files(root: Path, tree: Path, cwd: Path) -> tuple[str, ...]:
    """Return the names, relative to `root`, of files that require something else in `tree` than in the working tree."""
    names: dict[str, None] = {}
    for folder in _folders(root, cwd):
        files = [(top, file) for top in (root, tree) for file in requirement_files(top / folder.relative_to(root))]
        names |= dict.fromkeys(sorted(str(file.relative_to(top)) for top, file in files if file.is_relative_to(top)))
    return tuple(name for name in names if significant_text(root / name) != significant_text(tree / name))


def requirement_files(folder: Path) -> list[Path]:
    """Return the files in `folder` that state requirements, and those that they include."""
    return _with_includes([file for pattern in _PATTERNS for file in sorted(folder.glob(pattern)) if file.is_file()])


def significant_text(file: Path) -> str:
    """Return the parts of a file that decide which packages are installed, without comments; empty if there are
    none."""
    if not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".txt":
        lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
        return "\n".join(line for line in lines if line)
    parts: dict[str, Any] = {}
    try:
        if file.name == "pyproject.toml":
            toml = tomllib.loads(text)
            project, poetry = toml.get("project", {}), toml.get("tool", {}).get("poetry", {})
            parts = {key: project.get(key) for key in _PROJECT_KEYS} | {"build-system": toml.get("build-system")}
            parts |= {f"poetry.{key}": poetry.get(key) for key in ("dependencies", "extras", "group")}
        elif file.name == "setup.cfg":
            setup = configparser.ConfigParser(interpolation=None)
            setup.read_string(text)
            parts = {name: dict(setup[name]) for name in ("options", "options.extras_require") if name in setup}
        else:
            return text
    except (tomllib.TOMLDecodeError, configparser.Error):
        return text
    parts = {name: value for name, value in parts.items() if value}
    return json.dumps(parts, sort_keys=True, default=str) if parts else ""


def _with_includes(files: Iterable[Path]) -> list[Path]:
    """Return `files` and the files that they include by -r and -c, each once."""
    files = list(files)
    for file in files:  # grows meanwhile
        if file.is_file() and file.suffix not in {".toml", ".cfg", ".py"}:
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                match = _INCLUDE.match(line)
                included = (file.parent / match[1]).resolve() if match else None
                if included and included.is_file() and included not in files:
                    files.append(included)
    return files


def _folders(root: Path, cwd: Path) -> list[Path]:
    """Return folders from `cwd` up to `root`."""
    here = cwd.resolve()
    return [folder for folder in (here, *here.parents) if folder.is_relative_to(root)]
