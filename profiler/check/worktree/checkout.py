"""Checks out a revision in a temporary worktree and removes it at the end, with those that killed checks left.

The worktree lies on the file system of the user's checkout, so that both sides read equally fast. Of the following
folders, the first on that file system that can be written is used; if there is none, one on another file system:

- the folder for temporary files;
- the parent of the checkout, unless that belongs to another checkout, whose status would show it;
- git's own folder, into which neither git nor pytest nor packaging tools look.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from profiler.check.worktree.git import Repository
from profiler.core.errors import ProfilerError
from profiler.core.git import run_git
from profiler.core.procfs import is_alive

PREFIX: Final = "profiler-check-"
"""Start of the name of a worktree's folder; the host and the PID of its check follow."""
OWNER: Final = "owner"
"""Name of a file in that folder with the path of git's folder. The kernel releases its lock however the check ends."""
_FOLDER_NAME: Final = re.compile(re.escape(PREFIX) + r"(?P<host>.+)-(?P<pid>\d+)-[^-]+")
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_LOW_SPACE: Final = 1 << 28
"""Bytes: error messages mention free space below this."""


@contextmanager
def checked_out(repository: Repository, commit: str, announce: Callable[[str], None]) -> Iterator[Path]:
    """Check out `commit` as a detached worktree and remove it at the end of the block, whatever ended that.

    The worktree has the name of the repository's folder. The folder around it is private to this check.

    :param announce: is called with a message if something could not be removed.
    :raises ProfilerError: git cannot check it out, or there is no room for it.
    """
    prune(repository)
    folder = _make_folder(repository)
    tree = folder / (repository.root.name or "root")
    try:
        with owned(folder, repository.git_folder()):
            result = run_git(repository.root, ["worktree", "add", "--detach", "--quiet", str(tree), commit])
            if result.code:
                raise ProfilerError(f"git cannot check out {commit[:12]} in {tree}: {result.error}{low_space(folder)}")
            yield tree
    finally:
        # the owner file is closed by now: on NFS an open file cannot be removed
        _remove(repository, folder, [tree])
        if folder.exists():
            announce(f"{folder} could not be removed completely: delete it by hand")


def prune(repository: Repository) -> None:
    """Remove worktrees that killed checks on this host have left in this repository.

    `git worktree prune` would also forget worktrees of the user whose disk is not mounted now, and those of a check
    that runs on another host.
    """
    lines = run_git(repository.root, ["worktree", "list", "--porcelain"]).out.splitlines()
    trees = [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]
    vanished = [tree for tree in trees if not tree.parent.exists()]
    _forget(repository, [tree for tree in vanished if (pid := check_pid(tree.parent)) and not is_alive(pid)])
    # git may know of worktrees outside of today's locations, and forgotten ones may lie in those
    folders = {tree.parent for tree in trees if check_pid(tree.parent)}
    folders.update(folder for location in locations(repository) for folder in location.glob(f"{PREFIX}*"))
    git_folder = repository.git_folder()
    for folder in sorted(folders):
        if is_abandoned(folder, git_folder):
            _remove(repository, folder, [tree for tree in trees if tree.parent == folder])


def _remove(repository: Repository, folder: Path, trees: Sequence[Path]) -> None:
    _forget(repository, trees)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        # git keeps the entry of a worktree that it could not remove, until the folder is gone
        _forget(repository, trees)
    prefix = os.environ.get("PYTHONPYCACHEPREFIX", "")
    if Path(prefix).is_absolute():
        shutil.rmtree(Path(prefix) / folder.relative_to("/"), ignore_errors=True)


def _forget(repository: Repository, trees: Sequence[Path]) -> None:
    for tree in trees:
        run_git(repository.root, ["worktree", "remove", "--force", "--force", str(tree)])


def low_space(folder: Path) -> str:
    """How much space is free, if it is little: git and pip do not always report a full disk as such."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f" ({free / 2**20:.0f} MiB are free there)" if free < _LOW_SPACE else ""


# ---------------------------------------------------------------- where


def locations(repository: Repository) -> tuple[Path, ...]:
    """Folders in which a revision may be checked out, the best first."""
    candidates = []
    with suppress(FileNotFoundError):  # no folder for temporary files can be written
        temporary = Path(tempfile.gettempdir()).resolve()
        if not temporary.is_relative_to(repository.root):
            candidates.append(temporary)
    parent = repository.root.parent
    if parent != repository.root and run_git(parent, ["rev-parse", "--is-inside-work-tree"]).out.strip() != "true":
        candidates.append(parent)
    candidates.append(repository.git_folder())
    return tuple(sorted(dict.fromkeys(candidates), key=lambda folder: on_other_filesystem(folder, repository.root)))


def on_other_filesystem(folder: Path, reference: Path) -> bool:
    """Whether `folder` lies on another file system than `reference`; True if it does not exist."""
    try:
        return folder.stat().st_dev != reference.stat().st_dev
    except OSError:
        return True


def host_name() -> str:
    """This machine's name, reduced to characters for a file name."""
    return _NOT_IN_NAME.sub("_", socket.gethostname()) or "localhost"


def check_pid(folder: Path) -> int | None:
    """PID of the check on this host that `folder` is named for; None if it is named for anything else."""
    match = _FOLDER_NAME.fullmatch(folder.name)
    return int(match["pid"]) if match and match["host"] == host_name() else None


def _make_folder(repository: Repository) -> Path:
    errors = []
    for parent in locations(repository):
        try:
            return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{host_name()}-{os.getpid()}-", dir=parent))
        except OSError as error:
            errors.append(f"{parent}: {error.strerror}")
    raise ProfilerError(f"--against needs a folder for the revision, and none can be made ({'; '.join(errors)})")


# ---------------------------------------------------------------- whose


@contextmanager
def owned(folder: Path, repository: Path) -> Iterator[None]:
    """Mark `folder` as used by a check of `repository` within the block.

    :raises ProfilerError: it cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(folder / OWNER, "xb", buffering=0))
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            file.write(os.fsencode(repository))
        except OSError as error:
            raise ProfilerError(f"cannot write to {folder}: {error.strerror}") from error
        yield


def is_abandoned(folder: Path, repository: Path) -> bool:
    """Whether `folder` belongs to a check of this repository, user and host that ended without removing it."""
    pid = check_pid(folder)
    if pid is None:
        return False
    try:
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        if file.read() != os.fsencode(repository) or os.fstat(descriptor).st_uid != os.getuid():
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # the file system has no locks
            return not is_alive(pid)
    return True
