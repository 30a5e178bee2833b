"""The edge of the process: every error is one line and an exit code; help loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profiler import __main__ as edge
from profiler import __version__
from profiler.core.errors import Exit, ProfilerError
from tests.fakes.programs import ROOT, command_line, finished

HEAVY = ("torch", "pandas", "numpy", "jinja2", "rich", "psutil", "scipy", "numba")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, runpy\n"
        "sys.argv = ['profiler', '--help']\n"
        "try: runpy.run_module('profiler', run_name='__main__')\n"
        f"except SystemExit: print(sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)\n"
    )
    done = finished([sys.executable, "-c", code])
    assert "run" in done.stdout
    assert done.stderr.strip() == "[]", f"--help imported {done.stderr}"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        edge.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("argv", [[], ["bogus"], ["--bogus"], ["run", "--bogus", "--", "true"]])
def test_usage_errors_exit_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        edge.main(argv)
    assert caught.value.code == Exit.USAGE
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "diagnose-tokenization"),
        (["diagnose", "x", "--bogus"], "usage: python -m profiler diagnose [-h] [--what-if CHANGES]"),
    ],
)
def test_usage_of_the_command(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        edge.main(argv)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ProfilerError("no such run"), 2, "error: no such run\n"),
        (ProfilerError("they differ", Exit.NOT_COMPARABLE), 3, "error: they differ\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            ZeroDivisionError("a\nb"),
            2,
            "internal error: ZeroDivisionError: a b (set PROFILER_DEBUG=1 for the traceback)\n",
        ),
    ],
)
def test_an_error_is_one_line_and_a_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(edge.DEBUG, raising=False)

    def fail() -> int:
        raise error

    assert edge.guarded(fail) == code
    assert capsys.readouterr().err == line


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(edge.DEBUG, "1")
    with pytest.raises(ZeroDivisionError):
        edge.guarded(lambda: 1 // 0)


def test_a_closed_pipe_is_quiet() -> None:
    code = (
        "import sys\nfrom profiler.__main__ import guarded\n"
        "def work():\n"
        "    for _ in range(100000): print('a line that nobody reads')\n"
        "    return 0\n"
        "sys.exit(guarded(work))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_an_unknown_program_leaves_no_run(tmp_path: Path) -> None:
    out = f"{tmp_path}/run"
    done = finished(command_line("run", "--out", out, "--", "no-such-program"))
    assert done.returncode == 2
    assert done.stderr == "error: cannot start no-such-program: there is no such program\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(tmp_path: Path) -> None:
    """A terminal may have been closed, or a log may be on a full disk."""
    command = command_line("run", "--out", f"{tmp_path}/run", "--", "no-such-program")
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, cwd=ROOT, stderr=full, check=False).returncode == 2


@pytest.mark.parametrize(
    "command", [pytest.param(("diagnose",), marks=pytest.mark.slow), ("report", "--format", "text")]
)
def test_a_reader_of_a_report_that_goes_away_is_no_failure(command: tuple[str, ...]) -> None:
    """rich ends the program with 1, which means FAIL."""
    run = str(ROOT / "tests" / "approval" / "runs" / "detail-as-found.zip")
    process = subprocess.Popen(
        [sys.executable, "-m", "profiler", *command, run], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (141, b"")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["diagnoze", "runs/a"], "did you mean diagnose?"),
        (["report", "--formt", "md"], "did you mean --format?"),
        (["run", "--zzz", "--", "python", "a.py"], "unrecognized arguments: --zzz"),
    ],
)
def test_a_wrong_word_is_answered_with_the_one_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        edge.main(words)
    assert ended.value.code == Exit.USAGE
    assert capsys.readouterr().err.strip().endswith(meant)
