"""Sides of a check as programs to start: what is in the working tree, and whether hooks go into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from profiler.check.model import BASE, CANDIDATE
from profiler.check.speed.controlled_process import Program
from profiler.record.trainers import trainers

if TYPE_CHECKING:
    from profiler.check.worktree.prepare import Side

_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python whose value may be the next word."""
CHANGED: Final = "+changes"
"""Behind the commit of a working tree that differs from it, as in every run's manifest."""


def as_is(command: tuple[str, ...]) -> Side:
    """The command in the working tree; its commit says where files differ from it."""
    from profiler.check.worktree.git import Repository
    from profiler.check.worktree.prepare import working_tree_side

    side = working_tree_side(command, Path.cwd())
    if side.commit and side.repository is not None and Repository(side.repository).is_dirty():
        return replace(side, commit=side.commit + CHANGED)
    return side


def program_of(side: str, of: Side) -> Program:
    """One that nothing else is held against."""
    return _program(side, of, inside=not marks_itself(of.argv), hint="")


def programs_of(base: Side, candidate: Side, *, hint: str = "") -> Mapping[str, Program]:
    """Both sides of a comparison. Hooks go into both or into neither, since they cost time and count.

    :param hint: what may be the matter where the base fails.
    """
    inside = not (marks_itself(base.argv) and marks_itself(candidate.argv))
    return {
        BASE: _program(BASE, base, inside=inside, hint=hint),
        CANDIDATE: _program(CANDIDATE, candidate, inside=inside, hint=""),
    }


def _program(side: str, of: Side, *, inside: bool, hint: str) -> Program:
    from profiler.record.collectors.environment import EnvironmentCollector

    described = {**EnvironmentCollector().describe(), "git_commit": of.commit or None}
    program = Program(side, of.argv, of.cwd, dict(of.env), inside, described, hint)
    program.executable()  # before anything takes time
    return program


def marks_itself(argv: Sequence[str]) -> bool:
    """Whether it is `python -m` of a trainer that marks all it does; a folder or an argument is none."""
    module = _module(argv) or ""
    complete = (trainer.module for trainer in trainers().values() if trainer.marks_everything)
    return any(module == one or module.startswith(f"{one}.") for one in complete)


def _module(argv: Sequence[str]) -> str | None:
    """The module that Python is told to run; None: it is told something else."""
    python = next((at for at, word in enumerate(argv) if PurePath(word).name.startswith(("python", "pypy"))), len(argv))
    words = iter(argv[python + 1 :])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return None
        elif not word.startswith("--"):
            # single letters may stand together, and what follows c, m, W and X is theirs
            letter = next((one for one in word[1:] if one in "cmWX"), "")
            if letter == "m":
                return word.partition("m")[2] or next(words, None)
            if letter == "c":
                return None
    return None


@contextmanager
def gpus() -> Iterator[Any]:
    """What holds the clocks of this machine's GPUs down, where there are any."""
    from profiler.record.collectors.gpu import GpuReader

    with ExitStack() as stack:
        found = GpuReader()
        if found.error:
            yield None
            return
        stack.callback(found.close)

        def held() -> tuple[str, ...]:
            return tuple(f"GPU {gpu.index}: {reason}" for gpu in found.all() for reason in gpu.throttle or ())

        yield held
