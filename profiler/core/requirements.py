"""Which of the packages that the profiler itself needs are missing, and the line that says so."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Final

NEEDED: Final = ("numpy", "rich", "psutil", "jinja2", "scipy", "pandas", "matplotlib")
"""Names to import, which are those to install too. The program that is recorded needs none of them."""


def missing(found: Callable[[str], object] = importlib.util.find_spec) -> tuple[str, ...]:
    """Of NEEDED those that this Python cannot import; nothing is imported."""
    return tuple(name for name in NEEDED if not found(name))


def explained(names: tuple[str, ...]) -> str:
    """`numpy and rich are missing in /usr/bin/python3: /usr/bin/python3 -m pip install numpy rich`"""
    import shlex

    *others, last = names
    listed = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    python = shlex.quote(sys.executable)
    return f"{listed} missing in {sys.executable}: {python} -m pip install {' '.join(names)}"
