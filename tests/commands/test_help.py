"""The help of each command is short, and ends with examples that the parser accepts."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from profiler.__main__ import main, make_parser
from profiler.core.plugins import discover
from profiler.core.terminal import PROGRAM, called_as

COMMANDS = list(discover("profiler.commands"))
MOST_WORDS = 11
"""Longest help of an option, without defaults in parentheses."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_help_ends_with_two_examples_that_parse(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command.name, "--help"])
    assert stop.value.code == 0
    examples = capsys.readouterr().out.rstrip().rpartition("examples:\n")[2].splitlines()
    assert len(examples) == 2
    for line in examples:
        assert line.startswith(f"  {called_as()} {command.name}")
        words = shlex.split(line)[len(called_as().split()) :]
        args, unknown = make_parser(words).parse_known_args(words)
        assert not unknown
        assert args.run == command.run


@pytest.mark.parametrize("path", [f"/usr/bin/{PROGRAM}", PROGRAM])
def test_the_help_names_the_installed_command_where_that_was_called(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [path])
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: {PROGRAM} report")
    assert re.findall(rf"^  {PROGRAM} report .*", out, flags=re.MULTILINE)
    assert "python -m" not in out


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_whose_reader_has_gone_ends_as_by_sigpipe(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "profiler", "report", "--help"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_the_help_of_an_option_is_short(command: Any) -> None:
    parser = argparse.ArgumentParser()
    command.prepare_parser(parser)
    for action in parser._actions:
        words = re.sub(r"\([^()]*\)", "", action.help or "").split()
        assert 1 <= len(words) <= MOST_WORDS, action.help
