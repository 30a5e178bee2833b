"""`latest`: a link that always names the newest comparison."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def point_latest(link: Path, directory: Path) -> str:
    """Make `link` name `directory`; replaced in one move. What is not a link is somebody's and stays.

    :returns: why the link could not be made, in one line; empty when it was. A comparison is not worth less for it.
    """
    if link.exists() and not link.is_symlink():
        return f"{link} is not a link and stays as it is; the newest is {directory}"
    beside = link.parent.resolve() == directory.parent.resolve()
    target = directory.name if beside else str(directory.resolve())  # beside it the folder of runs can be moved
    temporary = link.parent / f".{link.name}-{os.getpid()}"
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target, target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        return f"{link} cannot be made: {error.strerror}; the newest is {directory}"
    return ""
