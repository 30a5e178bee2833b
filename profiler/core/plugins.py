"""Finds plug-ins: the modules of a package of ours, and the objects that installed packages name as entry points.

Every module of such a package defines one `PLUGIN`, so adding a plug-in is adding one file. Other packages add theirs
with an entry point of a group `training_profiler.GROUP`: commands, sections, checks, trainers or json.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from profiler.core.errors import ProfilerError

PROJECT: Final = "training-profiler"
_PREFIX: Final = "training_profiler."
_Result = TypeVar("_Result")


def discover(package: str) -> tuple[Any, ...]:
    """The `PLUGIN` of every module in `package`, sorted by its `name`.

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
        plugin = getattr(_load(path), "PLUGIN", None)
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
    """The objects of the entry-point group `training_profiler.GROUP` by name, sorted by it.

    An entry point that cannot be loaded is reported in one line and left out.
    """
    objects: dict[str, Any] = {}
    for name, entry in sorted(_declared(_PREFIX + group)):
        plugin = call_plugin(f"{name} ({entry.value})", entry.load)
        if plugin is not None:
            objects.setdefault(name, plugin)
    return objects


def _declared(group: str) -> Iterator[tuple[str, Any]]:
    """Entry points of a group: of the pyproject.toml beside this package, as in a clone, and of installed packages."""
    import importlib.metadata as metadata

    checkout = _checkout_tables()
    for name, target in (checkout or {}).get(group, {}).items():
        yield name, metadata.EntryPoint(name, target, group)
    for entry in metadata.entry_points(group=group):
        if checkout is None or entry.dist is None or entry.dist.name != PROJECT:
            yield entry.name, entry


@cache
def _checkout_tables() -> dict[str, dict[str, str]] | None:
    """The entry points of the checkout that this package is imported from; None where it is installed elsewhere."""
    import tomllib

    try:
        with (Path(__file__).resolve().parents[2] / "pyproject.toml").open("rb") as file:
            project = tomllib.load(file)["project"]
    except (OSError, ValueError, KeyError):
        return None
    tables: dict[str, dict[str, str]] = project.get("entry-points", {})
    return tables if project.get("name") == PROJECT else None


def call_plugin(plugin: str, function: Callable[..., _Result], *arguments: Any) -> _Result | None:
    """Call a function of another package; its error becomes one line on stderr and does not break the command."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - the edge to code that is not ours
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"profiler: the plug-in {plugin} failed and is left out: {reason}", file=sys.stderr)
        return None
