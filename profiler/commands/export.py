"""`export`: a recorded run as a trace for Perfetto, or as stacks for speedscope or flamegraph.pl."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.base.errors import Exit, ProfilerError

if TYPE_CHECKING:
    from profiler.run.model import Run

FILES = {"perfetto": "trace.json.gz", "speedscope": "speedscope.json", "collapsed": "collapsed.txt"}
"""Format: the file that is written where no --out is given."""


class ExportCommand:
    """python -m profiler export RUN [--format perfetto|speedscope|collapsed] [--out FILE]"""

    name = "export"
    help = "write a recorded run as a trace for Perfetto, or as stacks for speedscope or flamegraph.pl"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("directory", type=Path, metavar="RUN", help="directory of a recorded run, or a .zip of it")
        add("--format", choices=tuple(FILES), default="perfetto", help="default: %(default)s")
        names = ", ".join(FILES.values())
        add("--out", metavar="FILE", help=f"- is standard output; .gz compresses (default: in the run, {names})")
        add("--pid", type=int, nargs="+", metavar="N", help="only these processes")
        add("--thread", type=int, nargs="+", metavar="N", help="only these threads")
        add("--threads", action="store_true", help="collapsed: process and thread stand before each stack")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.report.write import write_chunks
        from profiler.run.load import load
        from profiler.run.part import of

        if args.threads and args.format != "collapsed":
            raise ProfilerError(f"--threads: format {args.format} has its threads apart as it is")
        run = of(load(args.directory), pids=args.pid, tids=args.thread)
        chunks = _chunks(run, args.format, args.threads)
        if args.out == "-":
            sys.stdout.writelines(chunks)
            return int(Exit.OK)
        directory: Path = args.directory
        beside = directory.parent if directory.name == "run.json" else directory
        default = beside / FILES[args.format] if beside.is_dir() else beside.with_suffix(f".{FILES[args.format]}")
        out = Path(args.out) if args.out else default
        write_chunks(out, chunks)
        print(out)
        return int(Exit.OK)


def _chunks(run: Run, form: str, threads: bool) -> Iterator[str]:
    from profiler.report.render import collapsed, perfetto, speedscope

    if form == "collapsed":
        return collapsed.render(run, threads=threads)
    return perfetto.render(run) if form == "perfetto" else speedscope.render(run)


PLUGIN = ExportCommand()
