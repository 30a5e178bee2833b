"""What a tree says that it requires, out of the files that pip and its like read."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_PATTERNS: Final = (
    *("requirements*.txt", "requirements/*.txt", "requirements*.lock", "constraints*.txt"),
    *("pyproject.toml", "setup.cfg", "setup.py"),
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", "environment.yml", "environment.yaml"),
)
_PROJECT: Final = ("dependencies", "optional-dependencies", "requires-python", "dynamic")
"""Of [project] what decides which packages are installed."""
_INCLUDED: Final = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
_COMMENT: Final = re.compile(r"(^|\s)#.*$")


def folders(root: Path, cwd: Path) -> tuple[Path, ...]:
    """From `cwd` up to `root`: where the files are looked for, a project in a folder of a larger repository too."""
    here = cwd.resolve()
    return tuple(folder for folder in (here, *here.parents) if folder.is_relative_to(root))


def files(folder: Path) -> tuple[Path, ...]:
    """The files in `folder` and those that its requirements include, each once."""
    found = [file for pattern in _PATTERNS for file in sorted(folder.glob(pattern)) if file.is_file()]
    for file in found:  # it grows as it is read
        if file.suffix == ".txt":
            found += [other for other in _included(file) if other not in found]
    return tuple(found)


def _included(file: Path) -> Iterator[Path]:
    for line in _read(file).splitlines():
        if (named := _INCLUDED.match(line)) and (other := (file.parent / named[1]).resolve()).is_file():
            yield other


def meaning(file: Path) -> str:
    """What of a file decides which packages are installed, in a form of its own; comments do not."""
    text = _read(file)
    try:
        if file.name == "pyproject.toml":
            said = {key: value for key, value in _of_project(tomllib.loads(text)).items() if value}
            return json.dumps(said, sort_keys=True, default=str) if said else ""
        if file.name == "setup.cfg":
            return _of_setup(text)
    except (tomllib.TOMLDecodeError, configparser.Error):
        return text
    if file.suffix == ".txt":
        lines = (_COMMENT.sub("", line).strip() for line in text.splitlines())
        return "\n".join(line for line in lines if line)
    return text


def _of_project(read: dict[str, Any]) -> dict[str, Any]:
    project, tool = read.get("project", {}), read.get("tool", {})
    poetry = tool.get("poetry", {})
    return {
        **{key: project[key] for key in _PROJECT if key in project},
        "build-system": read.get("build-system", {}),
        "poetry": {key: poetry[key] for key in ("dependencies", "extras", "group") if key in poetry},
    }


def _of_setup(text: str) -> str:
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(text)
    options = dict(read["options"]) if read.has_section("options") else {}
    extras = dict(read["options.extras_require"]) if read.has_section("options.extras_require") else {}
    kept = {key: options.get(key, "") for key in ("install_requires", "setup_requires", "python_requires")}
    return json.dumps([kept, extras], sort_keys=True) if any(kept.values()) or extras else ""


def differing(root: Path, tree: Path, cwd: Path) -> tuple[str, ...]:
    """Names, from the root on, of the files that require something else in `tree` than in the working tree."""
    names: dict[str, None] = {}
    for folder in folders(root, cwd):
        within = folder.relative_to(root)
        here = {str(file.relative_to(root)) for file in files(folder) if file.is_relative_to(root)}
        there = {str(file.relative_to(tree)) for file in files(tree / within) if file.is_relative_to(tree)}
        names |= dict.fromkeys(sorted(here | there))
    return tuple(name for name in names if _meant(root / name) != _meant(tree / name))


def _meant(file: Path) -> str:
    return meaning(file) if file.is_file() else ""


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")
