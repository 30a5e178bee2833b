"""`doctor` on the command line: its exit code, its table and its JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from profiler.__main__ import main
from profiler.core.machine import NO, YES, Answer, Capability
from profiler.record import doctor

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("state", "needed", "code"), [(YES, True, 0), (NO, True, 1), (NO, False, 0)])
def test_exit_code(state: str, needed: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    rows = (Capability("stacks", "Python stacks", Answer(state, "as it is"), needed),)
    monkeypatch.setattr(doctor, "examine", lambda setup, checks: rows)
    assert main(["doctor"]) == code
    assert "as it is" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["standard"] is (code == 0)


def test_in_a_pipe_nothing_is_wrapped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    why, do = "in /a/" + "long/" * 40 + "place", "docker run " + "--option " * 20
    rows = (Capability("stacks", "Python stacks", Answer(NO, why, do), needed=False),)
    monkeypatch.setattr(doctor, "examine", lambda setup, checks: rows)
    monkeypatch.delenv("COLUMNS", raising=False)
    main(["doctor"])
    check, remedy = capsys.readouterr().out.splitlines()[:2]
    assert check == f"Python stacks  no  {why}"
    assert remedy.strip() == f"-> {do.strip()}"


def test_a_python_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--python", "no-such-python"]) == 2
    assert capsys.readouterr().err == "error: --python no-such-python: there is no such program\n"


def test_the_exit_code_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    assert "Exit code 0: recording works at level standard" in " ".join(capsys.readouterr().out.split())


def test_neither_command_imports_the_libraries_that_it_examines() -> None:
    program = (
        "import sys, profiler.record.checks as checks, profiler.record.live; checks.all_checks(); "
        "print([m for m in ('torch', 'numba', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
