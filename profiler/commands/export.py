"""`export`: writes a recorded run as a trace for Perfetto, or as stacks for speedscope or flamegraph.pl."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.commands._common import add_max_size, add_run, newest_run
from profiler.core.errors import Exit, ProfilerError

if TYPE_CHECKING:
    from profiler.run.model import Run

FILES = {"perfetto": "trace.json.gz", "speedscope": "speedscope.json", "collapsed": "collapsed.txt"}
"""Format -> default name of the file."""


class ExportCommand:
    """Write a run in a format of another tool, and print the path of the file."""

    name = "export"
    help = "write a recorded run as a trace for Perfetto, or as stacks for speedscope or flamegraph.pl"
    examples = ("export", "export reports/runs/train --format speedscope")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add_run(parser, "a run, or a .zip of it")
        add("--format", choices=tuple(FILES), default="perfetto", help="format of the file (default: %(default)s)")
        names = ", ".join(FILES.values())
        add("--out", metavar="FILE", help=f"- is standard output; .gz compresses (default: in the run, {names})")
        add("--pid", type=int, nargs="+", metavar="N", help="export only these processes")
        add("--thread", type=int, nargs="+", metavar="N", help="export only these threads")
        add("--threads", action="store_true", help="begin each collapsed stack with its process and thread")
        add_max_size(parser)

    def run(self, args: argparse.Namespace) -> int:
        from profiler.report.write import write_chunks
        from profiler.run import tables
        from profiler.run.filter import filter_run
        from profiler.run.load import load

        if args.threads and args.format != "collapsed":
            raise ProfilerError(f"--threads: format {args.format} already separates threads")
        path: Path = args.directory or newest_run()
        directory = path.parent if path.name == tables.MANIFEST else path
        run = load(directory)
        if args.format == "perfetto":
            chunks = _timeline(run, directory, args)
        else:
            chunks = _stacks(filter_run(run, pids=args.pid, tids=args.thread), args.format, args.threads)
        if args.out == "-":
            sys.stdout.writelines(chunks)
            return int(Exit.OK)
        file = FILES[args.format]
        default = directory / file if directory.is_dir() else directory.with_suffix(f".{file}")
        out = Path(args.out) if args.out else default
        write_chunks(out, chunks)
        print(out)
        return int(Exit.OK)


def _timeline(run: Run, directory: Path, args: argparse.Namespace) -> Iterator[str]:
    """Return the timeline, with the operators of torch's trace if there is one. Print what is left out."""
    from profiler.core import units
    from profiler.report.export import perfetto
    from profiler.run.filter import filter_run, filter_trace
    from profiler.run.ingest.kineto import read_traced
    from profiler.run.tables import pid_of

    traced = read_traced(directory)
    run = filter_run(run, pids=args.pid, tids=args.thread, traced=traced)
    if traced is None:
        return perfetto.render(run)
    traced = filter_trace(traced, pids=args.pid, tids=args.thread)
    run, traced, left_out = perfetto.limit_trace(run, traced, perfetto.MAX_SLICES)
    if len(traced.operators):
        begin, end = int(traced.operators["begin"].min()), int(traced.operators["end"].max())
        span = " to ".join(units.seconds((when - run.info.begin) / 1e9) for when in (begin, end))
        print(f"torch operators: from {span} of the timeline", file=sys.stderr)
    for part in left_out:
        print(f"left out: {part.describe()}", file=sys.stderr)
    if left_out:
        files = [name for name in traced.files if args.pid is None or pid_of(name.partition("/")[0]) in args.pid]
        print(f"the whole trace: {', '.join(f'{directory}/{name}' for name in files)}", file=sys.stderr)
    return perfetto.render(run, traced, left_out)


def _stacks(run: Run, form: str, threads: bool) -> Iterator[str]:
    from profiler.report.export.stacks import collapsed, speedscope

    return collapsed(run, threads=threads) if form == "collapsed" else speedscope(run)


PLUGIN = ExportCommand()
