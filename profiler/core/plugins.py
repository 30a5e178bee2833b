"""Finds plug-ins: every module of a package defines one `PLUGIN`; adding a plug-in is adding one file."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from profiler.core.errors import ProfilerError


def discover(package: str) -> tuple[Any, ...]:
    """The `PLUGIN` of every module in `package`, sorted by its `name`.

    Modules whose name begins with an underscore are helpers, not plug-ins. Imports every module of the package,
    so these keep heavy imports inside their functions.

    :raises ProfilerError: a module that cannot be imported, has no PLUGIN, or takes the name of another.
    """
    parent = _load(package)
    found: dict[str, tuple[str, Any]] = {}
    for entry in pkgutil.iter_modules(parent.__path__):
        if entry.name.startswith("_"):
            continue
        path = f"{package}.{entry.name}"
        plugin = getattr(_load(path), "PLUGIN", None)
        name = getattr(plugin, "name", None)
        if not isinstance(name, str) or not name:
            raise ProfilerError(f"plug-in {path}: needs a PLUGIN with a name, as every module of {package} has")
        if name in found:
            raise ProfilerError(f"plug-in {path}: the name {name!r} is taken by {found[name][0]}")
        found[name] = (path, plugin)
    return tuple(found[name][1] for name in sorted(found))


def _load(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except (ImportError, SyntaxError) as error:
        raise ProfilerError(f"plug-in {path}: cannot be imported: {type(error).__name__}: {error}") from error
