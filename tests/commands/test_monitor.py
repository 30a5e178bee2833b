"""`monitor` on the command line: one snapshot for scripts, and the live screen in a terminal, left in three ways."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import profiler
from profiler.__main__ import main
from profiler.core.errors import ProfilerError
from profiler.core.live import Watched
from profiler.record import live
from profiler.record.live import describe_end
from tests.fakes.programs import ROOT, waiting_python
from tests.recorded.directories import write_manifest

SCREEN, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
"""Sequences that switch a terminal to another screen, and back."""


@pytest.fixture
def target() -> Iterator[subprocess.Popen[str]]:
    with waiting_python() as process:
        yield process


def test_a_snapshot_without_a_terminal(target: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", str(target.pid), "--interval", "0.1"]) == 0
    text = capsys.readouterr().out
    assert f"pid {target.pid}" in text
    assert "not measured: not started with `profiler run`" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("others", [1, 0])
def test_a_run_that_ends_meanwhile_gives_way_to_the_next_newest(
    target: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], others: int
) -> None:
    running = [Watched(2**22 + 1, "ended"), *[Watched(target.pid, "next")] * others]

    def newest(_: None) -> Watched:
        if not running:
            raise ProfilerError("nothing is being recorded")
        return running.pop(0)

    monkeypatch.setattr(live, "find_watched", newest)
    assert main(["monitor", "--once", "--interval", "0.1"]) == (0 if others else 2)
    shown = capsys.readouterr()
    assert f"pid {target.pid}" in shown.out if others else "has ended" in shown.err


def test_an_error_in_a_half_written_run_is_shown_and_does_not_end_the_view(
    target: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise IndexError("half a row")

    monkeypatch.setattr(live, "find_watched", lambda _: Watched(target.pid, "train", str(tmp_path), "standard"))
    monkeypatch.setattr(live.StepRate, "_read", fails)
    monkeypatch.setattr(profiler, "read", fails)
    assert main(["monitor", "--once", "--interval", "0.1"]) == 0
    text = capsys.readouterr().out
    assert "the tables cannot be read: IndexError: half a row" in text
    assert "not judged: the analysis failed: IndexError: half a row" in text


@pytest.mark.parametrize("arguments", [["--interval", "0"], ["--interval", "nan"], ["--interval", "x"]])
def test_bad_intervals(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["monitor", *arguments])
    assert caught.value.code == 2
    assert "is not a number of seconds from 0.1" in capsys.readouterr().err


def test_programs_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", str(2**22 + 1)]) == 2
    assert capsys.readouterr().err == f"error: there is no process {2**22 + 1}\n"


def test_the_end_of_a_run_in_a_line(tmp_path: Path) -> None:
    run = write_manifest(tmp_path / "run", label="mine", state="failed", exit_code=3, begin=0, end=2_500_000_000)
    line = f"mine has ended: failed, exit code 3, 2.5 s; python -m profiler diagnose {run}"
    assert describe_end(Watched(1, "x", run=str(run))) == line


@pytest.mark.parametrize("way", ["ctrl-c", pytest.param("end", marks=pytest.mark.slow)])
def test_the_terminal_is_restored_after_the_live_screen(target: subprocess.Popen[str], way: str) -> None:
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    monitor = subprocess.Popen(
        [sys.executable, "-c", _SESSION, "monitor", str(target.pid), "--interval", "0.1"],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    try:
        seen = _read_until(master, b"not started with `profiler run`")
        assert SCREEN in seen
        if way == "end":
            target.kill()
        else:
            os.write(master, b"\x03")
        seen += _read_until(master, BACK)
        if way == "end" and b"has ended" not in seen:
            _read_until(master, b"has ended")
        assert monitor.wait(30) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        monitor.kill()
        monitor.wait()
        os.close(master)
        os.close(slave)


_SESSION = (
    "import fcntl, signal, sys, termios; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); from profiler.__main__ import main; sys.exit(main())"
)
"""Takes the terminal as its own, so that Ctrl-C in it is a signal to this process."""


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(terminal, 1 << 16)
    return seen
