"""Finds plug-ins: the modules of a package of this project, and the entry points of other packages.

Every module of such a package defines one `PLUGIN`, or several as `PLUGINS`, so one more file adds a plug-in. Other
packages add theirs with an entry point of a group `training_profiler.GROUP`; the groups are commands, sections, checks
and trainers.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from profiler.core.errors import ProfilerError

PROJECT: Final = "training-profiler"
_PREFIX: Final = "training_profiler."
_OURS: Final = re.compile(r"training[-_.]profiler(-\d|\.egg-info)", re.IGNORECASE).match
"""Matches the name of the folder with the metadata of this project."""
_Result = TypeVar("_Result")


def discover(package: str) -> tuple[Any, ...]:
    """Return the `PLUGIN`, or the `PLUGINS`, of every module in `package`, sorted by `name`.

    Modules whose name begins with an underscore are helpers, not plug-ins. Imports every module of the package,
    so these keep heavy imports inside their functions.

    :raises ProfilerError: a module that cannot be imported, has no PLUGIN, or takes the name of another.
    """
    parent = _load(package)
    plugins: dict[str, tuple[str, Any]] = {}
    for entry in pkgutil.iter_modules(parent.__path__):
        if entry.name.startswith("_"):
            continue
        path = f"{package}.{entry.name}"
        module = _load(path)
        for plugin in getattr(module, "PLUGINS", None) or (getattr(module, "PLUGIN", None),):
            name = getattr(plugin, "name", None)
            if not isinstance(name, str) or not name:
                raise ProfilerError(f"plug-in {path}: needs a PLUGIN with a name, as every module of {package} has")
            if name in plugins:
                raise ProfilerError(f"plug-in {path}: the name {name!r} is taken by {plugins[name][0]}")
            plugins[name] = (path, plugin)
    return tuple(plugins[name][1] for name in sorted(plugins))


def _load(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except (ImportError, SyntaxError) as error:
        raise ProfilerError(f"plug-in {path}: cannot be imported: {type(error).__name__}: {error}") from error


@cache
def entry_points(group: str) -> dict[str, Any]:
    """Return the objects of the entry-point group `training_profiler.GROUP` by name, sorted by it.

    An entry point that cannot be loaded is reported in one line and left out.
    """
    checkout = _checkout_text()
    targets: dict[str, str] = {}
    for text in (*reversed(_installed_texts(tuple(sys.path), is_clone=bool(checkout))), checkout):
        targets |= entries_of(text, group)
    objects: dict[str, Any] = {}
    for name, target in sorted(targets.items()):
        plugin = call_plugin(f"{name} ({target})", _load_object, target)
        if plugin is not None:
            objects[name] = plugin
    return objects


def _load_object(target: str) -> Any:
    module, _, path = target.partition(":")
    return attrgetter(path)(importlib.import_module(module))


def _checkout_text() -> str:
    """Return the pyproject.toml beside this package: a clone has its entry points without being installed; ''
    elsewhere."""
    with suppress(OSError):
        text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
        return text if f'name = "{PROJECT}"' in text else ""
    return ""


@cache
def _installed_texts(path: tuple[str, ...], *, is_clone: bool) -> tuple[str, ...]:
    """Return the entry_points.txt files below the folders of `path`, in that order, that mention this project.

    importlib.metadata finds the same, but importing it would take a fifth of the time of `--help`.

    :param is_clone: leave out an installed copy of this project: it may be older than this clone.
    """
    texts = []
    for folder in dict.fromkeys(path):
        files = []
        with suppress(OSError), os.scandir(folder or ".") as entries:
            names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
            files = [f"{folder or '.'}/{name}/entry_points.txt" for name in names if not (is_clone and _OURS(name))]
        for file in files:
            with suppress(OSError, UnicodeDecodeError), open(file, encoding="utf-8") as content:
                texts.append(content.read())
    return tuple(text for text in texts if f"[{_PREFIX}" in text)


def entries_of(text: str, group: str) -> dict[str, str]:
    """Return the entry points `name = target` of a group in an entry_points.txt or a pyproject.toml."""
    head = rf'^\[(?:project\.entry-points\.")?{re.escape(_PREFIX + group)}"?\]$'
    section = re.search(rf"{head}(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    lines = section[1].splitlines() if section else []
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip().strip('"'): target.strip().strip('"') for name, _, target in pairs}


def call_plugin(plugin: str, function: Callable[..., _Result], *arguments: Any) -> _Result | None:
    """Call a function of another package; its error becomes one line on stderr and does not break the command."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - the edge to code that is not ours
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"profiler: the plug-in {plugin} failed and is left out: {reason}", file=sys.stderr)
        return None
