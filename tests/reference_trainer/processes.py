"""Trainers as processes of their own, functions that fail, and the one line of a command that is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reference_trainer.errors import USAGE, TrainerError
from tests.fakes.programs import ROOT


def started(*arguments: object, **more: Any) -> subprocess.Popen[str]:
    """Start Python with these arguments; Ctrl-C reaches it however the tests were started."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    usual = {**pipes, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen([sys.executable, *map(str, arguments)], cwd=ROOT, text=True, **{**usual, **more})


@contextmanager
def started_until(line: str, *arguments: object, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed this line; it is killed at the end."""
    process = started(*arguments, **more)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == line + "\n", process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that takes anything and raises this error."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the one line with which a function refuses its input."""
    with pytest.raises(TrainerError) as caught:
        call(*arguments, **options)
    assert (caught.value.exit_code, "\n" in str(caught.value)) == (USAGE, False)
    return str(caught.value)


def refused(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line with which a command ends that cannot work, with exit code 2."""
    capsys.readouterr()
    assert main([*arguments]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1), printed
    assert printed.err.startswith("error: ")
    return printed.err
