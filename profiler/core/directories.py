"""Whether a run may be made in a directory: what is there already is never overwritten."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path


def refusal(path: Path, manifest: str) -> str:
    """Why no run can be made at `path`, and where one can, in one line; empty where nothing is in the way.

    What cannot be looked at is left to who makes the directory: the system then says why.

    :param manifest: name of the file that a run has.
    """
    try:
        names = [entry.name for entry in path.iterdir()]
    except NotADirectoryError:
        if not path.exists():  # it is the one above it
            return ""
        why = "it is a file"
    except OSError:
        return ""
    else:
        if not names:
            return ""
        why = "there is a run in it" if manifest in names else f"it is not empty ({_shown(min(names))} is in it)"
    free = _free_beside(path)
    return (
        f"cannot use {_shown(str(path))}: {why}, and a run is never overwritten. Nothing was recorded or changed"
        f"{f'; {_shown(free)} is free' if free else ''}"
    )


def _shown(name: str) -> str:
    """Escaped where it would break the line or command the terminal."""
    return name if name.isprintable() else repr(name)


def _free_beside(path: Path) -> str:
    """A free name like that of `path`, told from where the program is as `path` is; empty beside the root."""
    whole = Path(os.path.normpath(path.absolute()))
    if not whole.name:
        return ""
    free = next(free for n in count(2) if not (free := whole.with_name(f"{whole.name}-{n}")).exists())
    return str(free) if path.is_absolute() else os.path.relpath(free)
