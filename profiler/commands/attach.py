"""`attach`: shows what a job that already runs is doing, without restarting it or putting anything into it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.commands._common import RUNS, add_privacy, privacy, seconds
from profiler.core.errors import Exit

if TYPE_CHECKING:
    from profiler.analyse.model.analysis import Analysis
    from profiler.run.model import Run

_MAX_PROCESSES: Final = 12
"""Maximum number of processes that are listed."""


class AttachCommand:
    """Record a running process from outside for some seconds, and print what its threads do."""

    name = "attach"
    help = "show what a running job is doing, without restarting it"
    examples = ("attach 12345", "attach 12345 --seconds 30")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("pid", type=_pid, metavar="PID", help="process id of any process of the job")
        add("--seconds", type=seconds(), default=10.0, metavar="N", help="seconds to record (default: 10)")
        add("--out", type=Path, metavar="DIR", help=f"the run directory (default: a new one in {RUNS})")
        add_privacy(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the activity of the job. Return 3 if its stacks could not be read."""
        from profiler import analyse_run, load
        from profiler.record import launch
        from profiler.run.store import default_directory

        launch.check_attachable(args.pid)
        spec = launch.attach_spec(args.pid, args.out or Path(), privacy(args))
        if args.out is None:
            spec = replace(spec, out=default_directory(spec.argv, RUNS).absolute())
        launch.attach(args.pid, spec, args.seconds)
        run = load(spec.out)
        analysis = analyse_run(run)
        _print(run, analysis)
        return int(Exit.OK if analysis.threads else Exit.NOT_COMPARABLE)


def _print(run: Run, analysis: Analysis) -> None:
    """Print what the job does, what could not be recorded, its processes, and the run directory."""
    from rich.console import Console
    from rich.text import Text

    from profiler.report.blocks import Items, Report, Section
    from profiler.report.model import ReportInput
    from profiler.report.render.console import print_report
    from profiler.report.sections.lines import threads
    from profiler.report.write import next_commands

    info = analysis.info
    console = Console(highlight=False, soft_wrap=True)
    section = threads.build(ReportInput.from_results(analysis))
    duration = ((info.end or info.begin) - info.begin) / 1e9
    subtitle = f"observed for {duration:.1f} s; the program was not stopped or restarted"
    findings = Section("findings", "What makes it slow", (Items(_findings(analysis)),)) if section else None
    sections = tuple(filter(None, (findings, section)))
    print_report(Report(info.label, subtitle, sections), full=True, console=Console(highlight=False))
    for status in info.collectors:
        if status.reason and status.state != "off" and (status.state != "unavailable" or status.name == "stacks"):
            console.print(Text(f"{status.name}: {status.state}: {status.reason}", style="yellow"))
    for line in _processes(run):
        console.print(Text(f"  {line}"))
    console.print(Text(f"run directory: {run.path}"))
    console.print(Text(next_commands(run.path)))


def _findings(analysis: Analysis) -> tuple[str, ...]:
    """Return findings on a second of the main thread, which stands for a step because steps are not known."""
    from profiler.analyse.sampling.places import second_of_main_thread
    from profiler.diagnose.findings import find
    from profiler.report.live_text import live_findings

    second = second_of_main_thread(analysis)
    if second is None:
        return ("not judged: the recording does not show whether a device was busy",)
    found = find(second)
    second = replace(second, findings=found.findings, not_judged=found.not_judged)
    return live_findings(second, "of the time")


def _processes(run: Run) -> list[str]:
    """Return a line for each process: CPU, memory and command."""
    import numpy as np

    def mean(pid: int, name: str) -> float | None:
        if name not in run.names:
            return None
        rows = run.samples[(run.samples["pid"] == pid) & (run.samples["name"] == run.names.index(name))]
        return float(np.mean(rows["value"])) if len(rows) else None

    processes = run.info.facts.get("processes", ())
    lines = ["", "Processes"] if processes else []
    for process in processes[:_MAX_PROCESSES]:
        cpu, memory = mean(process["pid"], "process.cpu"), mean(process["pid"], "process.rss")
        rank = "" if process["rank"] is None else f"rank {process['rank']}, "
        used = "" if cpu is None or memory is None else f"{100 * cpu:.0f}% CPU, {memory / 1e6:,.0f} MB  "
        lines.append(f"{process['pid']:>8}  {rank}{used}{process['command']}")
    if len(processes) > _MAX_PROCESSES:
        lines.append(f"and {len(processes) - _MAX_PROCESSES} more")
    return lines


def _pid(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)


PLUGIN = AttachCommand()
