"""Asks git, so that it neither runs hooks nor prompts nor writes an index; a refusal is one line."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

_QUIET: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "advice.detachedHead=false"),
)
"""Nothing of the user's runs (hooks, a file system monitor), and git starts no housekeeping."""
_OTHER_REPOSITORY: Final = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)
"""Set where a hook of git starts us; each would point git away from the folder that it is asked about."""
_SHORT: Final = 7
_BRANCH: Final = re.compile(r"\w[\w./-]*")
"""What a remote may be asked for by name: no HEAD^, main~2 or v1@{u}."""


@dataclass(frozen=True, slots=True)
class Said:
    """What git said."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The line that says why it failed."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("fatal:", "error:"))]
        chosen = (told or lines or [f"exit code {self.code}"])[0]
        return chosen.removeprefix("fatal: ").removeprefix("error: ")


def environment() -> dict[str, str]:
    """Of git's processes: no prompts, no locks of the index, messages in English, large files left as pointers."""
    kept = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    return kept | {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def ask(folder: Path, words: Sequence[str], *, stdin: str | None = None) -> Said:
    """What git says in `folder`. It is out of reach of the terminal's Ctrl-C, so that it never stops half-way.

    :raises ProfilerError: there is no git.
    """
    try:
        process = subprocess.Popen(
            ["git", *_QUIET, *words],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise ProfilerError(f"{folder}: there is no such folder") from error
        raise ProfilerError("--against needs git, and there is none on PATH") from error
    with process:
        try:
            out, err = process.communicate(stdin)
        except KeyboardInterrupt:
            process.communicate()  # what it was told to do is done, and can be undone
            raise
    return Said(process.returncode, out, err)


@dataclass(frozen=True, slots=True)
class Repository:
    """The user's checkout."""

    root: Path
    """Its top folder, without symbolic links."""

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """The checkout that `folder` lies in.

        :raises ProfilerError: there is none, it has no files (a bare one), or git may not read it.
        """
        said = ask(folder, ["rev-parse", "--show-toplevel"])
        if said.code == 0:
            return cls(Path(said.out.removesuffix("\n")).resolve())
        why = said.line
        if "not a git repository" in why:
            why = "it lies in no git repository; run it in your checkout, or give --before and --after instead"
        elif "must be run in a work tree" in why:
            why = "this repository is bare, or you are inside .git; run it in a checkout"
        elif "dubious ownership" in why:
            why = f"git refuses another user's files: git config --global --add safe.directory {folder}"
        raise ProfilerError(f"--against cannot work in {folder}: {why}")

    def git_folder(self) -> Path:
        """Where its objects and branches are; worktrees of one repository have it in common."""
        return (self.root / ask(self.root, ["rev-parse", "--git-common-dir"]).out.removesuffix("\n")).resolve()

    def resolve(self, rev: str) -> str:
        """The commit that `rev` names.

        :raises ProfilerError: it names none here; in a shallow clone with what brings it.
        """
        if not rev or rev.startswith("-") or not rev.isprintable():
            raise ProfilerError(f"--against {rev!r} is no revision: give a branch, a tag, a commit or HEAD~1")
        # in two steps: what is put behind :/text would be looked for too
        named = ask(self.root, ["rev-parse", "--verify", "--quiet", rev]).out.strip()
        if named.isalnum():
            said = ask(self.root, ["rev-parse", "--verify", "--quiet", f"{named}^{{commit}}"])
            if said.code == 0:
                return said.out.strip()
        raise ProfilerError(f"--against {rev}: {self._not_here(rev)}")

    def _not_here(self, rev: str) -> str:
        if ask(self.root, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).code:
            return "this repository has no commit yet"
        remotes = ask(self.root, ["remote"]).out.split()
        branch = rev.removeprefix(f"{remotes[0]}/") if remotes else ""
        fetched = f"git fetch {remotes[0]} {branch}" if _BRANCH.fullmatch(branch) and branch != "HEAD" else ""
        if ask(self.root, ["rev-parse", "--is-shallow-repository"]).out.strip() == "true":
            return (
                "there is no such commit in this shallow clone: set fetch-depth: 0 for actions/checkout or "
                f"GIT_DEPTH: 0 in GitLab, or run git fetch --unshallow{fetched and f'; for a branch: {fetched}'}"
            )
        hint = f"; if it is a branch of {remotes[0]}: {fetched}" if fetched else ""
        return f"there is no such revision in {self.root}{hint}"

    def head(self) -> str:
        """The commit that is checked out; empty where there is none."""
        said = ask(self.root, ["rev-parse", "--verify", "--quiet", "HEAD"])
        return said.out.strip() if said.code == 0 else ""

    def changed(self) -> bool:
        """Whether the working tree differs from its commit, new files included, ignored ones not."""
        return bool(ask(self.root, ["status", "--porcelain", "--ignore-submodules=none"]).out)

    def ignored(self, names: Sequence[str]) -> frozenset[str]:
        """Of files named from the root on those that git is told to ignore."""
        listed = "".join(f"{name}\0" for name in names)
        return frozenset(ask(self.root, ["check-ignore", "-z", "--stdin"], stdin=listed).out.split("\0"))


def short(commit: str) -> str:
    """A commit as people write it."""
    return commit[:_SHORT]
