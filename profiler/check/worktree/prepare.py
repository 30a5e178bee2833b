"""Both sides of `check --against REV`: the revision in a worktree of its own, and the working tree as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from profiler.check.worktree import contents
from profiler.check.worktree.bytecode import lay_bytecode
from profiler.check.worktree.dependencies import differing
from profiler.check.worktree.environments import Environment
from profiler.check.worktree.git import Repository, short
from profiler.check.worktree.interpreter import Interpreter, asked, interpreter_of
from profiler.check.worktree.location import other_filesystem
from profiler.check.worktree.needs import Needs
from profiler.check.worktree.paths import Mapping as Places
from profiler.check.worktree.worktree import Place, checked_out, room
from profiler.core.errors import ProfilerError

ENVIRONMENTS = ("auto", "same")


@dataclass(frozen=True, slots=True)
class Side:
    """A program that is ready to start."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """What its environment has otherwise than ours."""
    what: str = ""
    """'HEAD~1 (3f2a9c1)' | 'working tree (3f2a9c1+changes)'"""
    commit: str = ""
    """In full; empty: it is in no repository."""
    notes: tuple[str, ...] = ()
    """What a reader of the result has to know of it, a sentence each."""
    repository: Path | None = None
    """Top folder of the user's checkout."""
    other_filesystem: bool = False
    """Whether its files lie on another file system than the working tree's: it reads them at another speed."""


def working(argv: Sequence[str], cwd: Path) -> Side:
    """The command as the user would start it, with the name of what is checked out at `cwd`."""
    try:
        repository = Repository.around(cwd)
    except ProfilerError:
        return Side(tuple(argv), cwd, _standing(cwd), what="working tree")
    head = repository.head()
    state = "no commit yet" if not head else short(head) + ("+changes" if repository.changed() else "")
    what = f"working tree ({state})"
    return Side(tuple(argv), cwd, _standing(cwd), what=what, commit=head, repository=repository.root)


@contextmanager
def prepared(
    rev: str,
    argv: tuple[str, ...],
    *,
    cwd: Path,
    links: Sequence[str],
    environment: str = "auto",
    say: Callable[[str], None],
) -> Iterator[Side]:
    """`argv` at revision `rev`, ready to start; everything that was laid down for it is gone afterwards.

    :param rev: what git takes for a commit; one that begins with '-' is refused.
    :param cwd: where the user would start `argv`; its counterpart in the revision is the side's folder.
    :param links: files and folders that git does not keep, to be seen there too.
    :param environment: auto: one of its own where what it requires differs; same: the user's in any case.
    :param say: told what takes long.
    :raises ProfilerError: no git, no repository, no such revision, folder or link, or pip failed.
    """
    if environment not in ENVIRONMENTS:
        raise ProfilerError(f"--environment {environment}: it is one of {', '.join(ENVIRONMENTS)}")
    if not argv:
        raise ProfilerError("no command to check: write it after --, as in: check --against main -- python train.py")
    repository = Repository.around(cwd)
    commit = repository.resolve(rev)
    with checked_out(repository, commit, say) as place:
        try:
            side = _laid_down(_Asked(rev, argv, cwd, links, environment), repository, commit, place, say)
        except OSError as error:
            said = f"{error.strerror or error}{room(place.folder)}"
            raise ProfilerError(f"cannot make {rev} ready in {place.folder}: {said}") from error
        yield side


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `prepared` is called with."""

    rev: str
    argv: tuple[str, ...]
    cwd: Path
    links: Sequence[str]
    environment: str


def _laid_down(
    asked_for: _Asked, repository: Repository, commit: str, place: Place, say: Callable[[str], None]
) -> Side:
    """All that git does not do."""
    rev, argv, cwd = asked_for.rev, asked_for.argv, asked_for.cwd
    notes = list(contents.submodules(repository.root, place.tree, commit))
    contents.link(asked_for.links, repository.root, cwd, place.tree)
    if left := contents.pointers(place.tree):
        notes.append(contents.pointer_note(left))
    places = Places.between(repository.root, place.tree, cwd)
    folder = places.folder(cwd, rev)
    python = asked(interpreter_of(argv, cwd), cwd)
    needs = Needs(rev, python, place, folder, argv[0], repository.root)
    own = None
    if different := _different(repository, place.tree, cwd):
        own, said = needs.met(different, asked_for.environment, say)
        notes += said
    notes += _copies(python, repository.root)
    lay_bytecode(python.executable, repository.root, place.tree)
    words = (places.program(argv[0], cwd, rev), *map(places.word, argv[1:]))
    return Side(
        argv=own.command(words, python) if own else words,
        cwd=folder,
        env=_standing(folder) | _variables(places, python, own),
        what=f"{rev} ({short(commit)})",
        commit=commit,
        notes=tuple(dict.fromkeys(notes)),
        repository=repository.root,
        other_filesystem=other_filesystem(folder, cwd),
    )


def _standing(cwd: Path) -> dict[str, str]:
    """What a shell says of where it stands, for a program that starts in `cwd`; its spelling is kept where it is right.

    OLDPWD may name the working tree: empty it is as good as absent.
    """
    said = os.environ.get("PWD", "")
    right = Path(said).is_absolute() and os.path.realpath(said) == os.path.realpath(cwd)
    before = {"OLDPWD": ""} if "OLDPWD" in os.environ else {}
    return {"PWD": said if right else str(cwd.absolute()), **before}


def _different(repository: Repository, tree: Path, cwd: Path) -> tuple[str, ...]:
    """Files of requirements that differ, without those that git is told to ignore."""
    names = differing(repository.root, tree, cwd)
    ignored = repository.ignored(names) if names else frozenset()
    return tuple(name for name in names if name not in ignored)


def _variables(places: Places, python: Interpreter, own: Environment | None) -> dict[str, str]:
    changes = own.variables() if own else {}
    path = places.search_path(os.environ.get("PYTHONPATH", ""), python.places)
    return changes | ({"PYTHONPATH": path} if path else {})


def _copies(python: Interpreter, root: Path) -> Iterator[str]:
    """What both sides would import from one copy of the repository, where neither has its own."""
    for name, (folder, editable) in sorted(python.local.items()):
        if not editable and Path(folder).resolve().is_relative_to(root):
            yield (
                f"{name} was installed as a copy of {folder}: what a side imports from the copy is the same code in "
                "both; pip install -e lets each import its own"
            )
