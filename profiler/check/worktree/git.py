"""Runs git without hooks, prompts or writes to the index, and reports a refusal in one line."""

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
"""No hooks, no file system monitor, no housekeeping."""
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
"""Variables that a git hook sets for us; each would point git to another repository than that of the folder."""
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
_SHORT: Final = 7
_BRANCH: Final = re.compile(r"\w[\w./-]*")
"""A name that can be fetched from a remote, unlike HEAD^, main~2 or v1@{u}."""


@dataclass(frozen=True, slots=True)
class GitResult:
    """Exit code and output of a git command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line that tells why it failed."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
        line = (errors or lines or [f"exit code {self.code}"])[0]
        return line.removeprefix("fatal: ").removeprefix("error: ")


def run_git(folder: Path, arguments: Sequence[str], *, stdin: str | None = None) -> GitResult:
    """Run git in `folder`, in its own session: the terminal's Ctrl-C does not reach it, so it always completes.

    It does not prompt or lock the index, answers in English, and leaves large files as pointers.

    :raises ProfilerError: there is no git.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    try:
        process = subprocess.Popen(
            ["git", *_QUIET, *arguments],
            cwd=folder,
            env={**environment, **_ENVIRONMENT},
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
            process.communicate()  # it completes, so that its effect can be undone
            raise
    return GitResult(process.returncode, out, err)


@dataclass(frozen=True, slots=True)
class Repository:
    """The user's checkout."""

    root: Path
    """Its top folder, symbolic links resolved."""

    @classmethod
    def find(cls, folder: Path) -> Repository:
        """The checkout that contains `folder`.

        :raises ProfilerError: there is none, it is bare, or git may not read it.
        """
        result = run_git(folder, ["rev-parse", "--show-toplevel"])
        if result.code == 0:
            return cls(Path(result.out.removesuffix("\n")).resolve())
        why = result.error
        if "not a git repository" in why:
            why = "it lies in no git repository; run it in your checkout, or give --before and --after instead"
        elif "must be run in a work tree" in why:
            why = "this repository is bare, or you are inside .git; run it in a checkout"
        elif "dubious ownership" in why:
            why = f"git refuses another user's files: git config --global --add safe.directory {folder}"
        raise ProfilerError(f"--against cannot work in {folder}: {why}")

    def git_folder(self) -> Path:
        """The folder of its objects and branches, which all worktrees of the repository share."""
        return (self.root / run_git(self.root, ["rev-parse", "--git-common-dir"]).out.removesuffix("\n")).resolve()

    def resolve(self, rev: str) -> str:
        """The commit that `rev` names.

        :raises ProfilerError: it names none here; the message tells how to fetch it.
        """
        if not rev or rev.startswith("-") or not rev.isprintable():
            raise ProfilerError(f"--against {rev!r} is not a revision: give a branch, a tag, a commit or HEAD~1")
        # in two steps: in :/text^{commit} the suffix would be part of the text to search for
        object_name = self._verify(rev)
        commit = self._verify(f"{object_name}^{{commit}}") if object_name.isalnum() else ""
        if not commit:
            raise ProfilerError(f"--against {rev}: {self._why_unknown(rev)}")
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
        """The commit that is checked out; empty if there is none."""
        return self._verify("HEAD")

    def is_dirty(self) -> bool:
        """Whether the working tree differs from its commit; new files count, ignored ones do not."""
        return bool(run_git(self.root, ["status", "--porcelain", "--ignore-submodules=none"]).out)

    def ignored(self, names: Sequence[str]) -> frozenset[str]:
        """The files among `names`, relative to the root, that git ignores."""
        stdin = "".join(f"{name}\0" for name in names)
        return frozenset(run_git(self.root, ["check-ignore", "-z", "--stdin"], stdin=stdin).out.split("\0"))


def short(commit: str) -> str:
    """An abbreviated commit."""
    return commit[:_SHORT]
