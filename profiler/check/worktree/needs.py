"""Which environment a revision gets, where it requires something else than the working tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.worktree.environments import Environment, environment_for
from profiler.check.worktree.interpreter import Interpreter
from profiler.check.worktree.plan import conda_files, plan
from profiler.check.worktree.worktree import Place
from profiler.core.errors import ProfilerError

_OWN_ENVIRONMENTS: Final = ("uv", "poetry", "pdm", "pipenv", "hatch", "pixi", "conda", "mamba", "micromamba")
"""Programs that choose the environment of what they start themselves."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Needs:
    """What is known when an environment is chosen."""

    rev: str
    python: Interpreter
    place: Place
    cwd: Path
    """Where the program starts."""
    program: str
    """First word of its command."""
    root: Path
    """Of the user's checkout."""

    def met(
        self, different: Sequence[str], choice: str, say: Callable[[str], None]
    ) -> tuple[Environment | None, tuple[str, ...]]:
        """An environment of its own, or None for the user's, with what is to be said of it.

        :param different: the files that require something else, named from the root on.
        :param choice: auto | same
        :raises ProfilerError: it cannot be made.
        """
        files = ", ".join(different[:_SHOWN]) + (
            f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        )
        said = f"{self.rev} requires something else ({files})"
        if choice == "same":
            return None, (f"{said}, and both sides ran in your environment, as asked",)
        if Path(self.program).name in _OWN_ENVIRONMENTS:
            return None, (f"{said}: which environment that is, is left to {self.program}",)
        wanted = plan(self.place.tree, self.cwd, installed=self._installed())
        conda = conda_files(self.place.tree, self.cwd)
        if wanted is None and conda:
            raise ProfilerError(
                f"{said}, and only pip's requirements can be installed, not {conda[0]}: make that environment "
                "yourself and give --before and --after, or --environment same"
            )
        if wanted is None:
            return None, (f"{said}, but names nothing that pip could install: both sides ran in your environment",)
        own = environment_for(wanted, self.python, self.place, say)
        unread = tuple(f"{name} of conda is not heeded" for name in conda)
        return own, (f"{said}: {own.notes[0]}", *own.notes[1:], *unread)

    def _installed(self) -> bool:
        """Whether the user's environment has a project of this checkout."""
        return any(Path(folder).resolve().is_relative_to(self.root) for folder, _ in self.python.local.values())
