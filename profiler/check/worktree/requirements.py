"""Finds out whether a revision requires other packages than the working tree, and what pip has to install.

Read are the files of the nearest folder, from the working folder upward, that requires something: requirements.txt,
else requirements.lock, else every requirements*.txt; without them the project of pyproject.toml, setup.cfg or setup.py.
constraints.txt and the versions in uv.lock, poetry.lock, pdm.lock and Pipfile.lock constrain them.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PATTERNS: Final = (
    *("requirements*.txt", "requirements/*.txt", "requirements*.lock", "constraints*.txt"),
    *("pyproject.toml", "setup.cfg", "setup.py"),
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", "environment.yml", "environment.yaml"),
)
_PROJECT_FILES: Final = ("pyproject.toml", "setup.cfg", "setup.py")
_CONDA_FILES: Final = ("environment.yml", "environment.yaml")
_LOCK_FILES: Final = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
_PROJECT_KEYS: Final = ("dependencies", "optional-dependencies", "requires-python", "dynamic")
"""The parts of [project] that decide which packages are installed."""
_SETUP_KEYS: Final = ("install_requires", "setup_requires", "python_requires")
"""The parts of [options] in setup.cfg that decide which packages are installed, besides the extras."""
_INCLUDE: Final = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
_LOCAL: Final = re.compile(r"^(?:-e\s+|--editable[\s=]+)?(?:\S+\s*@\s*)?(?:file://)?(?P<path>[./][^\[\s;]*)")
_COMMENT: Final = re.compile(r"(^|\s)#.*$")


@dataclass(frozen=True, slots=True)
class Requirements:
    """The packages that pip has to install for the programs of one folder."""

    folder: Path
    files: tuple[Path, ...]
    """Requirements files."""
    projects: tuple[Path, ...]
    """Folders of local projects. The cache has what they require; they are installed editable for one check only."""
    constraints: tuple[str, ...] = ()
    has_extras: bool = False
    """The folder's own project has optional dependencies, which are not installed."""

    def key(self) -> str:
        """A text that is equal for equal sets of packages."""
        files = _with_includes([self.folder / "constraints.txt", *self.files])
        files += [file for project in self.projects for file in _project_files(project)]
        return json.dumps([list(map(significant_text, files)), self.constraints])


def find_requirements(tree: Path, cwd: Path, *, project_installed: bool) -> Requirements | None:
    """The requirements for a program in folder `cwd` of `tree`; None if no folder up to `tree` requires anything.

    :param project_installed: the user's environment contains a project of this repository, so the revision needs its
        own.
    """
    for folder in _folders(tree.resolve(), cwd):
        preferred = (folder / "requirements.txt", folder / "requirements.lock")
        file = next((file for file in preferred if file.is_file()), None)
        files = (file,) if file else tuple(sorted(folder.glob("requirements*.txt")))
        toml = _read(folder / "pyproject.toml", tomllib.loads)
        has_setup = (folder / "setup.py").is_file() or bool(significant_text(folder / "setup.cfg"))
        is_project = "project" in toml or "poetry" in toml.get("tool", {}) or has_setup
        if files or is_project:
            needs_project = is_project and (project_installed or not files)
            return Requirements(
                folder,
                files,
                projects=tuple(dict.fromkeys([folder] * needs_project + local_projects(folder, files))),
                constraints=tuple(pin for name in _LOCK_FILES for pin in _locked_versions(folder / name)),
                has_extras=needs_project and bool(toml.get("project", {}).get("optional-dependencies")),
            )
    return None


def _project_files(project: Path) -> list[Path]:
    """Files that state what a project requires; setup.cfg and setup.py cannot if pyproject.toml lists it."""
    table = _read(project / "pyproject.toml", tomllib.loads).get("project", {})
    is_listed = "dependencies" in table and not table.get("dynamic")
    return [project / name for name in _PROJECT_FILES[: 1 if is_listed else None]]


