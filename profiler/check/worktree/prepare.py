"""Prepares both sides of a check, translates paths between them, and tells how their files differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profiler.check.worktree.checkout import (
    PREFIX,
    Repository,
    check_out_submodules,
    checked_out,
    compile_modules,
    link_files,
    low_space,
    on_other_filesystem,
    short,
)
from profiler.check.worktree.environment import (
    Interpreter,
    changed_versions,
    find_interpreter,
    find_uv,
    inspect_interpreter,
    revision_environment,
)
from profiler.check.worktree.requirements import (
    CONDA_FILES,
    Requirements,
    can_install,
    changed_files,
    find_requirements,
)
from profiler.core.errors import Notice, ProfilerError
from profiler.core.facts import CHANGED
from profiler.core.git import run_git


@dataclass(frozen=True, slots=True)
class PathMapping:
    """Maps paths of the working tree to the tree of a revision."""

    root: Path
    tree: Path

    def map_path(self, path: str) -> str | None:
        """Return the counterpart of an absolute path in the tree, however it spells the root; None if it is
        elsewhere."""
        if not path.startswith("/"):
            return None
        normal = Path(os.path.normpath(path))
        # links within the repository stay, such as data -> /mnt/data
        top = next((folder for folder in (normal, *normal.parents) if os.path.realpath(folder) == str(self.root)), None)
        if top is None:
            normal, top = Path(os.path.realpath(normal.parent)) / normal.name, self.root
        return str(self.tree / normal.relative_to(top)) if normal.is_relative_to(top) else None

    def map_argument(self, argument: str) -> str:
        """Translate /repo/a.py and --config=/repo/a.yaml; files of an environment stay the user's."""
        option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
        mapped = self.map_path(value)
        return argument if mapped is None or in_environment(Path(value)) else option + equals + mapped

    def map_cwd(self, cwd: Path, rev: str) -> Path:
        """Return the folder in which the program starts.

        :raises ProfilerError: the revision does not have it.
        """
        relative = cwd.resolve().relative_to(self.root)
        folder = self.tree / relative
        if not folder.is_dir():
            raise ProfilerError(f"{rev} has no folder {relative}, where the command would start: run it from another")
        return folder

    def map_program(self, program: str, cwd: Path, rev: str) -> str:
        """Translate the first word of a command; a relative path into an environment becomes absolute.

        :raises ProfilerError: it is a file of the repository that the revision does not have.
        """
        if "/" not in program:
            return program
        file = cwd / program
        absolute = os.path.normpath(file.absolute())
        if in_environment(file):
            return absolute
        mapped = self.map_path(absolute)
        if mapped is not None and file.exists() and not os.path.lexists(mapped):
            raise ProfilerError(f"{rev} has no {program}: give --link {program} if it is a file that git does not keep")
        return self.map_argument(program)

    def python_path(self, python_path: str, import_paths: Sequence[str]) -> str:
        """Return PYTHONPATH for the revision.

        :param python_path: the user's; relative entries stay, because they are relative to where a program starts.
        :param import_paths: where the interpreter finds modules without it (editable installs).
        """
        entries = [self.map_path(entry) or entry for entry in python_path.split(os.pathsep)] if python_path else []
        mapped = [path for path in map(self.map_path, import_paths) if path and not in_environment(Path(path))]
        source = self.tree / "src"
        # without an __init__.py of its own, modules are imported from it rather than from the folder above it
        is_source = any(source.glob("*/__init__.py")) and not (source / "__init__.py").exists()
        return os.pathsep.join(dict.fromkeys([*entries, *mapped, *([str(source)] if is_source else [])]))


