"""Whether a run may be made in a directory: existing files are never overwritten."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path


def refusal(path: Path, manifest: str) -> str:
    """Why no run can be made at `path`, with a free path, in one line; empty where one can be made.

    A directory that cannot be read gives an empty answer: making the run then fails with the system's reason.

    :param manifest: name of the file by which a run is recognised.
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
    """A free name like that of `path`, relative to the working directory if `path` is; empty for the root."""
    target = Path(os.path.normpath(path.absolute()))
    if not target.name:
        return ""
    free = next(free for n in count(2) if not (free := target.with_name(f"{target.name}-{n}")).exists())
    return str(free) if path.is_absolute() else os.path.relpath(free)
