"""`monitor`: shows a running program live, whether it is recorded or not."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from profiler.commands._common import seconds
from profiler.core.errors import Exit, ProfilerError
from profiler.core.terminal import called_as

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from profiler.core.live import Watched
    from profiler.diagnose.model import LiveView

_MIN_INTERVAL_S: Final = 0.1
"""The kernel counts CPU time in units of 10 ms, so a shorter interval has an error above 10%."""
_FIRST_S: Final = 0.3
"""Time between the first two readings: CPU use needs two, and the first picture should appear soon."""
_LEAVE: Final = "Ctrl-C leaves; the program goes on"


class MonitorCommand:
    """Show threads, memory, GPUs and steps of a running program, and what limits it."""

    name = "monitor"
    help = "show a running program live: threads, memory, GPUs, steps, and what limits it"
    examples = ("monitor reports/runs/train", "monitor 12345")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        what = "a process or a run (default: the newest that is being recorded)"
        add("what", nargs="?", metavar="PID | RUN", help=what)
        once = "print one snapshot and exit (default without a terminal)"
        add("--once", action="store_true", help=once)
        interval = "seconds between two readings (default: 1)"
        add("--interval", type=seconds(_MIN_INTERVAL_S), default=1.0, metavar="S", help=interval)

    def run(self, args: argparse.Namespace) -> int:
        from rich.console import Console

        console, view = Console(highlight=False), _Views(args.what)
        if not args.once and _can_draw():
            _watch(view, args.interval, console)
            return int(Exit.OK)
        while (seen := view.after(args.interval)) is None:
            end = ProfilerError(view.end())
            if args.what is not None:
                raise end
            try:
                view = _Views(None)  # the next newest run
            except ProfilerError:
                raise end from None
        console.print(_panel(seen, console))
        return int(Exit.OK)


class _Views:
    """Looks at a program again and again: finds it, reads it from outside, and asks the rules."""

    def __init__(self, target: str | None) -> None:
        from profiler import read
        from profiler.diagnose.live import RunningAnalysis
        from profiler.record.live import LiveProgram, SystemReader, find_watched

        watched = find_watched(target)
        self._program = LiveProgram(watched, SystemReader())
        self._not_judged = _not_judged(watched)
        self._analysing = RunningAnalysis(lambda: read(watched.run))

    def look(self, *, wait: bool = False) -> LiveView | None:
        """Return the program as it is now; None when it has ended."""
        from profiler.diagnose.live import diagnose_live
        from profiler.diagnose.model import LiveView

        snapshot = self._program.snapshot()
        if snapshot is None:
            return None
        analysis = self._not_judged or self._analysing.read(wait=wait)
        if not isinstance(analysis, str) and analysis.value("step_time") is None:
            analysis = "no step was measured so far"
        reason = analysis if isinstance(analysis, str) else ""
        return LiveView(snapshot, diagnose_live(snapshot), None if isinstance(analysis, str) else analysis, reason)

    def after(self, interval: float) -> LiveView | None:
        """Return the program after two readings."""
        self._program.snapshot()
        time.sleep(interval)
        return self.look(wait=True)

    def end(self) -> str:
        """Tell how the program ended."""
        from profiler.record.live import describe_end

        return describe_end(self._program.watched)


def _not_judged(watched: Watched) -> str:
    if not watched.run:
        return f"not started with `profiler run`; see {called_as()} attach {watched.pid}"
    return "recorded at level light" if watched.level == "light" else ""


def _watch(views: _Views, interval: float, console: Console) -> None:
    """Show the program until it ends or Ctrl-C; then the terminal is as before, and shows how it ended if it did."""
    from rich.live import Live as Screen
    from rich.text import Text

    from profiler.record.target import signals_as_interrupt

    pause = _FIRST_S
    with suppress(KeyboardInterrupt):
        with signals_as_interrupt(), Screen(Text(""), console=console, screen=True, auto_refresh=False) as screen:
            while (seen := views.look()) is not None:
                screen.update(_panel(seen, console, _LEAVE), refresh=True)
                time.sleep(pause)
                pause = interval
        console.print(Text(views.end()), soft_wrap=True)


def _panel(view: LiveView, console: Console, leave: str = "") -> RenderableType:
    from profiler.report.render.drawing import is_unicode
    from profiler.report.render.live import live_panel

    return live_panel(view, width=console.width, unicode=is_unicode(console), leave=leave)


def _can_draw() -> bool:
    """Tell whether standard output is a terminal on which a picture can be replaced."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


PLUGIN = MonitorCommand()
