"""Errors name the packages of the profiler that are missing, also in a Python that has none of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from profiler.__main__ import guarded
from profiler.core import machine
from profiler.core.errors import Exit
from tests.fakes.programs import ROOT

BARE = [sys.executable, "-S", "-m", "profiler"]
"""Without site-packages: as a fresh environment is."""


def test_here_nothing_is_missing() -> None:
    assert machine.missing_packages() == ()


def test_the_line_names_them_and_the_command() -> None:
    assert machine.missing_packages(lambda name: name not in {"numpy", "rich"}) == ("numpy", "rich")
    said = machine.install_hint(("numpy", "rich"))
    assert said.startswith(f"numpy and rich are missing in {sys.executable}: ")
    assert said.endswith(" -m pip install numpy rich")
    assert machine.install_hint(("numpy",)).startswith("numpy is missing")


def test_a_module_that_is_not_a_requirement_is_an_internal_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise ModuleNotFoundError("No module named 'x'", name="x")

    assert guarded(fail) == Exit.USAGE
    assert capsys.readouterr().err.startswith("internal error: ModuleNotFoundError")


def test_a_python_without_packages_prints_one_line_and_starts_nothing() -> None:
    words = ["run", "--", sys.executable, "-c", "print('started')"]
    done = subprocess.run([*BARE, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("error: numpy, rich, ")
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_doctor_survives_it(options: list[str]) -> None:
    done = subprocess.run([*BARE, "doctor", *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (Exit.FAIL, "")
    assert "-m pip install numpy rich" in (json.loads(done.stdout)["conclusion"] if options else done.stdout)
