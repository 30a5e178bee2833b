"""Finds the user's checkout and the commits that revisions name, and reports a refusal in one line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.git import run_git

_SHORT: Final = 7
_BRANCH: Final = re.compile(r"\w[\w./-]*")
"""A name that can be fetched from a remote, unlike HEAD^, main~2 or v1@{u}."""


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
            why = "it lies in no git repository; run it in your checkout, or compare two commands"
        elif "must be run in a work tree" in why:
            why = "this repository is bare, or you are inside .git; run it in a checkout"
        elif "dubious ownership" in why:
            why = "git refuses another user's files: git config --global --add safe.directory "
            why += shlex.quote(str(folder))
        raise ProfilerError(f"no revision can be compared to in {folder}: {why}")

    def git_folder(self) -> Path:
        """The folder of its objects and branches, which all worktrees of the repository share."""
        return (self.root / run_git(self.root, ["rev-parse", "--git-common-dir"]).out.removesuffix("\n")).resolve()

    def resolve(self, rev: str, option: str = "--against") -> str:
        """The commit that `rev` names.

        :param option: that has named it.
        :raises ProfilerError: it names none here; the message tells how to fetch it.
        """
        if not rev or rev.startswith("-") or not rev.isprintable():
            raise ProfilerError(f"{option} {rev!r} is not a revision: give a branch, a tag, a commit or HEAD~1")
        # in two steps: in :/text^{commit} the suffix would be part of the text to search for
        object_name = self._verify(rev)
        commit = self._verify(f"{object_name}^{{commit}}") if object_name.isalnum() else ""
        if not commit:
            raise ProfilerError(f"{option} {rev}: {self._why_unknown(rev)}")
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
