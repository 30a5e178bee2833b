"""Finds the commit of a revision, checks it out in a temporary worktree, and removes that at the end.

Worktrees that killed checks left are removed too.

It also has what `git worktree add` does not create: submodules, links to data, and byte code.

The worktree lies on the file system of the user's checkout, so that both sides read equally fast. Of the following
folders, the first on that file system that can be written is used; if there is none, one on another file system:

- the folder for temporary files;
- the parent of the checkout, unless that belongs to another checkout, whose status would show it;
- git's own folder, into which neither git nor pytest nor packaging tools look.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import Notice, ProfilerError
from profiler.core.git import run_git
from profiler.core.procfs import is_alive

PREFIX: Final = "profiler-check-"
"""Start of the name of a worktree's folder; the host and the PID of its check follow."""
_FOLDER_NAME: Final = re.compile(re.escape(PREFIX) + r"(?P<host>.+)-(?P<pid>\d+)-[^-]+")
_GITLINK: Final = "160000"
"""Mode of a submodule in a git tree."""
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_LOW_SPACE: Final = 1 << 28
"""Bytes: error messages mention free space below this."""


_SHORT: Final = 7
_BRANCH: Final = re.compile(r"\w[\w./-]*")
"""A name that can be fetched from a remote, unlike HEAD^, main~2 or v1@{u}."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The user's checkout."""

    root: Path
    """Its top folder, symbolic links resolved."""

    @classmethod
    def find(cls, folder: Path) -> Repository:
        """Return the checkout that contains `folder`.

        :raises ProfilerError: there is none, it is bare, or git may not read it.
        """
        result = run_git(folder, ["rev-parse", "--show-toplevel"])
        if result.code == 0:
            return cls(Path(result.out.removesuffix("\n")).resolve())
        why = result.error
        if "not a git repository" in why:
            why = "it lies in no git repository; run it in your checkout, or compare two commands"
        elif "must be run in a work tree" in why:
            why = "this repository is bare, or you are inside .git; run it in a checkout"
        elif "dubious ownership" in why:
            why = "git refuses another user's files: git config --global --add safe.directory "
            why += shlex.quote(str(folder))
        raise ProfilerError(f"no revision can be compared to in {folder}: {why}")

    def git_folder(self) -> Path:
        """Return the folder of its objects and branches, which all worktrees of the repository share."""
        return (self.root / run_git(self.root, ["rev-parse", "--git-common-dir"]).out.removesuffix("\n")).resolve()

    def resolve(self, rev: str, option: str = "--against") -> str:
        """Return the commit that `rev` names.

        :param option: that has named it.
        :raises ProfilerError: it names none here; the message tells how to fetch it.
        """
        if not rev or rev.startswith("-") or not rev.isprintable():
            raise ProfilerError(f"{option} {rev!r} is not a revision: give a branch, a tag, a commit or HEAD~1")
        # in two steps: in :/text^{commit} the suffix would be part of the text to search for
        object_name = self._verify(rev)
        commit = self._verify(f"{object_name}^{{commit}}") if object_name.isalnum() else ""
        if not commit:
            raise ProfilerError(f"{option} {rev}: {self._why_unknown(rev)}")
        return commit

    def _verify(self, name: str) -> str:
        result = run_git(self.root, ["rev-parse", "--verify", "--quiet", name])
        return result.out.strip() if result.code == 0 else ""

    def _why_unknown(self, rev: str) -> str:
        if not self._verify("HEAD^{commit}"):
            return "this repository has no commit yet"
        remotes = run_git(self.root, ["remote"]).out.split()
        branch = rev.removeprefix(f"{remotes[0]}/") if remotes else ""
        fetch = f"git fetch {remotes[0]} {branch}" if _BRANCH.fullmatch(branch) and branch != "HEAD" else ""
        if run_git(self.root, ["rev-parse", "--is-shallow-repository"]).out.strip() == "true":
            return (
                "there is no such commit in this shallow clone: set fetch-depth: 0 for actions/checkout or "
                f"GIT_DEPTH: 0 in GitLab, or run git fetch --unshallow{fetch and f'; for a branch: {fetch}'}"
            )
        hint = f"; if it is a branch of {remotes[0]}: {fetch}" if fetch else ""
        return f"there is no such revision in {self.root}{hint}"

    def head(self) -> str:
        """Return the commit that is checked out; empty if there is none."""
        return self._verify("HEAD")

    def is_dirty(self) -> bool:
        """Return whether the working tree differs from its commit; new files count, ignored ones do not."""
        return bool(run_git(self.root, ["status", "--porcelain", "--ignore-submodules=none"]).out)

    def ignored(self, names: Sequence[str]) -> frozenset[str]:
        """Return the files among `names`, relative to the root, that git ignores."""
        stdin = "".join(f"{name}\0" for name in names)
        return frozenset(run_git(self.root, ["check-ignore", "-z", "--stdin"], stdin=stdin).out.split("\0"))


def short(commit: str) -> str:
    """Return an abbreviated commit."""
    return commit[:_SHORT]


# ---------------------------------------------------------------- a worktree


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
        result = run_git(repository.root, ["worktree", "add", "--detach", "--quiet", str(tree), commit])
        if result.code:
            raise ProfilerError(f"git cannot check out {commit[:12]} in {tree}: {result.error}{low_space(folder)}")
        yield tree
    finally:
        _remove(repository, folder, [tree])
        if folder.exists():
            announce(f"{folder} could not be removed completely: delete it by hand")


