"""Lists the packages that the profiler itself needs: which are missing, and how to install them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Final

REQUIRED: Final = ("numpy", "rich", "psutil", "pydantic", "jinja2", "scipy")
"""Names to import, which are also those to install. The recorded program needs none of them."""


def missing_packages(find: Callable[[str], object] = importlib.util.find_spec) -> tuple[str, ...]:
    """The packages of REQUIRED that this Python cannot import; nothing is imported."""
    return tuple(name for name in REQUIRED if not find(name))


def install_hint(names: tuple[str, ...]) -> str:
    """A line that says what is missing and how to install it.

    `numpy and rich are missing in /usr/bin/python3: /usr/bin/python3 -m pip install numpy rich`
    """
    import shlex

    *first, last = names
    listed = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    python = shlex.quote(sys.executable)
    return f"{listed} missing in {sys.executable}: {python} -m pip install {' '.join(names)}"
