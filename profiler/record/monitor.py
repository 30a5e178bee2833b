"""The live screen of `monitor`: draws a snapshot every interval until q, Ctrl-C, or the end of the program."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.core.errors import ProfilerError
from profiler.core.live import Snapshot, Watched
from profiler.core.terminal import called_as
from profiler.record.live import LiveProgram
from profiler.record.target import signals_as_interrupt
from profiler.run.store import read_manifest

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_QUIT_KEYS: Final = "qQ\x03"
_FIRST_S: Final = 0.3
"""Time between the first two readings: CPU use needs two, and the first picture should appear soon."""
_CLOSING_S: Final = 3.0
"""For the recorder to close the run after the program has ended."""


def watch(live: LiveProgram, interval: float, console: Console, draw: Callable[[Snapshot], RenderableType]) -> None:
    """Show the screen; when it returns, the terminal is as before, and shows how the program ended if it did."""
    from rich.live import Live as Screen
    from rich.text import Text

    pause, ended = _FIRST_S, False
    with (
        suppress(KeyboardInterrupt),
        signals_as_interrupt(),
        _keyboard() as quit_pressed,
        Screen(Text(""), console=console, screen=True, auto_refresh=False) as screen,
    ):
        while True:
            snapshot = live.snapshot()
            if snapshot is None:
                ended = True
                break
            screen.update(draw(snapshot), refresh=True)
            if quit_pressed(pause):
                break
            pause = interval
    if ended:
        console.print(Text(describe_end(live.watched)), soft_wrap=True)


def describe_end(watched: Watched) -> str:
    """Describe in a line how the program ended; the end of a run is read from its manifest once that is closed."""
    if not watched.run:
        return f"{watched.program} (pid {watched.pid}) has ended"
    until = time.monotonic() + _CLOSING_S
    while True:
        try:
            info = read_manifest(Path(watched.run))
        except ProfilerError as error:
            return f"{watched.program} has ended: {error}"
        if info.state != "running":
            break
        if time.monotonic() >= until:
            return f"{watched.program} has ended; its recorder is still at work on {watched.run}, or was killed"
        time.sleep(0.1)
    code = "" if info.exit_code is None else f", exit code {info.exit_code}"
    seconds = ((info.end or info.begin) - info.begin) / 1e9
    return f"{info.label} has ended: {info.state}{code}, {seconds:.1f} s; {called_as()} diagnose {watched.run}"


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds and returns whether q was pressed; keys come unechoed and one by one.

    Where standard input is no terminal there are no keys: Ctrl-C ends it.
    """
    if not sys.stdin.isatty() or os.getpgrp() != os.tcgetpgrp(sys.stdin.fileno()):
        yield _wait
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def quit_pressed(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            if select.select([terminal], [], [], remaining)[0]:
                keys = os.read(terminal, 64).decode(errors="replace")
                if not keys or any(key in _QUIT_KEYS for key in keys):  # nothing to read: the terminal is gone
                    return True
        return False

    try:
        yield quit_pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False
