"""`monitor`: shows a running program live, recorded by us or not: threads, memory, GPUs, steps, what limits it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from profiler.core.errors import Exit, ProfilerError

if TYPE_CHECKING:
    from profiler.core.live import Snapshot

_SHORTEST_S: Final = 0.1
"""CPU times of processes tick at 10 ms: below it they are a tenth off."""


class MonitorCommand:
    """python -m profiler monitor [PID | RUN] [--once] [--json] [--interval S]"""

    name = "monitor"
    help = "show a running program live: threads, memory, GPUs, steps, and what limits it"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("what", nargs="?", metavar="PID | RUN", help="default: the newest run that is being recorded")
        add(
            "--once", action="store_true", help="print one snapshot, after one interval (so where there is no terminal)"
        )
        add("--json", action="store_true", help="the snapshot as JSON (docs/json.md); implies --once")
        add("--interval", type=_interval, default=1.0, metavar="S", help="seconds between readings (default: 1)")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.commands._watching import ended, wait, watch
        from profiler.record.live import Live, ProcReader
        from profiler.record.live_target import watched

        target = watched(args.what)
        live = Live(target, ProcReader())
        if not (args.once or args.json or not _terminal()):
            watch(live, target, args.interval)
            return int(Exit.OK)
        live.snapshot()
        wait(args.interval)
        snapshot = live.snapshot()
        if snapshot is None:
            raise ProfilerError(ended(target))
        _print(snapshot, as_json=args.json)
        return int(Exit.OK)


def _print(snapshot: Snapshot, *, as_json: bool) -> None:
    from rich.console import Console

    from profiler.diagnose.live import diagnose_live
    from profiler.report.render.live import live_view, snapshot_json
    from profiler.report.render.terminal import is_unicode
    from profiler.report.verdict_text import live_sentence

    verdict = live_sentence(diagnose_live(snapshot))
    if as_json:
        print(json.dumps(snapshot_json(snapshot, verdict), indent=1, allow_nan=False))
        return
    console = Console(highlight=False)
    console.print(live_view(snapshot, verdict, width=console.width, unicode=is_unicode(console)))


def _terminal() -> bool:
    """Whether a picture can be drawn and drawn over."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _SHORTEST_S <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {_SHORTEST_S}")
    return value


PLUGIN = MonitorCommand()
