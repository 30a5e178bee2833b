"""What pip has to install for a revision: its requirements, pinned by its locks, and its own projects, editable.

Which files: requirements.txt; else requirements.lock; else every requirements*.txt beside it. constraints.txt and the
versions of uv.lock, poetry.lock, pdm.lock and Pipfile.lock constrain them. Where there are no requirements, what
[project] of pyproject.toml names, without its extras; where only a build tells (setup.py, poetry), that is asked.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profiler.check.worktree.dependencies import folders, meaning

_INCLUDE: Final = re.compile(r"^(?P<flag>-r|-c|--requirement|--constraint)[\s=]*(?P<file>\S+)$")
_LOCAL: Final = re.compile(
    r"^(?:-e\s+|--editable[\s=]+)?(?:\S+\s*@\s*)?(?:file://)?(?P<path>[./][^\[\s;]*)(\[(?P<extras>[^\]]*)\])?"
)
_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_LOCKS: Final = ("uv.lock", "poetry.lock", "pdm.lock")
_CONDA: Final = ("environment.yml", "environment.yaml")


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one folder of a revision."""

    folder: Path
    lines: tuple[str, ...]
    """Of a requirements file, includes expanded."""
    constraints: tuple[str, ...] = ()
    projects: tuple[Path, ...] = ()
    """Folders that are installed editable, for this check alone."""
    untold: tuple[Path, ...] = ()
    """Of the projects those whose requirements only a build tells."""
    notes: tuple[str, ...] = ()

    def key(self) -> str:
        """What decides which packages it comes to, as a text."""
        builds = [meaning(folder / name) for folder in self.untold for name in _SETUP if (folder / name).is_file()]
        return json.dumps([self.lines, self.constraints, builds])


_SETUP: Final = ("pyproject.toml", "setup.cfg", "setup.py")


def plan(tree: Path, cwd: Path, *, installed: bool) -> Plan | None:
    """Of the nearest folder, from `cwd` up to `tree`, that requires something; None: none does.

    :param installed: the user's environment has a project of this repository, so that the revision's needs one too.
    """
    for folder in folders(tree.resolve(), cwd):
        chosen = _requirement_files(folder)
        if chosen or _is_project(folder):
            return _plan(folder, chosen, own=_is_project(folder) and (installed or not chosen))
    return None


def conda_files(tree: Path, cwd: Path) -> tuple[str, ...]:
    """Names of conda's files on the way from `cwd` up to `tree`: pip makes nothing of them."""
    return tuple(name for folder in folders(tree.resolve(), cwd) for name in _CONDA if (folder / name).is_file())


def _requirement_files(folder: Path) -> list[Path]:
    for name in ("requirements.txt", "requirements.lock"):
        if (folder / name).is_file():
            return [folder / name]
    return sorted(folder.glob("requirements*.txt"))


def _is_project(folder: Path) -> bool:
    read = _toml(folder / "pyproject.toml")
    named = "project" in read or "poetry" in read.get("tool", {})
    return named or (folder / "setup.py").is_file() or bool(meaning_of_setup(folder))


def meaning_of_setup(folder: Path) -> str:
    """What setup.cfg requires; empty where there is none."""
    return meaning(folder / "setup.cfg") if (folder / "setup.cfg").is_file() else ""


def _plan(folder: Path, chosen: Sequence[Path], *, own: bool) -> Plan:
    lines: list[str] = []
    constraints: list[str] = []
    for file in chosen:
        _expand(file, lines, constraints, set())
    if (folder / "constraints.txt").is_file():
        _expand(folder / "constraints.txt", constraints, constraints, set())
    projects: dict[Path, tuple[str, ...]] = {folder: ()} if own else {}
    kept = []
    for line in lines:
        local = _LOCAL.match(line)
        place = (folder / local["path"]).resolve() if local else None
        if local and place and place.is_dir():
            projects[place] = tuple(word.strip() for word in (local["extras"] or "").split(",") if word.strip())
        else:
            kept.append(line)
    untold, notes = [], []
    for project, extras in projects.items():
        told = _told(project, extras)
        if told is None:
            untold.append(project)
        else:
            kept += told
        if (
            own
            and project == folder
            and _toml(project / "pyproject.toml").get("project", {}).get("optional-dependencies")
        ):
            notes.append("extras of pyproject.toml are not installed there: name what is needed in requirements.txt")
    pinned = [pin for file in (*_LOCKS, "Pipfile.lock") for pin in _pins(folder / file)]
    return Plan(
        folder, tuple(dict.fromkeys(kept)), (*constraints, *pinned), tuple(projects), tuple(untold), tuple(notes)
    )


def _expand(file: Path, lines: list[str], constraints: list[str], seen: set[Path]) -> None:
    """The lines of a requirements file and of those that it includes, continued lines joined, comments dropped."""
    if file in seen or not file.is_file():
        return
    seen.add(file)
    for line in file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").splitlines():
        line = _COMMENT.sub("", line).strip()
        if include := _INCLUDE.match(line):
            target = constraints if include["flag"] in {"-c", "--constraint"} else lines
            _expand((file.parent / include["file"]).resolve(), target, constraints, seen)
        elif line:
            lines.append(line)


def _told(folder: Path, extras: Sequence[str]) -> list[str] | None:
    """What a project requires by its pyproject.toml; None: only its build tells."""
    project = _toml(folder / "pyproject.toml").get("project")
    if project is None or "dependencies" in project.get("dynamic", ()):
        return None
    if "dependencies" not in project and ((folder / "setup.py").exists() or meaning_of_setup(folder)):
        return None
    optional = project.get("optional-dependencies", {})
    return [*project.get("dependencies", ()), *(one for extra in extras for one in optional.get(extra, ()))]


def _pins(lock: Path) -> Iterator[str]:
    """name==version of a lock's packages from an index; a name with several versions is left to pip."""
    if not lock.is_file():
        return
    versions: dict[str, set[str]] = defaultdict(set)
    for name, version in _locked_json(lock) if lock.name == "Pipfile.lock" else _locked_toml(lock):
        versions[name].add(version)
    yield from (f"{name}=={only}" for name, (only, *more) in sorted(versions.items()) if not more)


def _locked_toml(lock: Path) -> Iterator[tuple[str, str]]:
    for package in _toml(lock).get("package", ()):
        source = package.get("source", {})
        index = "registry" in source or not source or source.get("type") == "legacy"
        if index and "name" in package and "version" in package:
            yield str(package["name"]), str(package["version"])


def _locked_json(lock: Path) -> Iterator[tuple[str, str]]:
    try:
        read = json.loads(lock.read_text(encoding="utf-8"))
    except ValueError:
        return
    for name, about in read.get("default", {}).items():
        if str(about.get("version", "")).startswith("=="):
            yield name, about["version"].removeprefix("==")


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
