"""`report`: writes the report of one recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler.commands._common import add_max_size, add_run, newest_run


class ReportCommand:
    """python -m profiler report [RUN] [--format html|md|json|text] [--out FILE]"""

    name = "report"
    help = "write the report of a recorded run"
    examples = ("report", "report reports/runs/train --format md --out report.md")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add_run(parser, "a recorded run, a .zip of it, or a folder of traces")
        add("--format", choices=("html", "md", "json", "text"), default="html", help="default: %(default)s")
        add(
            "--out",
            type=Path,
            metavar="FILE",
            help="default: report.html (.md, .json) in the run directory; of a trace or a .zip in the current folder",
        )
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
        # traces and archives may lie where nothing is to be written
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
