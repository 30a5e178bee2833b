"""`report`: writes the report of one recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler.commands._common import add_max_size, add_run, newest_run


class ReportCommand:
    """Write the report of a run to a file and print its path, or print it as text."""

    name = "report"
    help = "write the report of a recorded run"
    examples = ("report", "report reports/runs/train --format md --out report.md")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add_run(parser, "a run, a .zip of it, or a folder of traces")
        formats = ("html", "md", "json", "text")
        add("--format", choices=formats, default="html", help="format of the report (default: %(default)s)")
        out = "the file (default: in the run directory, else in the current folder)"
        add("--out", type=Path, metavar="FILE", help=out)
        add_max_size(parser)

    def run(self, args: argparse.Namespace) -> int:
        from profiler import analyse_run, load
        from profiler.analyse.timing.counts import run_counts
        from profiler.core.errors import Exit, ProfilerError
        from profiler.report.build import build_report
        from profiler.report.render.console import print_report
        from profiler.report.write import rendered, write_text
        from profiler.run.tables import MANIFEST

        if args.format == "text" and args.out:
            raise ProfilerError("--out: --format text writes to the terminal; choose html, md or json")
        directory: Path = args.directory or newest_run()
        run = load(directory)
        counted = run.info.is_counted
        results = run_counts(run) if counted else analyse_run(run, timeline=args.format == "html")
        if args.format == "text":
            print_report(build_report(results), full=True)
            return int(Exit.OK)
        # the folder of a trace or an archive may be read-only
        directory = directory.parent if directory.name == MANIFEST else directory
        is_run = (directory / MANIFEST).is_file()
        name = "report" if is_run else directory.resolve().name.removesuffix(".gz").removesuffix(".json")
        where = directory if is_run else Path()
        ending = f"report.{args.format}" if not is_run and args.format == "json" else args.format  # no name of a trace
        out = args.out or where / f"{name.removesuffix('.zip')}.{ending}"
        write_text(out, rendered(results, args.format))
        print(out)
        return int(Exit.OK)


PLUGIN = ReportCommand()
