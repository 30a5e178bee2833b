"""Adds what `git worktree add` does not create: submodules, large files, links to data, and byte code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.check.worktree.git import short
from profiler.core.errors import ProfilerError
from profiler.core.git import run_git
from profiler.core.notice import Notice

_GITLINK: Final = "160000"
"""Mode of a submodule in a git tree."""
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""Start of a git-lfs pointer file (docs/spec.md of git-lfs)."""
_LFS_POINTER_BYTES: Final = 1024
"""A pointer is smaller than this, by the same specification."""


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
    objects = run_git(local, ["rev-parse", "--git-path", "objects"]) if (local / ".git").exists() else None
    if objects is None or objects.code or run_git(local, ["cat-file", "-e", f"{commit}^{{commit}}"]).code:
        yield Notice("submodule-missing", {"name": name, "commit": short(commit)})
        return
    target.mkdir(parents=True, exist_ok=True)
    run_git(target, ["init", "--quiet", "--template="])
    object_folder = (local / objects.out.removesuffix("\n")).resolve()
    (target / ".git" / "objects" / "info" / "alternates").write_bytes(os.fsencode(object_folder) + b"\n")
    shallow = object_folder.with_name("shallow")
    if shallow.exists():
        (target / ".git" / "shallow").write_bytes(shallow.read_bytes())
    result = run_git(target, ["checkout", "--quiet", "--detach", commit])
    if result.code:
        yield Notice("submodule-incomplete", {"name": name, "error": result.error})
        return
    yield from check_out_submodules(local, target, commit)


def check_out_large_files(tree: Path) -> Iterator[Notice]:
    """Put in place the git-lfs files that the local store has; yields a notice if others remain pointers."""
    names = run_git(tree, ["ls-files", "-z"]).out
    fields = run_git(tree, ["check-attr", "-z", "--stdin", "filter"], stdin=names).out.split("\0")
    large = [fields[at] for at in range(0, len(fields) - 2, 3) if fields[at + 2] == "lfs"]
    if any(is_lfs_pointer(tree / name) for name in large):
        run_git(tree, ["lfs", "checkout"])  # from the local store only; without git-lfs it does nothing
    if pointers := [name for name in large if is_lfs_pointer(tree / name)]:
        yield Notice("lfs-pointers", {"files": pointers})


def is_lfs_pointer(file: Path) -> bool:
    """Whether `file` stands for a large file that was not fetched."""
    try:
        if file.is_symlink() or file.stat().st_size >= _LFS_POINTER_BYTES:
            return False
        return file.read_bytes().startswith(_LFS_POINTER)
    except OSError:
        return False


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
    if is_lfs_pointer(target):
        target.unlink()
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    elif target.is_dir() and source.is_dir() and not target.is_symlink():
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                _link(entry, target / entry.name)


_COMPILE: Final = """
import importlib.util, os, py_compile, sys

def is_compiled(source):
    try:
        with open(importlib.util.cache_from_source(source), "rb") as file:
            header = file.read(16)
        stat = os.stat(source)
    except (OSError, NotImplementedError):
        return False
    if header[:4] != importlib.util.MAGIC_NUMBER:
        return False
    expected = [int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF]
    return bool(header[4] & 1) or [int.from_bytes(header[at:at + 4], "little") for at in (8, 12)] == expected

root, tree = sys.argv[1:]
for folder, folders, names in os.walk(tree):
    folders[:] = [name for name in folders if name != ".git"]
    for name in names:
        file = os.path.join(folder, name)
        if name.endswith(".py") and is_compiled(root + file[len(tree):]):
            py_compile.compile(file, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
"""
"""Runs in the Python of the sides, because each version has its own byte code. Bit 0 of the flags: the file has a hash
and no date (PEP 552)."""


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
