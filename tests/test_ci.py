"""Continuous integration runs the tests and the check, and fails where either fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
MAKE = '#!/bin/sh\necho "make $1"\n[ "$1" != "$FAILING" ]\n'


@pytest.mark.parametrize(
    ("failing", "code", "output"),
    [("", 0, "make test\nmake check\n"), ("test", 1, "make test\n"), ("check", 1, "make test\nmake check\n")],
)
def test_exit_code_is_that_of_what_fails_first(tmp_path: Path, failing: str, code: int, output: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    make = tmp_path / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILING": failing}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, output)
