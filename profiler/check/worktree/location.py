"""Where a revision is laid down: on the file system of the working tree, so that both sides read equally fast.

Three folders are tried, and of those on the same file system the first:

- The temporary one: nobody looks there.
- The one beside the repository, unless it belongs to another checkout, whose status would show it.
- Git's own. Neither git nor pytest nor packaging looks into it, but a program that walks through its whole checkout,
  hidden folders included, would.

Where none of them is, or none can be written, one on another file system has to do.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Final

from profiler.check.worktree.git import Repository, ask
from profiler.core.errors import ProfilerError

PREFIX: Final = "profiler-check-"
"""Of the folder that a worktree lies in; behind it are the host and the process that it belongs to."""
_NAMED: Final = re.compile(re.escape(PREFIX) + r"(?P<host>.+)-(?P<pid>\d+)-[^-]+")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")


def host() -> str:
    """This machine's name, as far as a file can have it."""
    return _ODD.sub("_", socket.gethostname()) or "localhost"


def locations(repository: Repository) -> tuple[Path, ...]:
    """Folders in which a revision may be laid down, the best first; those of another file system come last."""
    found = [*_temporary(repository), *_beside(repository), repository.git_folder()]
    return tuple(sorted(dict.fromkeys(found), key=lambda folder: other_filesystem(folder, repository.root)))


def other_filesystem(one: Path, other: Path) -> bool:
    """Whether two folders lie on different file systems; one that is not there does."""
    try:
        return one.stat().st_dev != other.stat().st_dev
    except OSError:
        return True


def make_folder(repository: Repository) -> Path:
    """An empty folder for a revision, ours alone.

    :raises ProfilerError: none can be made.
    """
    refused = []
    for parent in locations(repository):
        try:
            return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{host()}-{os.getpid()}-", dir=parent))
        except OSError as error:
            refused.append(f"{parent}: {error.strerror}")
    raise ProfilerError(f"--against needs a folder for the revision, and none can be made ({'; '.join(refused)})")


def maker(folder: Path) -> int | None:
    """The process for which `folder` was made on this host; None: on another one, or it is none of ours."""
    named = _NAMED.fullmatch(folder.name)
    return int(named["pid"]) if named and named["host"] == host() else None


def _temporary(repository: Repository) -> list[Path]:
    try:
        folder = Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:  # none of the usual ones can be written
        return []
    return [] if folder.is_relative_to(repository.root) else [folder]


def _beside(repository: Repository) -> list[Path]:
    folder = repository.root.parent
    if folder == repository.root:
        return []
    of_another = ask(folder, ["rev-parse", "--is-inside-work-tree"]).out.strip() == "true"
    return [] if of_another else [folder]
