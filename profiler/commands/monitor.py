"""`monitor`: shows a running program live, recorded or not: threads, memory, GPUs, steps, what limits it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from profiler.commands._common import seconds
from profiler.core.errors import Exit, ProfilerError
from profiler.core.terminal import called_as

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from profiler.analyse.model.analysis import Analysis
    from profiler.core.live import Snapshot, Watched
    from profiler.diagnose.live import RunningAnalysis

_MIN_INTERVAL_S: Final = 0.1
"""CPU times of processes tick at 10 ms: at shorter intervals the error exceeds 10%."""
_LEAVE: Final = "Ctrl-C leaves; the program goes on"


class MonitorCommand:
    """python -m profiler monitor [PID | RUN] [--once] [--interval S]"""

    name = "monitor"
    help = "show a running program live: threads, memory, GPUs, steps, and what limits it"
    examples = ("monitor reports/runs/train", "monitor 12345")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        what = "default: the newest run being recorded below this folder, else the newest on this machine"
        add("what", nargs="?", metavar="PID | RUN", help=what)
        once = "print one snapshot after one interval and exit (the default when output is not a terminal)"
        add("--once", action="store_true", help=once)
        interval = "seconds between readings (default: 1)"
        add("--interval", type=seconds(_MIN_INTERVAL_S), default=1.0, metavar="S", help=interval)

    def run(self, args: argparse.Namespace) -> int:
        from rich.console import Console

        from profiler.record.live import LiveProgram, SystemReader, describe_end, find_watched, watch

        live = LiveProgram(find_watched(args.what), SystemReader())
        console = Console(highlight=False)
        if not args.once and _can_draw():
            watch(live, args.interval, console, _drawing(console, live.watched))
            return int(Exit.OK)
        live.snapshot()
        time.sleep(args.interval)
        while (snapshot := live.snapshot()) is None:
            end = ProfilerError(describe_end(live.watched))
            if args.what is not None:
                raise end
            try:
                live = LiveProgram(find_watched(None), SystemReader())  # the next newest run
            except ProfilerError:
                raise end from None
            live.snapshot()
            time.sleep(args.interval)
        _print(console, snapshot)
        return int(Exit.OK)


def _analysing(watched: Watched) -> RunningAnalysis | str:
    """The analysis of what has been recorded so far, or why there is none."""
    from profiler import read
    from profiler.diagnose.live import RunningAnalysis

    if not watched.run:
        return f"not judged: not started with `profiler run`; see {called_as()} attach {watched.pid}"
    if watched.level == "light":
        return "not judged: recorded at level light"
    return RunningAnalysis(lambda: read(watched.run))


def _findings(analysing: RunningAnalysis | str, *, wait: bool = False) -> Analysis | str:
    """The analysis that has the findings so far, or why there is none."""
    if isinstance(analysing, str):
        return analysing
    try:
        analysis = analysing.read(wait=wait)
    except ProfilerError as error:
        return f"not judged: {error}"
    except Exception as error:  # noqa: BLE001 - the edge to a run that is still being written, and the screen reports it
        return f"not judged: the analysis failed: {type(error).__name__}: {error}"
    if analysis is None or analysis.value("step_time") is None:
        return "not judged yet: no step was measured so far"
    return analysis


def _drawing(console: Console, watched: Watched) -> Callable[[Snapshot], RenderableType]:
    """Draws snapshots to the size of the terminal, with the verdict on the last few of them."""
    from profiler.diagnose.live import RecentMean, diagnose_live
    from profiler.report.live_text import live_findings, live_sentence
    from profiler.report.render.live import live_view
    from profiler.report.render.terminal import is_unicode

    recent, unicode, analysing = RecentMean(), is_unicode(console), _analysing(watched)

    def draw(snapshot: Snapshot) -> RenderableType:
        size, verdict = console.size, live_sentence(diagnose_live(recent.update(snapshot)))
        state = _findings(analysing)
        lines = (state,) if isinstance(state, str) else live_findings(state)
        return live_view(snapshot, verdict, lines, width=size.width, height=size.height, unicode=unicode, leave=_LEAVE)

    return draw


def _print(console: Console, snapshot: Snapshot) -> None:
    from profiler.diagnose.live import diagnose_live
    from profiler.report.live_text import live_findings, live_sentence
    from profiler.report.render.live import live_view
    from profiler.report.render.terminal import is_unicode

    verdict = live_sentence(diagnose_live(snapshot))
    state = _findings(_analysing(snapshot.watched), wait=True)
    lines = (state,) if isinstance(state, str) else live_findings(state)
    console.print(live_view(snapshot, verdict, lines, width=console.width, unicode=is_unicode(console)))


def _can_draw() -> bool:
    """Whether standard output is a terminal on which a picture can be replaced."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


PLUGIN = MonitorCommand()
