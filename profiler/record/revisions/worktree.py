"""A revision in a folder of its own outside the repository, gone at the end; what killed checks left goes next time."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from profiler.base.errors import ProfilerError
from profiler.record.revisions.git import Repository, ask

PREFIX: Final = "profiler-check-"
"""Of the folder that a worktree lies in."""
_OWNER: Final = "owner"
"""Names the repository, and is locked for as long as its check lives: the kernel lets go of it however that ends."""


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

    :raises ProfilerError: git cannot check it out.
    """
    prune(repository)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_outside(repository)))
    place = Place(folder, folder / (repository.root.name or "root"))
    with (folder / _OWNER).open("w", encoding="utf-8", errors="surrogateescape") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        owner.write(str(repository.root))
        owner.flush()
        try:
            said = ask(repository.root, ["worktree", "add", "--detach", "--quiet", str(place.tree), commit])
            if said.code:
                raise ProfilerError(f"git cannot check out {commit[:12]} in {place.tree}: {said.line}")
            yield place
        finally:
            left = _remove(repository, place)
            if left:
                say(left)


def _outside(repository: Repository) -> Path:
    """The system's temporary folder, or one beside the repository where that lies within it."""
    temporary = Path(tempfile.gettempdir()).resolve()
    if not temporary.is_relative_to(repository.root):
        return temporary
    if repository.root.parent == repository.root:
        raise ProfilerError(f"the repository is {repository.root}, and a worktree has to lie outside it")
    return repository.root.parent


def _remove(repository: Repository, place: Place) -> str:
    """Why something is left; empty where nothing is."""
    ask(repository.root, ["worktree", "remove", "--force", "--force", str(place.tree)])
    if place.folder.exists():
        shutil.rmtree(place.folder, ignore_errors=True)
        # what a program made unremovable to git keeps its entry until the folder is gone
        ask(repository.root, ["worktree", "remove", "--force", "--force", str(place.tree)])
    return f"{place.folder} could not be removed whole: delete it by hand" if place.folder.exists() else ""


def prune(repository: Repository) -> None:
    """Remove what checks that were killed left of this repository; never another's worktree."""
    listed = ask(repository.root, ["worktree", "list", "--porcelain"]).out
    trees = [Path(line.removeprefix("worktree ")) for line in listed.splitlines() if line.startswith("worktree ")]
    for tree in trees:
        folder = tree.parent
        if folder.name.startswith(PREFIX) and not folder.exists():
            ask(repository.root, ["worktree", "remove", "--force", "--force", str(tree)])
    for folder in sorted(_outside(repository).glob(f"{PREFIX}*")):
        if _abandoned(folder / _OWNER, repository):
            tree = folder / (repository.root.name or "root")
            _remove(repository, Place(folder, tree))


def _abandoned(owner: Path, repository: Repository) -> bool:
    """Whether it is of this repository, and nobody holds it any more."""
    try:
        descriptor = os.open(owner, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        return file.read() == str(repository.root) and _free(file)


def _free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(file.fileno()).st_uid == os.getuid()
