"""A revision in a folder of its own, gone at the end; what killed checks left goes next time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.worktree.git import Repository, ask
from profiler.check.worktree.location import PREFIX, locations, make_folder, maker
from profiler.check.worktree.owner import abandoned, owned
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive

_LITTLE: Final = 1 << 28
"""Bytes: a disk with less room than this is named where something fails on it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a revision is checked out."""

    folder: Path
    """Ours alone, for what else the check needs to lay down."""
    tree: Path
    """The files; named as the repository's folder is."""


@contextmanager
def checked_out(repository: Repository, commit: str, say: Callable[[str], None]) -> Iterator[Place]:
    """`commit` as a detached worktree of `repository`; removed at the end, whatever ended it.

    :raises ProfilerError: git cannot check it out, or there is no room for it.
    """
    prune(repository)
    folder = make_folder(repository)
    place = Place(folder, folder / (repository.root.name or "root"))
    try:
        with owned(folder, repository.git_folder()):
            said = ask(repository.root, ["worktree", "add", "--detach", "--quiet", str(place.tree), commit])
            if said.code:
                raise ProfilerError(f"git cannot check out {commit[:12]} in {place.tree}: {said.line}{room(folder)}")
            yield place
    finally:
        # the owner's file is closed by now: on NFS an open one cannot be removed
        if left := _remove(repository, folder, [place.tree]):
            say(left)


def room(folder: Path) -> str:
    """How much there is where it is little: git and pip do not always say that a disk is full."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f" ({free / 2**20:.0f} MiB are free there)" if free < _LITTLE else ""


def _remove(repository: Repository, folder: Path, trees: Sequence[Path]) -> str:
    """Why something is left; empty where nothing is."""
    _forget(repository, trees)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        # what a program made unremovable to git keeps its entry until the folder is gone
        _forget(repository, trees)
    prefix = os.environ.get("PYTHONPYCACHEPREFIX", "")
    if Path(prefix).is_absolute():
        shutil.rmtree(Path(prefix) / folder.relative_to("/"), ignore_errors=True)
    return f"{folder} could not be removed whole: delete it by hand" if folder.exists() else ""


def _forget(repository: Repository, trees: Sequence[Path]) -> None:
    for tree in trees:
        ask(repository.root, ["worktree", "remove", "--force", "--force", str(tree)])


def prune(repository: Repository) -> None:
    """Remove what checks that were killed on this host left of this repository; never another's worktree.

    `git worktree prune` would forget those of the user too whose disk is not there just now, and those of a check that
    runs on another host in a folder of that one.
    """
    listed = ask(repository.root, ["worktree", "list", "--porcelain"]).out.splitlines()
    trees = [Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")]
    _forget(repository, [tree for tree in trees if not tree.parent.exists() and _ended(tree.parent)])
    # those that git knows of may lie where nothing would be made now, others only where something would
    folders = {tree.parent for tree in trees if maker(tree.parent)}
    folders.update(found for where in locations(repository) for found in where.glob(f"{PREFIX}*"))
    common = repository.git_folder()
    for folder in sorted(folders):
        if abandoned(folder, common):
            _remove(repository, folder, [tree for tree in trees if tree.parent == folder])


def _ended(folder: Path) -> bool:
    made_by = maker(folder)
    return made_by is not None and not is_alive(made_by)
