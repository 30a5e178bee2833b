"""Numba's decorators with a cache that notices every change of our compiled sources.

Numba keys its disk cache by the file of the decorated function alone, so a change in a kernel that the
worker calls would go unseen. Here the cache folder's name holds a hash of all sources that are compiled.
Nor are its writers kept apart: see `_save`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numba
from numba import cfunc, config, njit
from numba.core.caching import IndexDataCacheFile

__all__ = ["cfunc", "njit"]

_COMPILED = ("devices", "kernels", "ssm/kernels")
_NEEDED = ("_load_index", "_save_data", "_save_index", "_data_name", "_cache_path")
"""Names of Numba's own that `_save` needs: a later Numba may do without one."""
_usual_save = IndexDataCacheFile.save


def _cache_directory() -> Path:
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()}".encode())
    here = Path(__file__).parent
    for source in sorted(path for folder in _COMPILED for path in (here / folder).glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "training-profiler" / "numba" / digest.hexdigest()[:16]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes out, where it can be: not every file system has locks; `.lock` may be another user's."""
    with ExitStack() as stack:
        with suppress(OSError):
            lock = stack.enter_context(open(folder / ".lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            # closing does not unlock it where another thread forked meanwhile: the child has the file too
            stack.callback(fcntl.flock, lock, fcntl.LOCK_UN)
        yield


def _save(file: Any, key: Any, data: Any) -> None:
    """What Numba has, for one process at a time, and the code before the index that names it.

    Two processes that compile a function for different arguments at the same moment would else take the same file, and
    the next one would call the code of the one with the arguments of the other.
    """
    if not all(hasattr(file, name) for name in _NEEDED):
        _usual_save(file, key, data)
        return
    with _alone(Path(file._cache_path)):
        names = file._load_index()
        if key not in names:
            used = set(names.values())
            names[key] = next(name for number in count(1) if (name := file._data_name(number)) not in used)
        file._save_data(names[key], data)
        file._save_index(names)


IndexDataCacheFile.save = _save
if not os.environ.get("NUMBA_CACHE_DIR"):
    config.CACHE_DIR = str(_cache_directory())
