"""Numba's decorators with a cache that notices every change of our compiled sources.

Numba keys its disk cache by the file of the decorated function alone, so a change in a kernel that the
worker calls would go unseen. Here the cache folder's name holds a hash of all sources that are compiled.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import numba
from numba import cfunc, config, njit

__all__ = ["cfunc", "njit"]

_COMPILED = ("devices", "kernels")


def _cache_directory() -> Path:
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()}".encode())
    here = Path(__file__).parent
    for source in sorted(path for folder in _COMPILED for path in (here / folder).glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "training-profiler" / "numba" / digest.hexdigest()[:16]


if not os.environ.get("NUMBA_CACHE_DIR"):
    config.CACHE_DIR = str(_cache_directory())