def prune(repository: Repository) -> None:
    """Remove worktrees that killed checks on this host have left in this repository.

    `git worktree prune` would also forget worktrees on an unmounted disk, and worktrees of a check on another host.
    """
    lines = run_git(repository.root, ["worktree", "list", "--porcelain"]).out.splitlines()
    trees = [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]
    # git may know of worktrees outside of today's locations, and forgotten ones may lie in those
    folders = {tree.parent for tree in trees}
    folders.update(folder for location in locations(repository) for folder in location.glob(f"{PREFIX}*"))
    for folder in sorted(folders):
        if (pid := check_pid(folder)) is not None and not is_alive(pid):
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
    """Return how much space is free, if it is little: git and pip do not always report a full disk as such."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f" ({free / 2**20:.0f} MiB are free there)" if free < _LOW_SPACE else ""


# ---------------------------------------------------------------- where


def locations(repository: Repository) -> tuple[Path, ...]:
    """Return folders in which a revision may be checked out, the best first."""
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
    """Return whether `folder` lies on another file system than `reference`; True if it does not exist."""
    try:
        return folder.stat().st_dev != reference.stat().st_dev
    except OSError:
        return True


def host_name() -> str:
    """Name this machine, in characters for a file name, with the namespace that gives a PID its meaning."""
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"{_NOT_IN_NAME.sub('_', socket.gethostname()) or 'localhost'}.{namespace}"


def check_pid(folder: Path) -> int | None:
    """Return the PID of the check on this host that `folder` is named for; None if it is named for anything else."""
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


# ---------------------------------------------------------------- what git does not create


def check_out_submodules(source: Path, tree: Path, commit: str) -> Iterator[Notice]:
    """Check out the submodules of `commit` below `tree` from the user's checkout `source`, without network.

    Each gets its own repository, which borrows the objects of the user's: `git submodule update` would write to the
    user's configuration and might contact a server. Yields a notice for each that is missing or incomplete.
    """
    for entry in run_git(source, ["ls-tree", "-r", "-z", commit]).out.split("\0"):
        mode, _, tail = entry.partition(" ")
        if mode == _GITLINK:
            object_info, _, name = tail.partition("\t")
            yield from _check_out_submodule(source / name, tree / name, name, object_info.split()[1])


def _check_out_submodule(local: Path, target: Path, name: str, commit: str) -> Iterator[Notice]:
    if not (local / ".git").exists() or run_git(local, ["cat-file", "-e", f"{commit}^{{commit}}"]).code:
        yield Notice("submodule-missing", {"name": name, "commit": short(commit)})
        return
    for words in (
        ["clone", "--quiet", "--shared", "--no-checkout", "--template=", ".", str(target)],
        ["-C", str(target), "checkout", "--quiet", "--detach", commit],
    ):
        result = run_git(local, words)
        if result.code:
            yield Notice("submodule-incomplete", {"name": name, "error": result.error})
            return
    yield from check_out_submodules(local, target, commit)


def link_files(links: Sequence[str], root: Path, cwd: Path, tree: Path) -> None:
    """Create symbolic links in `tree` to files and folders of the working tree that git does not keep.

    :param links: paths relative to `cwd`, or absolute.
    :raises ProfilerError: one does not exist, or lies outside of the repository.
    """
    for name in links:
        source = Path(os.path.normpath(cwd / name))
        if not source.exists():
            raise ProfilerError(f"--link {name}: there is no such file or folder in {cwd}")
        # only the parent is resolved: the name itself may be a link, such as data -> /mnt/data
        source = source.parent.resolve() / source.name
        if not source.is_relative_to(root) or source == root:
            raise ProfilerError(f"--link {name}: it is not within {root}; files outside of it need no link")
        if ".git" in source.relative_to(root).parts:
            raise ProfilerError(f"--link {name}: git's own folder cannot be shared")
        _link(source, tree / source.relative_to(root))


def _link(source: Path, target: Path) -> None:
    """Link `target` to `source`; a folder that the revision has is linked entry by entry, so its own files stay.

    Byte code is not linked: each side would overwrite the other's.
    """
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    elif target.is_dir() and source.is_dir() and not target.is_symlink():
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                _link(entry, target / entry.name)


_COMPILE: Final = """
import os, py_compile, sys
from importlib.util import cache_from_source

root, tree = sys.argv[1:]
for folder, folders, names in os.walk(tree):
    folders[:] = [name for name in folders if name != ".git"]
    for file in (os.path.join(folder, name) for name in names if name.endswith(".py")):
        source = root + file[len(tree):]
        try:
            is_compiled = os.path.getmtime(cache_from_source(source)) >= os.path.getmtime(source)
        except (OSError, NotImplementedError):
            continue
        if is_compiled:
            py_compile.compile(file, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
"""
"""Runs in the Python of the sides, because each version has its own byte code."""


def compile_modules(python: str, root: Path, tree: Path) -> None:
    """Compile the modules below `tree` whose counterparts below `root` have current byte code.

    A working tree that has run before has byte code and a new worktree has none: in the first round that side would
    start later, with a heap in which modules have been compiled. Takes about 1 ms for 100 lines of source. A module
    that does not compile is left to the program.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with suppress(OSError):
        subprocess.run(
            [python, "-S", "-c", _COMPILE, str(root), str(tree)],
            cwd=tree.parent,  # in the tree, a module of the program would be imported in place of Python's
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
