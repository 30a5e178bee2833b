"""The live screen of `monitor`: draws a snapshot every interval until q, Ctrl-C, or the end of the program."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from profiler.core.errors import ProfilerError
from profiler.core.live import Watched

if TYPE_CHECKING:
    from profiler.record.live import Live

_QUIT: Final = "qQ\x03"
_LEAVE: Final = "q or Ctrl-C leaves; the program goes on"
_FIRST_S: Final = 0.3
"""From the first reading to the second: CPU needs two, and nobody likes to wait for a picture."""
_CLOSING_S: Final = 3.0
"""For the recorder to close the run after the program has ended."""


def watch(live: Live, target: Watched, interval: float) -> None:
    """Show the screen; the terminal is as before when it returns, and says how the program ended if it did."""
    from rich.console import Console
    from rich.live import Live as Screen
    from rich.text import Text

    from profiler.diagnose.live import RecentMean, diagnose_live
    from profiler.report.render.live import live_view
    from profiler.report.verdict_text import live_sentence

    console = Console(highlight=False)
    unicode = (console.encoding or "").lower().startswith("utf")
    pause, over, recent = _FIRST_S, False, RecentMean()
    with (
        suppress(KeyboardInterrupt),
        _terminated_as_interrupt(),
        _keys() as asked_to_quit,
        Screen(Text(""), console=console, screen=True, auto_refresh=False) as screen,
    ):
        while True:
            snapshot = live.snapshot()
            if snapshot is None:
                over = True
                break
            size, words = console.size, live_sentence(diagnose_live(recent.update(snapshot)))
            view = live_view(snapshot, words, width=size.width, height=size.height, unicode=unicode, leave=_LEAVE)
            screen.update(view, refresh=True)
            if asked_to_quit(pause):
                break
            pause = interval
    if over:
        console.print(Text(ended(target)), soft_wrap=True)


def ended(target: Watched) -> str:
    """How the program ended, in a line: of a run as its manifest says, once the recorder has closed it."""
    from profiler.run.store import read_manifest

    if not target.run:
        return f"{target.program} (pid {target.pid}) has ended"
    until = time.monotonic() + _CLOSING_S
    while True:
        try:
            info = read_manifest(Path(target.run))
        except ProfilerError as error:
            return f"{target.program} has ended: {error}"
        if info.state != "running":
            break
        if time.monotonic() >= until:
            return f"{target.program} has ended; its recorder is still at work on {target.run}, or was killed"
        wait(0.1)
    code = "" if info.exit_code is None else f", exit code {info.exit_code}"
    seconds = ((info.end or info.begin) - info.begin) / 1e9
    return f"{info.label} has ended: {info.state}{code}, {seconds:.1f} s; python -m profiler diagnose {target.run}"


def wait(seconds: float) -> None:
    """Let the program go on for so long."""
    time.sleep(seconds)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds and says whether q was pressed; keys come unechoed and one by one.

    Where standard input is no terminal there are no keys: Ctrl-C ends it.
    """
    if not sys.stdin.isatty() or os.getpgrp() != os.tcgetpgrp(sys.stdin.fileno()):
        yield _no_key
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def asked(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                keys = os.read(descriptor, 64).decode(errors="replace")
                if not keys or any(key in _QUIT for key in keys):  # nothing to read: the terminal is gone
                    return True
        return False

    try:
        yield asked
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> bool:
    wait(seconds)
    return False


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP leave as Ctrl-C does: through the door that restores the terminal."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
