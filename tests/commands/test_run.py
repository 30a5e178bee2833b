"""`run` on the command line: exit codes, what it says, and where the run goes."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.report.write import print_summary
from profiler.run.load import load
from profiler.run.model import RunInfo, StepDefinition, StepKind
from tests.fakes.programs import ROOT
from tests.recorded.builders import MS, RunBuilder


def run(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "profiler", "run", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return subprocess.run(argv, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("dashes", [("--",), ()])
def test_exit_code_output_and_directory(tmp_path: Path, dashes: tuple[str, ...]) -> None:
    program = [*dashes, sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(3)", "--out", "x", "--"]
    done = run(tmp_path, "--label", "mine", *program)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "['--out', 'x', '--']\n", "stdout is the target's alone"
    [path] = (tmp_path / "reports" / "runs").iterdir()
    recorded = load(path)
    assert (recorded.info.label, recorded.info.level, recorded.info.state) == ("mine", "standard", "failed")
    for part in ("recorded mine: failed", "with exit code 3, before it imported torch; no step was seen", path.name):
        assert part in done.stderr
    assert "gpu" not in done.stderr, "nobody asked for one"


def test_a_missing_py_spy_is_told_before_the_program_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("profiler.record.collectors.stacks.find_py_spy", lambda: None)
    program = [sys.executable, "-c", "import sys; print('the program', file=sys.stderr)"]
    assert main(["run", "--out", str(tmp_path / "a"), "--", *program]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[:2] == [
        "profiler: this run will have no stacks: py-spy is not installed: pip install py-spy",
        "the program",
    ]
    assert main(["run", "--level", "light", "--out", str(tmp_path / "b"), "--", *program]) == 0
    assert capfd.readouterr().err.startswith("the program"), "this level needs no stacks"


def test_marks_only_keeps_the_hooks_out(tmp_path: Path) -> None:
    done = run(tmp_path, "--marks-only", "--", sys.executable, "-c", "pass")
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "reports" / "runs").iterdir()
    status = next(status for status in load(path).info.collectors if status.name == "hooks")
    assert (status.state, status.reason) == ("off", "not requested: only what the program marks is recorded")
    assert not (path / "hooked").exists()


def test_standard_input_is_the_targets(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "cat", text="a line\n")
    assert (done.returncode, done.stdout) == (0, "a line\n")


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    assert main(["run", "--out", str(tmp_path / "run"), "--", "true"]) == 2
    assert capsys.readouterr().err == (
        f"error: cannot use {tmp_path}/run: it is not empty (file is in it), and a run is never overwritten. "
        f"Nothing was recorded or changed; {tmp_path}/run-2 is free\n"
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "file"]


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--"]) == 2
    assert "no command to record" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [("--sample-period", "0"), ("--sample-period", "nan"), ("--sample-period", "0.001"), ("--timeout", "-1")]
)
def test_bad_numbers(options: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", *options, "--", "true"])
    assert caught.value.code == 2
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_exit_codes_of_a_process_that_its_own_signals_do_not_end(
    code: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lambda *_, **__: RunInfo(1, "r", "", ("true",), exit_code=code)  # noqa: E731
    monkeypatch.setattr("profiler.record.launch.record", made)
    monkeypatch.setattr("profiler.record.target.os.kill", lambda *_: None)  # as for the first process of a container
    monkeypatch.setattr("profiler.record.target.resource.setrlimit", lambda *_: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["run", "--out", str(tmp_path / "run"), "--", "true"]) == expected
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_large_run_is_not_analysed_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(level="standard")
    builder.steps(10, 200 * MS)
    print_summary(builder.build(), analyse)
    whole = capsys.readouterr().err
    assert "A step now, on average: 200 ms" in whole
    assert whole.rstrip().endswith("python -m profiler report synthetic")
    assert whole.strip().count("\n") < 24
    monkeypatch.setattr("profiler.report.write.MAX_RECORDS", 9)
    print_summary(builder.build(), analyse)
    short = capsys.readouterr().err
    assert "not analysed here: 10 records, more than 9" in short
    assert "200 ms" not in short


def test_a_terminal_breaks_sentences_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = RunBuilder(level="standard")
    builder.steps(10, 200 * MS)
    detail = "Each of these words stays whole " + "here " * 20
    analysed = replace(analyse(builder.build()), outcome="device-idle", headline="x", details=(detail,))
    monkeypatch.setenv("COLUMNS", "80")
    print_summary(builder.build(), lambda run: analysed)
    lines = [line for line in capsys.readouterr().err.splitlines() if "here" in line]
    assert lines[0].startswith("Each of")
    assert len(lines) == 2
    assert lines[1].startswith("here")


def test_the_steps_of_several_ranks_are_counted_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(level="standard")
    for rank in (0, 1):
        for index in range(10):
            builder.step(index * 200 * MS, (index + 1) * 200 * MS, index=index, rank=rank, pid=100 + rank)
    print_summary(builder.build(), analyse)
    assert "; 20 steps of 2 ranks" in capsys.readouterr().err


def test_a_run_without_steps_counts_none(capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(level="standard", state="failed", exit_code=3)
    builder.steps(1, 200 * MS)
    print_summary(replace(builder.build(), step=StepDefinition(StepKind.WHOLE_RUN)), analyse)
    errors = capsys.readouterr().err
    assert "no step was seen" in errors
    assert "1 step" not in errors


def test_an_analysis_that_fails_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(run: object) -> Analysis:
        raise ValueError("[bold]no")

    builder = RunBuilder(level="standard")
    builder.steps(10, 200 * MS)
    print_summary(builder.build(), fail)
    assert "the analysis failed: ValueError: [bold]no" in capsys.readouterr().err


def test_programs_without_steps(tmp_path: Path) -> None:
    errors = run(tmp_path, "--out", "it's one", "--", "true").stderr
    assert "no Python was seen in it" in errors
    assert "python -I" not in errors
    assert """diagnose 'it'"'"'s one'""" in errors, "a command that can be copied"
    errors = run(tmp_path, "--", sys.executable, "-c", "pass").stderr
    assert "no step: the program did not import torch" in errors
    assert "median" not in errors, "of one piece there is none"
