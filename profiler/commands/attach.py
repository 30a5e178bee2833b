"""`attach`: says what a job that already runs is doing, without restarting it or putting anything into it."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.commands.run import RUNS
from profiler.core.errors import Exit

if TYPE_CHECKING:
    from profiler.analyse.model import Analysis
    from profiler.run.model import Run

_MOST: Final = 12
"""Processes that are listed."""


class AttachCommand:
    """python -m profiler attach PID [--seconds N] [--out DIR]"""

    name = "attach"
    help = "say what a running job is doing"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "pid", type=_pid, metavar="PID", help="of the job: its first process, or any of its processes"
        )
        parser.add_argument(
            "--seconds", type=_seconds, default=10.0, metavar="N", help="how long to look (default: 10)"
        )
        parser.add_argument("--out", type=Path, metavar="DIR", help=f"the run directory (default: a new one in {RUNS})")

    def run(self, args: argparse.Namespace) -> int:
        """Exits with 3 when nothing could be concluded, since the stacks could not be read."""
        from profiler import read
        from profiler.record import attach
        from profiler.run.load import load
        from profiler.run.store import default_directory

        attach.check_attachable(args.pid)
        spec = attach.attach_spec(args.pid, args.out or Path())
        if args.out is None:
            spec = replace(spec, out=default_directory(spec.argv, RUNS).absolute())
        attach.attach(args.pid, spec, args.seconds)
        run, analysis = load(spec.out), read(spec.out)
        _print(run, analysis, spec.out)
        return int(Exit.OK if analysis.threads else Exit.NOT_COMPARABLE)


def _print(run: Run, analysis: Analysis, out: Path) -> None:
    """The answers, the processes, what is missing and where the run lies."""
    from rich.console import Console
    from rich.text import Text

    from profiler.report.blocks import Report
    from profiler.report.render.console import print_report
    from profiler.report.sections.doing import PLUGIN

    info = analysis.info
    console = Console(highlight=False, soft_wrap=True)
    section = PLUGIN.build(analysis)
    seconds = ((info.end or info.begin) - info.begin) / 1e9
    subtitle = f"looked at for {seconds:.1f} s, nothing was stopped or restarted"
    print_report(
        Report(info.label, subtitle, (section,) if section else ()), full=True, console=Console(highlight=False)
    )
    for status in info.collectors:
        if status.reason and status.state != "off" and (status.state != "unavailable" or status.name == "stacks"):
            console.print(Text(f"{status.name}: {status.state}: {status.reason}", style="yellow"))
    for line in _processes(run):
        console.print(Text(f"  {line}"))
    console.print(Text(f"run directory: {out}"))
    where = shlex.quote(_beside(out))
    console.print(Text(f"more: python -m profiler diagnose {where}\n      python -m profiler report {where}"))


def _beside(out: Path) -> str:
    """As it is written from here, where that is shorter."""
    try:
        return str(out.relative_to(Path.cwd()))
    except ValueError:
        return str(out)


def _processes(run: Run) -> list[str]:
    """A line a process: CPU and memory, and its command; the first ones, where there are many."""
    import numpy as np

    def last(pid: int, name: str) -> float | None:
        if name not in run.names:
            return None
        rows = run.samples[(run.samples["pid"] == pid) & (run.samples["name"] == run.names.index(name))]
        return float(np.mean(rows["value"])) if len(rows) else None

    entries = run.info.facts.get("processes", ())
    lines = ["", "Processes"] if entries else []
    for entry in entries[:_MOST]:
        cpu, memory = last(entry["pid"], "process.cpu"), last(entry["pid"], "process.rss")
        rank = "" if entry["rank"] is None else f"rank {entry['rank']}, "
        used = "" if cpu is None or memory is None else f"{100 * cpu:.0f}% CPU, {memory / 1e6:,.0f} MB  "
        lines.append(f"{entry['pid']:>8}  {rank}{used}{entry['command']}")
    if len(entries) > _MOST:
        lines.append(f"and {len(entries) - _MOST} more")
    return lines


def _pid(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


PLUGIN = AttachCommand()
