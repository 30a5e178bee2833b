"""Sentences for notices about a revision that was made ready (profiler/check/worktree)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from profiler.core.notice import Notice

_MAX_FILES: Final = 3
_MAX_PACKAGES: Final = 4
_ENVIRONMENTS: Final = {
    "same": "both sides ran in your environment, as requested",
    "manager": "{program} chooses the environment",
    "nothing-to-install": "pip finds nothing to install: both sides ran in your environment",
    "new": "it ran in an environment of its own (made now, {path})",
    "cached": "it ran in an environment of its own (made by an earlier check, {path})",
}


def _shortened(names: Sequence[str], limit: int) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _requirements(values: Mapping[str, Any]) -> str:
    files = _shortened(values["files"], _MAX_FILES)
    return f"{values['rev']} has other requirements ({files}): {_ENVIRONMENTS[values['environment']].format(**values)}"


def _packages(values: Mapping[str, Any]) -> str:
    versions = [f"{name} {theirs} there, {ours} here" for name, theirs, ours in values["packages"]]
    return f"versions of packages differ: {_shortened(versions, _MAX_PACKAGES)}"


REVISION_SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "requirements-differ": _requirements,
    "package-versions-differ": _packages,
    "extras-not-installed": lambda _: (
        "extras of pyproject.toml are not installed there: name what is needed in requirements.txt"
    ),
    "conda-file-ignored": lambda values: f"{values['file']} of conda is ignored",
    "submodule-missing": lambda values: (
        f"submodule {values['name']} is empty there: {values['commit']} is not in your checkout "
        f"(git submodule update --init {values['name']})"
    ),
    "submodule-incomplete": lambda values: f"submodule {values['name']} is incomplete there: {values['error']}",
    "lfs-pointers": lambda values: (
        f"{_shortened(values['files'], _MAX_FILES)}: large files of git-lfs that were not fetched: git lfs fetch, or "
        "--link them from the working tree"
    ),
    "installed-copy": lambda values: (
        f"{values['name']} was installed as a copy of {values['folder']}, so both sides import the same code from it; "
        "pip install -e lets each import its own"
    ),
}


def revision_sentence(notice: Notice) -> str:
    return REVISION_SENTENCES[notice.code](notice.values)
