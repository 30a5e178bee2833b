"""Files as a repository names them: what annotations and alerts of continuous integration are shown at."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath


@dataclass(frozen=True, slots=True)
class Places:
    """Where files lie."""

    root: str
    """The repository's root, absolute; empty: there is none."""
    here: str
    """What a file that is not absolute is relative to."""

    def inside(self, file: str) -> str | None:
        """`file` from the root on, with forward strokes; None where it lies elsewhere."""
        if not file or not self.root:
            return None
        # by its text alone: the file may be gone, or a revision's
        whole = PurePath(os.path.normpath(PurePath(self.here) / file))
        return whole.relative_to(self.root).as_posix() if whole.is_relative_to(self.root) else None

    def shown(self, file: str) -> str:
        """The same; a file that lies elsewhere as it was given."""
        return self.inside(file) or file


def places(directory: Path) -> Places:
    """The repository that `directory` is part of: the nearest folder upward that has a .git."""
    here = directory.absolute()
    root = next((one for one in (here, *here.parents) if (one / ".git").exists()), None)
    return Places(str(root) if root else "", str(here))
