"""The commands that are printed run as they stand, also without a terminal and in folders with odd names."""

from __future__ import annotations

import html
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from profiler.__main__ import main, make_parser
from profiler.core.errors import Exit, ProfilerError
from profiler.diagnose.model import RunVerdict
from profiler.record.live import find_watched
from profiler.report.action_text import command_text, run_actions
from profiler.report.blocks import Action, FirstScreen, Headline
from profiler.report.render.console import print_first_screen
from profiler.run.model import StepDefinition, StepKind
from tests.approval.cases import RUNS
from tests.fakes.programs import ROOT
from tests.recorded.directories import info, write_manifest
from tests.report import hook_samples

ODD = 'it\'s a $HOME; "folder" *'
COMMAND = re.compile(r"^ *(?:more: )?(python -m profiler (?:.*\\\n)*.*)$", re.MULTILINE)
"""A command in what a terminal shows, with the lines that it continues on."""
PROGRAM = """
import sys, time
from profiler import marks
def useless():
    return sum(number * number for number in range(50_000))
for step in range(int(sys.argv[1])):
    useless()
    time.sleep(0.001)
    marks.step()
"""


def words_of(command: str) -> list[str]:
    """The words behind `python -m profiler`, as a shell splits them."""
    shell = 'python() { shift 2; printf "%s\\0" "$@"; }\n'
    done = subprocess.run(["sh", "-c", shell + command], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run with a finding that can be tried."""
    folder = tmp_path / ODD
    shutil.unpack_archive(RUNS / "slow-input.zip", folder)
    return folder


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_a_shell_reads_the_commands_of_a_report(form: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--format", form]) == Exit.OK
    shown = capsys.readouterr().out
    if form != "text":
        shown = (run / f"report.{form}").read_text(encoding="utf-8")
    if form == "html":
        tags = re.findall(r'<code class="command".*?</code>', shown)
        shown = "\n".join(html.unescape(re.sub("<[^>]*>", "", tag)) for tag in tags)
    commands = [words_of(command) for command in COMMAND.findall(shown)]
    assert ["try", "--yes", str(run)] in commands
    for words in commands:
        make_parser(words).parse_args(words)


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, "try RUN"), (False, "try --yes RUN")])
def test_only_a_terminal_shows_the_command_that_asks(
    is_terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in jobs that have no terminal
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
    action = Action("Measure", command="try --yes RUN", asking="try RUN")
    screen = FirstScreen((), Headline("", ""), actions=(action,))
    print_first_screen(screen, Console(file=stream, width=80, no_color=True), 20)
    assert shown in re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())


def test_a_program_is_named_so_that_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train.sh", "bin/python"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    recorded = info(cwd=str(tmp_path))
    absolute = f"{tmp_path}/bin/python"
    monkeypatch.chdir(tmp_path)
    for program in ("./train.sh", "bin/python", absolute):
        assert command_text(replace(recorded, argv=(program, "a b"))) == f"{program} 'a b'"
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert command_text(replace(recorded, argv=(absolute,))) == "python"
    assert command_text(replace(recorded, argv=("/on/another/machine/python",))) == "python"


def test_a_trace_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    step = StepDefinition(StepKind.WHOLE_TRACE)
    path = tmp_path / ODD / "trace.json"
    trace = replace(hook_samples.run(), step=step, path=path, outcome=RunVerdict.DEVICE_IDLE, findings=())
    predict = run_actions(trace)[0].command
    assert words_of(predict)[:2] == ["diagnose", f"{ODD}/trace.json"]


def test_a_run_that_is_over_is_named_so_that_a_shell_reads_it(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / ODD)
    with pytest.raises(ProfilerError) as refusal:
        find_watched(str(path))
    assert words_of(str(refusal.value).partition("): ")[2]) == ["diagnose", str(path)]


def ended(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_after_a_recording(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    (folder / "train it.py").write_text(PROGRAM)
    shown = ended("python -m profiler run --out 'my run' -- python 'train it.py' 20", folder).stderr
    commands = COMMAND.findall(shown)
    assert commands[-2:] == ["python -m profiler diagnose 'my run'", "python -m profiler report 'my run'"], shown
    for command in commands[-2:]:
        done = ended(command, folder)
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.slow
def test_every_command_after_a_recording_and_in_its_reports(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    for name in ("train it.py", "train it_changed.py"):  # the copy that `compare` is about
        (folder / name).write_text(PROGRAM)
    shown = ended("python -m profiler run --out 'my run' -- python 'train it.py' 300", folder).stderr
    shown += ended("python -m profiler diagnose 'my run'", folder).stdout
    commands = list(dict.fromkeys(COMMAND.findall(shown)))
    assert len(commands) >= 3, shown
    for command in commands:
        done = ended(command, folder)
        may_have_no_gain = " try " in command and done.returncode == Exit.NOT_COMPARABLE
        assert done.returncode == 0 or may_have_no_gain, f"{command}: {done.stderr}"
