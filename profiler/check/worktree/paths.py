"""The same command in another folder: which words and variables name the repository, and what they name there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.core.errors import ProfilerError


@dataclass(frozen=True, slots=True)
class Mapping:
    """From the working tree to a revision's tree."""

    root: Path
    tree: Path
    spelled: tuple[Path, ...] = ()
    """Other spellings of `root`, through symbolic links."""

    @classmethod
    def between(cls, root: Path, tree: Path, cwd: Path) -> Mapping:
        """With the spelling of `root` that the shell has in $PWD, and the one of `cwd`."""
        spelled = []
        for folder in (cwd.absolute(), Path(os.environ.get("PWD", "") or cwd)):
            resolved = folder.resolve()
            if resolved.is_relative_to(root) and resolved == cwd.resolve():
                depth = len(resolved.relative_to(root).parts)
                spelled.append(([folder, *folder.parents])[depth] if depth < len(folder.parts) else root)
        return cls(root, tree, tuple(dict.fromkeys((root, *spelled))))

    def of(self, path: str) -> str | None:
        """Where an absolute path of the repository is in the tree; None: it is not one of the repository."""
        if not path.startswith("/"):
            return None
        plain = Path(os.path.normpath(path))
        for root in self.spelled or (self.root,):
            if plain.is_relative_to(root):
                return str(self.tree / plain.relative_to(root))
        real = plain.parent.resolve() / plain.name
        return str(self.tree / real.relative_to(self.root)) if real.is_relative_to(self.root) else None

    def word(self, word: str) -> str:
        """A word of a command line: /repo/a.py and --config=/repo/a.yaml are mapped, an environment's files are not."""
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        mapped = self.of(value)
        return word if mapped is None or in_environment(Path(value)) else option + equals + mapped

    def folder(self, cwd: Path, rev: str) -> Path:
        """Where the program starts.

        :raises ProfilerError: the revision has no such folder.
        """
        within = cwd.resolve().relative_to(self.root)
        folder = self.tree / within
        if not folder.is_dir():
            raise ProfilerError(f"{rev} has no folder {within}, in which the command is to start: run it from another")
        return folder

    def program(self, word: str, cwd: Path, rev: str) -> str:
        """The first word: a relative one of an environment stays the user's own.

        :raises ProfilerError: it is a file of the repository that the revision has not.
        """
        if "/" not in word:
            return word
        here = cwd / word
        if in_environment(here):
            return os.path.normpath(here.absolute())
        mapped = self.of(os.path.normpath(here.absolute()))
        if mapped is not None and here.exists() and not os.path.lexists(mapped):
            raise ProfilerError(f"{rev} has no {word}: give --link {word} if it is a file that git does not keep")
        return self.word(word)

    def search_path(self, before: str, found: Sequence[str]) -> str:
        """PYTHONPATH of the revision's side.

        :param before: the user's; relative entries stay, since they are read in the folder where a program starts.
        :param found: where the interpreter finds modules without it (editable installs).
        """
        kept = [self._entry(entry) for entry in before.split(os.pathsep)] if before else []
        mapped = [place for place in map(self.of, found) if place and not in_environment(Path(place))]
        roots = [str(self.tree / "src")] if _holds_packages(self.tree / "src") else []
        return os.pathsep.join(dict.fromkeys([*kept, *mapped, *roots]))

    def _entry(self, entry: str) -> str:
        return self.of(entry) or entry


def in_environment(path: Path) -> bool:
    """Whether `path` belongs to a virtual or conda environment."""
    folders = Path(os.path.normpath(path.absolute())).parents
    return any((folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir() for folder in folders)


def _holds_packages(source: Path) -> bool:
    """Whether modules are imported from `source`, rather than from the folder above it."""
    if not source.is_dir() or (source / "__init__.py").exists():
        return False
    return any((entry / "__init__.py").exists() for entry in source.iterdir() if entry.is_dir())
