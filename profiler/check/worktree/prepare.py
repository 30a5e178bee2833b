"""Prepares the two sides of `check --against REV`: the revision in its own worktree, and the working tree as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profiler.check.worktree.checkout import (
    check_out_submodules,
    checked_out,
    compile_modules,
    link_files,
    low_space,
    on_other_filesystem,
)
from profiler.check.worktree.environment import (
    Interpreter,
    changed_versions,
    find_interpreter,
    find_uv,
    inspect_interpreter,
    revision_environment,
)
from profiler.check.worktree.git import Repository, short
from profiler.check.worktree.paths import PathMapping
from profiler.check.worktree.requirements import (
    CONDA_FILES,
    Requirements,
    can_install,
    changed_files,
    find_requirements,
)
from profiler.core.errors import ProfilerError
from profiler.core.facts import CHANGED
from profiler.core.git import run_git
from profiler.core.notice import Notice

LINK_HINT: Final = "the revision has only what git keeps: --link PATH shows it data from outside git"
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


@dataclass(frozen=True, slots=True)
class RevisionRequest:
    """A command to run at a revision."""

    rev: str
    """Any name of a commit that git understands."""
    argv: tuple[str, ...]
    cwd: Path
    """Where the user would start `argv`; the side starts in its counterpart."""
    links: Sequence[str] = ()
    """Files and folders that git does not keep and that the revision is to see too."""
    environment: str = "auto"
    """auto: an environment of its own if its requirements differ; same: always the user's."""


def working_tree_side(argv: tuple[str, ...], cwd: Path) -> PreparedSide:
    """The command as the user would start it, described by what is checked out in `cwd`."""
    try:
        repository = Repository.find(cwd)
    except ProfilerError:
        return PreparedSide(argv, cwd, _location_variables(cwd), what="working tree")
    head = repository.head()
    changes = CHANGED if head and repository.is_dirty() else ""
    what = f"working tree ({short(head) + changes or 'no commit yet'})"
    return PreparedSide(argv, cwd, _location_variables(cwd), what, head + changes, repository=repository.root)


@contextmanager
def prepare_revision(request: RevisionRequest, announce: Callable[[str], None]) -> Iterator[PreparedSide]:
    """The command of `request`, ready to start; everything that was created for it is removed at the end of the block.

    Nothing touches the user's checkout, index, branches, hooks or configuration.

    :param announce: is called with a message before a step that takes long.
    :raises ProfilerError: no git, no repository, no such revision, folder or link, or an installation failed.
    """
    repository = Repository.find(request.cwd)
    commit = repository.resolve(request.rev)
    with checked_out(repository, commit, announce) as tree, ExitStack() as stack:
        try:
            mapping = PathMapping(repository.root, tree)
            side = _complete(request, commit, mapping, announce, stack)
        except OSError as error:
            cause = f"{error.strerror or error}{low_space(tree.parent)}"
            raise ProfilerError(f"cannot make {request.rev} ready in {tree.parent}: {cause}") from error
        yield side


def _complete(
    request: RevisionRequest, commit: str, mapping: PathMapping, announce: Callable[[str], None], stack: ExitStack
) -> PreparedSide:
    """Add to a fresh checkout what git does not create, and translate the command.

    :param stack: holds the environment.
    """
    rev, argv, cwd, root, tree = request.rev, request.argv, request.cwd, mapping.root, mapping.tree
    notes = list(check_out_submodules(root, tree, commit))
    link_files(request.links, root, cwd, tree)
    run_git(tree, ["lfs", "checkout"])  # from the local store only; without git-lfs it does nothing
    folder = mapping.map_cwd(cwd, rev)
    python = inspect_interpreter(find_interpreter(argv, cwd), cwd)
    command = (mapping.map_program(argv[0], cwd, rev), *map(mapping.map_argument, argv[1:]))
    variables = _location_variables(folder)
    different = changed_files(root, tree, cwd)
    ignored = Repository(root).ignored(different)
    if changed := tuple(name for name in different if name not in ignored):
        values = {"rev": rev, "files": changed}
        requirements = _own_requirements(request, changed, python, mapping)
        if isinstance(requirements, Requirements):
            environment = stack.enter_context(revision_environment(requirements, python, announce))
            command = environment.command(command, python)
            variables |= environment.variables()
            way = {"environment": "new" if environment.is_new else "cached", "path": str(environment.home)}
            notes.append(Notice("requirements-differ", {**values, **way}))
            if versions := changed_versions(python, environment.python, tree.parent):
                notes.append(Notice("package-versions-differ", {"packages": versions}))
            if requirements.has_extras:
                notes.append(Notice("extras-not-installed"))
            notes += [Notice("conda-file-ignored", {"file": name}) for name in _conda_files(changed, tree)]
        else:
            notes.append(Notice("requirements-differ", {**values, "environment": requirements, "program": argv[0]}))
    for name, (source, editable) in sorted(python.local.items()):
        if not editable and Path(source).resolve().is_relative_to(root):
            notes.append(Notice("installed-copy", {"name": name, "folder": source}))
    compile_modules(python.executable, root, tree)
    if python_path := mapping.python_path(os.environ.get("PYTHONPATH", ""), python.import_paths):
        variables["PYTHONPATH"] = python_path
    return PreparedSide(
        argv=command,
        cwd=folder,
        env=variables,
        what=f"{rev} ({short(commit)})",
        commit=commit,
        notes=tuple(notes),
        repository=root,
        other_filesystem=on_other_filesystem(folder, cwd),
    )


def _own_requirements(
    request: RevisionRequest, changed: Sequence[str], python: Interpreter, mapping: PathMapping
) -> Requirements | str:
    """What an environment of the revision needs, or why it has none, as the notice `requirements-differ` names it.

    :param changed: files that require something else than in the working tree.
    :raises ProfilerError: an environment is needed and cannot be made.
    """
    if request.environment == "same":
        return "same"
    if Path(request.argv[0]).name in _PROJECT_MANAGERS:
        return "manager"
    is_installed = any(Path(source).resolve().is_relative_to(mapping.root) for source, _ in python.local.values())
    folder = mapping.map_cwd(request.cwd, request.rev)
    requirements = find_requirements(mapping.tree, folder, project_installed=is_installed)
    if requirements is not None and can_install(changed, with_uv=find_uv() is not None):
        return requirements
    if conda := _conda_files(changed, mapping.tree):
        raise ProfilerError(
            f"{request.rev} has other requirements ({', '.join(changed)}), and pip cannot install {conda[0]}: make "
            f"that environment yourself and compare two commands, or --set environment=same"
        )
    return "nothing-to-install"


def _conda_files(changed: Sequence[str], tree: Path) -> list[str]:
    return [name for name in changed if name.endswith(CONDA_FILES) and (tree / name).is_file()]


def _location_variables(cwd: Path) -> dict[str, str]:
    """PWD as a shell would set it for a program that starts in `cwd`; a correct spelling of the user's is kept.

    OLDPWD may name the working tree, so it is emptied.
    """
    current = os.environ.get("PWD", "")
    is_right = Path(current).is_absolute() and os.path.realpath(current) == os.path.realpath(cwd)
    previous = {"OLDPWD": ""} if "OLDPWD" in os.environ else {}
    return {"PWD": current if is_right else str(cwd.absolute()), **previous}
