"""`run`: records any program; its steps are found by hooks, or it marks them itself (`profiler.marks`)."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.core.errors import ProfilerError
from profiler.run.tables import LEVELS

if TYPE_CHECKING:
    from rich.console import Console

    from profiler.run.model import Run, RunInfo

RUNS = Path("reports/runs")
"""Where runs go when no --out is given."""
_NO_STEPS = "no steps: no optimizer stepped, no loader was asked, and the program does not call profiler.step()"
_SHARES = "; the shares below are of the whole run"
MOST_RECORDS = 2_000_000
"""In a run that is analysed right after it was recorded: nobody asked for the time that more would take."""
_MOST_DOUBTS = 3
_SHORTEST_PERIOD_S = 0.01  # CPU times tick at 10 ms: below it samples would repeat themselves


class RunCommand:
    """python -m profiler run [options] -- python train.py ..."""

    name = "run"
    help = "record a program"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--out", type=Path, metavar="DIR", help=f"the run directory (default: a new one in {RUNS})")
        parser.add_argument(
            "--level",
            choices=LEVELS,
            default="standard",
            help="light: steps and samples; standard: regions, calls, stacks too; full: all (default: %(default)s)",
        )
        parser.add_argument("--label", default="", help="name of this run in reports (default: the program's)")
        parser.add_argument(
            "--sample-period", type=_period, default=0.1, metavar="S", help="seconds between samples (default: 0.1)"
        )
        parser.add_argument("--timeout", type=_positive, metavar="S", help="stop the program after so many seconds")
        parser.add_argument(
            "--marks-only",
            action="store_true",
            help="put no hooks into the program: record only what it marks by itself (profiler.marks)",
        )
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ARGS...", help="what to record")

    def run(self, args: argparse.Namespace) -> int:
        """Exits with the program's own exit code (128 + signal when one ended it)."""
        from profiler.record.launch import record
        from profiler.run.load import load
        from profiler.run.model import RunSpec
        from profiler.run.store import default_directory

        argv = tuple(args.command[1:] if args.command[:1] == ["--"] else args.command)
        if not argv:
            raise ProfilerError("no command to record: write it after --, as in: run -- python train.py")
        spec = RunSpec(
            argv=argv,
            out=args.out or default_directory(argv, RUNS),
            level=args.level,
            label=args.label,
            sample_period=args.sample_period,
            timeout=args.timeout,
            hooks=not args.marks_only,
        )
        info = record(spec)
        try:
            print_summary(load(spec.out))
        except ProfilerError as error:  # the run was removed meanwhile, say: the program's exit code counts
            print(f"profiler: {error}", file=sys.stderr)
        except OSError:  # the terminal has been closed
            return exit_code(info)
        return exit_code(info)


def exit_code(info: RunInfo) -> int:
    """The target's exit code as a shell would give it."""
    code = info.exit_code or 0
    return 128 - code if code < 0 else code


def print_summary(run: Run) -> None:
    """What was recorded, what that says in short, and how to see more; on stderr: stdout is the target's."""
    from rich.console import Console
    from rich.text import Text

    from profiler.report.ended import ended
    from profiler.report.text import step_text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    info = run.info
    seconds = ((info.end or info.begin) - info.begin) / 1e9
    counts = {"steps": run.steps, "samples": run.samples, "stacks": run.stacks, "calls": run.calls}
    counted = ", ".join(f"{len(table):,} {name}" for name, table in counts.items() if len(table))
    head = f"\nrecorded {info.label}: {info.state}, {seconds:.1f} s at level {info.level}"
    console.print(Text.assemble((head, "bold"), f"; {counted}" if counted else ""))
    bad = ended(info)
    own = len(run.steps) > 0 and not (run.step and run.step.is_whole_run)
    if said := _of_steps(run, bad, own=own):
        console.print(Text(f"  {said}", style="yellow" if bad else ""))
    if bad and own:
        console.print(Text(f"  {step_text(run.step)}"))
    doubts = [*_unavailable(info), *run.problems]  # what failed is among the problems
    for doubt in doubts[:_MOST_DOUBTS]:
        console.print(Text(f"  {doubt}", style="yellow"))
    if len(doubts) > _MOST_DOUBTS:
        console.print(Text(f"  and {len(doubts) - _MOST_DOUBTS} more like this, in the report", style="yellow"))
    if len(run.steps) and (own or not bad):
        _print_answer(console, run)
    path = shlex.quote(_short(run.path))
    console.print(Text(f"  run directory: {_short(run.path)}"))
    for trace in sorted(run.path.glob("source-*/kineto.json.gz"))[:1]:
        console.print(Text(f"  torch's trace: {_short(trace)} (opens in ui.perfetto.dev)"))
    console.print(Text(f"  more: python -m profiler diagnose {path}\n        python -m profiler report {path}"))


def _of_steps(run: Run, bad: str, *, own: bool) -> str:
    """What a step is, or why there is none; of a program that ended badly how, which is then the reason."""
    from profiler.report.ended import without_torch
    from profiler.report.text import step_text

    if bad:
        return f"the program {bad}" + (": what follows is of the part before that" if own else "; no step was seen")
    if not own and without_torch(run.info):
        return "no step: the program did not import torch, and marks no steps" + _SHARES * bool(len(run.steps))
    return step_text(run.step) or ("" if run.problems else _NO_STEPS)


def _unavailable(info: RunInfo) -> list[str]:
    """What could not be recorded and might have been: not a GPU that the program did not ask for."""
    no_gpu = info.facts.get("device") != "cuda" and not info.devices
    missing = [status for status in info.collectors if status.state == "unavailable"]
    said = []
    for one in missing:
        no_python = one.code == "hooks-not-loaded" and "flag" not in one.values
        if no_python and not Path(info.argv[0]).match("*python*"):
            said.append("no Python was seen in it: only CPU, memory and GPU are recorded of such a program")
        elif not (one.name == "gpu" and no_gpu):
            said.append(f"{one.name}: {one.state}: {one.reason}")
    return said


def _print_answer(console: Console, run: Run) -> None:
    """The verdict and what stands behind it; a large run is left to the commands that follow."""
    from rich.text import Text

    records = len(run.regions) + len(run.calls) + len(run.stacks) + len(run.activities) + len(run.steps)
    if records > MOST_RECORDS:
        console.print(f"  not analysed here: {records:,} records, more than {MOST_RECORDS:,}")
        return
    try:
        from profiler.analyse.analysis import analyse
        from profiler.diagnose.run import diagnose_run
        from profiler.report.render.console import COLOURS
        from profiler.report.summary import summary
        from profiler.report.verdict_text import with_verdict

        unicode = (console.encoding or "").lower().startswith("utf")
        styles = {**COLOURS, "strong": "bold", "warning": "yellow", "": ""}
        analysis = analyse(run)
        for line in summary(with_verdict(analysis, diagnose_run(analysis)), unicode=unicode):
            console.print(Text.assemble(*((text, styles.get(tone, "")) for text, tone in line.pieces)))
    except Exception as error:  # noqa: BLE001 (the program has run, and its exit code counts)
        console.print(Text(f"  the analysis failed: {type(error).__name__}: {error}", style="yellow"))


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _period(text: str) -> float:
    value = _positive(text)
    if value < _SHORTEST_PERIOD_S:
        raise argparse.ArgumentTypeError(f"{text} s is too short: {_SHORTEST_PERIOD_S} s or more")
    return value


PLUGIN = RunCommand()
