"""Whether a side imports the other side's code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from profiler.check.worktree.location import PREFIX
from profiler.check.worktree.paths import in_environment


def strayed(files: Iterable[str], repository: Path) -> tuple[str, ...]:
    """Of the module files that the revision's side loaded, those that lie in the working tree; sorted.

    An environment's own files (a .venv within the repository) are nobody's code, and what the worktree reaches by a
    link was asked for.
    """
    root = repository.resolve()
    found = set()
    for file in files:
        real = Path(os.path.realpath(file))
        linked = any(part.startswith(PREFIX) for part in Path(file).parts)
        if real.is_relative_to(root) and not linked and not in_environment(real):
            found.add(str(real))
    return tuple(sorted(found))
