"""What git does not check out itself: submodules from the local ones (no network), large files, links to data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from profiler.check.worktree.git import ask, short
from profiler.core.errors import ProfilerError

_GITLINK: Final = "160000"
"""Mode of a submodule in a tree of git."""
_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""How a large file begins that was not fetched (the specification of git-lfs, docs/spec.md)."""
_POINTER_BYTES: Final = 1024
"""A pointer is smaller than this, by that specification."""
_NAMED: Final = 3
"""So many files are named; of the others there is a count."""


def submodules(source: Path, tree: Path, commit: str) -> Iterator[str]:
    """Check out the submodules of `commit` below `tree` from those below `source`; a line for each that is not there.

    Each gets a repository of its own that borrows the objects of the local one: `git submodule update` would write
    into the user's configuration and might ask a server.
    """
    listed = ask(source, ["ls-tree", "-r", "-z", commit]).out.split("\0")
    for entry in listed:
        mode, _, rest = entry.partition(" ")
        if mode == _GITLINK:
            about, _, name = rest.partition("\t")
            yield from _submodule(source, tree, name, about.split()[1])


def _submodule(source: Path, tree: Path, name: str, commit: str) -> Iterator[str]:
    local, target = source / name, tree / name
    objects = ask(local, ["rev-parse", "--git-path", "objects"]) if (local / ".git").exists() else None
    if objects is None or objects.code or ask(local, ["cat-file", "-e", f"{commit}^{{commit}}"]).code:
        yield f"submodule {name} is empty there: {short(commit)} is not here (git submodule update --init {name})"
        return
    target.mkdir(parents=True, exist_ok=True)
    ask(target, ["init", "--quiet", "--template="])
    lent = (local / objects.out.removesuffix("\n")).resolve()
    (target / ".git" / "objects" / "info" / "alternates").write_bytes(os.fsencode(lent) + b"\n")
    shallow = lent.with_name("shallow")
    if shallow.exists():
        (target / ".git" / "shallow").write_bytes(shallow.read_bytes())
    said = ask(target, ["checkout", "--quiet", "--detach", commit])
    if said.code:
        yield f"submodule {name} is incomplete there: {said.line}"
        return
    yield from submodules(local, target, commit)


def pointers(tree: Path) -> tuple[str, ...]:
    """Files of git-lfs of which only the pointer is there, after what this machine has of them was put in."""
    names = ask(tree, ["ls-files", "-z"]).out
    said = ask(tree, ["check-attr", "-z", "--stdin", "filter"], stdin=names).out.split("\0")
    large = [said[at] for at in range(0, len(said) - 2, 3) if said[at + 2] == "lfs"]
    if any(is_pointer(tree / name) for name in large):
        ask(tree, ["lfs", "checkout"])  # from the local store alone; without git-lfs it does nothing
    return tuple(name for name in large if is_pointer(tree / name))


def is_pointer(file: Path) -> bool:
    """Whether `file` stands for a large one that was not fetched."""
    try:
        if file.is_symlink() or file.stat().st_size >= _POINTER_BYTES:
            return False
        return file.read_bytes().startswith(_POINTER)
    except OSError:
        return False


def pointer_note(names: Sequence[str]) -> str:
    """In one line which large files are pointers."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"{', '.join(names[:_NAMED])}{more}: large files of git-lfs, of which only pointers are there: "
        "git lfs fetch, or --link them from the working tree"
    )


def link(links: Sequence[str], root: Path, cwd: Path, tree: Path) -> None:
    """Symbolic links in `tree` to files and folders of the working tree that git does not keep.

    :param links: as written at `cwd`, or absolute.
    :raises ProfilerError: there is nothing of that name, or it lies outside the repository.
    """
    for name in links:
        source = Path(os.path.normpath(cwd / name))
        if not source.exists():
            raise ProfilerError(f"--link {name}: there is no such file or folder in {cwd}")
        # the folder may be reached through a link, the name itself may be one: data -> /mnt/data
        source = source.parent.resolve() / source.name
        if not source.is_relative_to(root) or source == root:
            raise ProfilerError(f"--link {name}: it is not within {root}; outside it needs no link")
        if ".git" in source.relative_to(root).parts:
            raise ProfilerError(f"--link {name}: git's own folder is not to be shared")
        _link_one(source, tree / source.relative_to(root))


def _link_one(source: Path, target: Path) -> None:
    """What the revision has of it stays its own: a folder is then linked entry by entry.

    Byte code is never shared: each side would overwrite the other's.
    """
    if is_pointer(target):
        target.unlink()
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    elif target.is_dir() and source.is_dir() and not target.is_symlink():
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                _link_one(entry, target / entry.name)