def local_projects(folder: Path, files: Sequence[Path]) -> list[Path]:
    """Folders that requirements files install, such as `-e .[dev]` and `./lib`."""
    lines = (line for file in _with_includes(files) for line in significant_text(file).splitlines())
    paths = ((folder / match["path"]).resolve() for line in lines if (match := _LOCAL.match(line)))
    return [path for path in paths if path.is_dir()]


def conda_files(tree: Path, cwd: Path) -> tuple[str, ...]:
    """Names of conda's files from `cwd` up to `tree`; pip cannot use them."""
    return tuple(name for folder in _folders(tree.resolve(), cwd) for name in _CONDA_FILES if (folder / name).is_file())


def changed_files(root: Path, tree: Path, cwd: Path) -> tuple[str, ...]:
    """Names, relative to `root`, of the files that require something else in `tree` than in the working tree."""
    names: dict[str, None] = {}
    for folder in _folders(root, cwd):
        files = [(top, file) for top in (root, tree) for file in requirement_files(top / folder.relative_to(root))]
        names |= dict.fromkeys(sorted(str(file.relative_to(top)) for top, file in files if file.is_relative_to(top)))
    return tuple(name for name in names if significant_text(root / name) != significant_text(tree / name))


def requirement_files(folder: Path) -> list[Path]:
    """Files in `folder` that state requirements, and those that they include."""
    return _with_includes([file for pattern in _PATTERNS for file in sorted(folder.glob(pattern)) if file.is_file()])


def significant_text(file: Path) -> str:
    """The parts of a file that decide which packages are installed, without comments; empty if there are none."""
    if not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        if file.name == "pyproject.toml":
            return _significant_toml(tomllib.loads(text))
        if file.name == "setup.cfg":
            return _significant_setup(text)
    except (tomllib.TOMLDecodeError, configparser.Error):
        return text
    if file.suffix == ".txt":
        lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
        return "\n".join(line for line in lines if line)
    return text


def _significant_toml(toml: dict[str, Any]) -> str:
    project, poetry = toml.get("project", {}), toml.get("tool", {}).get("poetry", {})
    parts = {
        **{key: project[key] for key in _PROJECT_KEYS if key in project},
        "build-system": toml.get("build-system", {}),
        "poetry": {key: poetry[key] for key in ("dependencies", "extras", "group") if key in poetry},
    }
    parts = {key: value for key, value in parts.items() if value}
    return json.dumps(parts, sort_keys=True, default=str) if parts else ""


def _significant_setup(text: str) -> str:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    options, extras = (
        dict(parser[name]) if parser.has_section(name) else {} for name in ("options", "options.extras_require")
    )
    parts = {key: options[key] for key in _SETUP_KEYS if key in options}
    return json.dumps([parts, extras], sort_keys=True) if parts or extras else ""


def _with_includes(files: Iterable[Path]) -> list[Path]:
    """`files` and the files that they include by -r and -c, each once."""
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
    """Folders from `cwd` up to `root`."""
    here = cwd.resolve()
    return [folder for folder in (here, *here.parents) if folder.is_relative_to(root)]


def _locked_versions(lock: Path) -> Iterator[str]:
    """name==version of a lock's packages from an index, except names with several versions."""
    versions: dict[str, set[str]] = defaultdict(set)
    if lock.name == "Pipfile.lock":
        for name, package in _read(lock, json.loads).get("default", {}).items():
            if str(package.get("version", "")).startswith("=="):
                versions[name].add(package["version"].removeprefix("=="))
    else:
        for package in _read(lock, tomllib.loads).get("package", ()):
            source = package.get("source", {})
            from_index = "registry" in source or not source or source.get("type") == "legacy"
            if from_index and "name" in package and "version" in package:
                versions[str(package["name"])].add(str(package["version"]))
    yield from (f"{name}=={version}" for name, (version, *more) in sorted(versions.items()) if not more)


def _read(file: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
