"""The cache of compiled functions, shared by processes that compile at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba.core.caching import IndexDataCacheFile

from reference_trainer import jit
from tests.fakes.programs import ROOT
from tests.reference_trainer.processes import raising

TWO = """
import os, sys
from numba.core.caching import IndexDataCacheFile
{ours}
EACH = 200
file = IndexDataCacheFile(sys.argv[1], "function", "stamp")
ready, go = os.pipe()
children = []
for child in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        os.close(go)
        os.read(ready, 1)  # both begin when the pipe is closed
        for number in range(EACH):
            file.save((child, number), f"code of {{child}}, {{number}}")
        os._exit(0)
os.close(go)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
wanted = [(child, number) for child in range(2) for number in range(EACH)]
print([key for key in wanted if file.load(key) != "code of {{}}, {{}}".format(*key)])
"""


def wrong(folder: Path, ours: str) -> str:
    """Keys whose code is missing or another's, after two processes saved theirs side by side."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TWO.format(ours=ours), str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_each_finds_its_own_code_again(tmp_path: Path) -> None:
    assert wrong(tmp_path / "ours", "import reference_trainer.jit") == "[]"


def saved(folder: Path) -> Any:
    """What is found again of a function that was saved there."""
    file = IndexDataCacheFile(str(folder), "function", "stamp")
    file.save("key", "code")
    return file.load("key")


def test_no_lock_to_be_had_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, and a `.lock` that is another user's: here a folder, which stops root as well."""
    (tmp_path / "theirs" / ".lock").mkdir(parents=True)
    assert saved(tmp_path / "theirs") == "code"
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    assert saved(tmp_path) == "code"


def test_what_inherits_the_lock_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a child does that another thread forks meanwhile."""
    flock, inherited = fcntl.flock, []

    def forked(file: Any, operation: int) -> None:
        flock(file, operation)
        if operation == fcntl.LOCK_EX:
            inherited.append(os.dup(file.fileno()))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", forked)
        assert saved(tmp_path) == "code"
    (child,) = inherited
    try:
        with open(tmp_path / ".lock") as lock:
            flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(child)


def test_another_numba_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(jit, "_usual_save", lambda *arguments: calls.append(arguments))
    file = SimpleNamespace(_cache_path="nowhere")
    jit._save(file, "key", "code")
    assert calls == [(file, "key", "code")]
