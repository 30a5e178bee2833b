"""`run`: records a program. Hooks detect its steps, or the program marks them (`profiler.marks`)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from profiler.commands._common import RUNS, add_card, add_counting, add_privacy, no_virtual_device, privacy, seconds
from profiler.core.errors import Exit, ProfilerError
from profiler.core.facts import with_python
from profiler.core.machine import virtual_devices
from profiler.run.tables import LEVELS

_MIN_PERIOD_S: Final = 0.01
"""The kernel counts CPU time in units of 10 ms, so samples at shorter periods would repeat values."""


class RunCommand:
    """Record a program, and print the first screen of its report."""

    name = "run"
    help = "record a training program"
    examples = ("run -- python train.py", "run --level light -- torchrun --nproc-per-node 2 train.py")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--out", type=Path, metavar="DIR", help=f"the run directory (default: a new one in {RUNS})")
        levels = "how much to record (docs/recording.md; default: %(default)s)"
        add("--level", choices=LEVELS, default="standard", help=levels)
        add("--label", default="", help="name of this run in reports (default: the program's)")
        period = "seconds between samples of CPU and memory (default: 0.1)"
        add("--sample-period", type=seconds(_MIN_PERIOD_S), default=0.1, metavar="S", help=period)
        add("--timeout", type=seconds(), metavar="S", help="stop the program after this many seconds")
        add_counting(parser)
        add_card(parser)
        marks = "install no hooks; record only the program's own marks (profiler.marks)"
        add("--marks-only", action="store_true", help=marks)
        add_privacy(parser)
        add("command", nargs=argparse.REMAINDER, metavar="-- CMD ARGS...", help="the command to record")

    def run(self, args: argparse.Namespace) -> int:
        """Return the program's exit code, or end by the signal that ended the program."""
        from profiler import analyse_run, load
        from profiler.record.launch import record
        from profiler.record.target import end_by, find_program, signals_as_interrupt
        from profiler.report.write import print_summary
        from profiler.run.model import RunSpec
        from profiler.run.store import default_directory

        argv = with_python(args.command[1:] if args.command[:1] == ["--"] else args.command)
        executable = find_program(argv)
        devices = virtual_devices(args.virtual_cuda, args.card)
        if devices and args.marks_only:
            raise ProfilerError("--virtual-cuda needs the hooks that --marks-only leaves out")
        if args.count and (args.marks_only or args.level == "light"):
            raise ProfilerError("--count needs the hooks and lines that --marks-only and --level light leave out")
        is_counted = bool(args.count or devices)
        spec = RunSpec(
            argv=argv,
            out=args.out or default_directory(argv, RUNS),
            level=args.level,
            label=args.label,
            sample_period=args.sample_period,
            timeout=args.timeout,
            hooks=not args.marks_only,
            collectors=() if is_counted else None,  # they measure times, which say nothing here
            virtual_cuda=devices,
            count=is_counted,
            privacy=privacy(args),
        )
        code = record(spec, executable=executable).exit_code or 0
        try:
            with signals_as_interrupt():
                run = load(spec.out)
                if spec.virtual_cuda and (reason := no_virtual_device(run.info)):
                    print(f"profiler: the program {reason}", file=sys.stderr)
                    code = code or Exit.USAGE
                elif run.info.is_counted:
                    from profiler.analyse.timing.counts import run_counts
                    from profiler.report.build import build_report
                    from profiler.report.render.console import print_report

                    print_report(build_report(run_counts(run)))
                else:
                    print_summary(run, analyse_run)
        except ProfilerError as error:  # the run was removed meanwhile, for example: the program's exit code counts
            print(f"profiler: {error}", file=sys.stderr)
        except (OSError, KeyboardInterrupt):  # the terminal has been closed, or a second Ctrl-C ends the summary
            pass
        return end_by(-code) if code < 0 else code


PLUGIN = RunCommand()
