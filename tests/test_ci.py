"""Continuous integration runs a few failed tests once more, and prints which."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
MAKE = """#!/bin/sh
[ "$1" = check ] && echo checked && exit "${CHECK:-0}"
echo "make $*" >> calls
mkdir -p .pytest_cache/v/cache
if [ "$(wc -l < calls)" = 1 ]; then
    [ -n "$FIRST" ] || exit 0
    printf '%s' "$FIRST" > .pytest_cache/v/cache/lastfailed
    exit 2
fi
exit "$SECOND"
"""
FLAKY = "FLAKY, must be repaired"


def run_job(folder: Path, make: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The job with a script in the place of `make`."""
    (folder / ".ci").mkdir()
    shutil.copy(RUN, folder / ".ci" / "run")
    program = folder / "bin" / "make"
    program.parent.mkdir()
    program.write_text(make)
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", **environment}
    return subprocess.run([folder / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("failed", "second", "code", "calls"), [(0, 0, 0, 1), (1, 0, 0, 2), (3, 0, 0, 2), (1, 2, 2, 2), (4, 0, 1, 1)]
)
def test_a_few_failures_have_one_chance_more(tmp_path: Path, failed: int, second: int, code: int, calls: int) -> None:
    names = [f"tests/test_a.py::test_{number}" for number in range(failed)]
    first = json.dumps(dict.fromkeys(names, True), indent=2) if failed else ""  # as pytest writes it
    done = run_job(tmp_path, MAKE, FIRST=first, SECOND=str(second))
    assert done.returncode == code, done.stderr
    asked = (tmp_path / "calls").read_text().splitlines()
    assert len(asked) == calls
    if calls == 2:
        assert "--last-failed" in asked[1]
        assert all(name in done.stdout for name in names)
    assert (FLAKY in done.stdout) == (calls == 2 and code == 0)
    assert ("checked" in done.stdout) == (code == 0)


def test_a_failure_before_the_tests_is_one(tmp_path: Path) -> None:
    done = run_job(tmp_path, "#!/bin/sh\nexit 2\n")
    assert done.returncode == 1
    assert FLAKY not in done.stdout


def test_counters_that_rose_fail_the_job(tmp_path: Path) -> None:
    done = run_job(tmp_path, MAKE, FIRST="", CHECK="1")
    assert (done.returncode, "checked" in done.stdout) == (1, True)