def in_environment(path: Path) -> bool:
    """Return whether `path` lies in a virtual or conda environment."""
    folders = Path(os.path.normpath(path.absolute())).parents
    return any((folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir() for folder in folders)


def refuse_working_tree(files: Iterable[str], repository: Path) -> None:
    """Refuse a revision's program that loads files of the working tree.

    :param files: the modules that it has loaded. Those of an environment within the repository (.venv), and those that
        it reaches through --link, are allowed.
    :raises ProfilerError: some are files of the working tree.
    """
    root = repository.resolve()
    wrong = set()
    for file in files:
        real = Path(os.path.realpath(file))
        linked = any(part.startswith(PREFIX) for part in Path(file).parts)
        if real.is_relative_to(root) and not linked and not in_environment(real):
            wrong.add(str(real))
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ProfilerError(
            f"the base runs code of the working tree ({min(wrong)}{more}), so both sides would be the same: is the "
            f"project installed in the environment from this folder? Start it from its sources (python -m ...), or "
            f"use --set environment=auto"
        )


# ---------------------------------------------------------------- both sides

LINK_HINT: Final = (
    "the revision has only what git keeps: --link PATH shows it data from outside git; a package that is missing has "
    "to be installed for this Python"
)
_PROJECT_MANAGERS: Final = ("uv", "poetry", "pdm", "pipenv", "hatch", "pixi", "conda", "mamba", "micromamba")
"""Programs that choose the environment of what they start."""


@dataclass(frozen=True, slots=True)
class PreparedSide:
    """A program that is ready to start."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that its environment has in addition to ours, or instead."""
    what: str = ""
    """'HEAD~1 (3f2a9c1)' | 'working tree (3f2a9c1+changes)'"""
    commit: str = ""
    """The full hash, with '+changes' if the working tree differs from it; empty outside of a repository."""
    notes: tuple[Notice, ...] = ()
    """Facts that a reader of the result has to know about it."""
    repository: Path | None = None
    """Top folder of the user's checkout."""
    other_filesystem: bool = False
    """Whether its files lie on another file system than the working tree's, so that it reads them at another speed."""


def working_tree_side(argv: tuple[str, ...], cwd: Path) -> PreparedSide:
    """Return the command as the user would start it, described by what is checked out in `cwd`."""
    try:
        repository = Repository.find(cwd)
    except ProfilerError:
        return PreparedSide(argv, cwd, _location_variables(cwd), what="working tree")
    head = repository.head()
    changes = CHANGED if head and repository.is_dirty() else ""
    what = f"working tree ({short(head) + changes or 'no commit yet'})"
    return PreparedSide(argv, cwd, _location_variables(cwd), what, head + changes, repository=repository.root)


@contextmanager
def prepare_revision(
    rev: str,
    argv: tuple[str, ...],
    cwd: Path,
    announce: Callable[[str], None],
    *,
    links: Sequence[str] = (),
    environment: str = "auto",
) -> Iterator[PreparedSide]:
    """Make a command ready to start at a revision; what was created for it is removed at the end of the block.

    Nothing touches the user's checkout, index, branches, hooks or configuration.

    :param rev: any name of a commit that git understands.
    :param cwd: where the user would start `argv`; the side starts in its counterpart.
    :param announce: is called with a message before a step that takes long.
    :param links: files and folders that git does not keep and that the revision is to see too.
    :param environment: `auto`: one of its own if its requirements differ; `same`: always the user's.
    :raises ProfilerError: no git, no repository, no such revision, folder or link, or an installation failed.
    """
    repository = Repository.find(cwd)
    commit = repository.resolve(rev)
    root = repository.root
    with checked_out(repository, commit, announce) as tree, ExitStack() as stack:
        try:
            mapping = PathMapping(root, tree)
            notes = list(check_out_submodules(root, tree, commit))
            link_files(links, root, cwd, tree)
            run_git(tree, ["lfs", "checkout"])  # from the local store only; without git-lfs it does nothing
            folder = mapping.map_cwd(cwd, rev)
            python = inspect_interpreter(find_interpreter(argv, cwd), cwd)
            command = (mapping.map_program(argv[0], cwd, rev), *map(mapping.map_argument, argv[1:]))
            variables = _location_variables(folder)
            different = changed_files(root, tree, cwd)
            ignored = repository.ignored(different)
            if changed := tuple(name for name in different if name not in ignored):
                values = {"rev": rev, "files": changed, "program": argv[0]}
                requirements: Requirements | str = "same"
                if environment != "same":
                    requirements = _own_requirements(rev, changed, python, mapping, program=argv[0], folder=folder)
                if isinstance(requirements, Requirements):
                    own = stack.enter_context(revision_environment(requirements, python, announce))
                    command = own.command(command, python)
                    variables |= own.variables()
                    values |= {"environment": "new" if own.is_new else "cached", "path": str(own.home)}
                    versions = changed_versions(python, own.python, tree.parent)
                    notes.append(Notice("requirements-differ", values))
                    notes += [Notice("package-versions-differ", {"packages": versions})] if versions else []
                else:
                    notes.append(Notice("requirements-differ", {**values, "environment": requirements}))
            for name, (source, editable) in sorted(python.local.items()):
                if not editable and Path(source).resolve().is_relative_to(root):
                    notes.append(Notice("installed-copy", {"name": name, "folder": source}))
            compile_modules(python.executable, root, tree)
            if python_path := mapping.python_path(os.environ.get("PYTHONPATH", ""), python.import_paths):
                variables["PYTHONPATH"] = python_path
        except OSError as error:
            cause = f"{error.strerror or error}{low_space(tree.parent)}"
            raise ProfilerError(f"cannot make {rev} ready in {tree.parent}: {cause}") from error
        what, is_elsewhere = f"{rev} ({short(commit)})", on_other_filesystem(folder, cwd)
        yield PreparedSide(command, folder, variables, what, commit, tuple(notes), root, is_elsewhere)


def _own_requirements(
    rev: str, changed: Sequence[str], python: Interpreter, mapping: PathMapping, *, program: str, folder: Path
) -> Requirements | str:
    """Return what an environment of the revision needs, or why it has none, as `requirements-differ` names it.

    :param changed: files that require something else than in the working tree.
    :param folder: in which the program starts.
    :raises ProfilerError: an environment is needed and cannot be made.
    """
    if Path(program).name in _PROJECT_MANAGERS:
        return "manager"
    tree = mapping.tree
    is_installed = any(Path(source).resolve().is_relative_to(mapping.root) for source, _ in python.local.values())
    requirements = find_requirements(tree, folder, project_installed=is_installed)
    if requirements is not None and can_install(changed, with_uv=find_uv() is not None):
        return requirements
    if conda := [name for name in changed if name.endswith(CONDA_FILES) and (tree / name).is_file()]:
        raise ProfilerError(
            f"{rev} has other requirements ({', '.join(changed)}), and pip cannot install {conda[0]}: make "
            f"that environment yourself and compare two commands, or --set environment=same"
        )
    return "nothing-to-install"


def _location_variables(cwd: Path) -> dict[str, str]:
    """Return PWD as a shell would set it for a program that starts in `cwd`; a correct spelling of the user's is kept.

    OLDPWD may name the working tree, so it is emptied.
    """
    current = os.environ.get("PWD", "")
    is_right = Path(current).is_absolute() and os.path.realpath(current) == os.path.realpath(cwd)
    previous = {"OLDPWD": ""} if "OLDPWD" in os.environ else {}
    return {"PWD": current if is_right else str(cwd.absolute()), **previous}
