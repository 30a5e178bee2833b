"""`report`: writes the report of one recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler.commands._common import add_max_size, add_run, newest_run


class ReportCommand:
    """python -m profiler report [RUN] [--format html|md|json|console] [--out FILE]"""

    name = "report"
    help = "write the report of a recorded run"
    examples = ("report", "report reports/runs/train --format md --out report.md")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add_run(parser, "a recorded run, a .zip of it, or a folder of traces")
        add("--format", choices=("html", "md", "json", "console"), default="html", help="default: %(default)s")
        add(
            "--out",
            type=Path,
            metavar="FILE",
            help="default: report.html (.md, .json) in the run directory, or beside a .zip",
        )
        add_max_size(parser)

    def run(self, args: argparse.Namespace) -> int:
        from profiler import analyse_run, load
        from profiler.core.errors import Exit, ProfilerError
        from profiler.report.build import build_report
        from profiler.report.write import counts_rendered, rendered, write_text

        if args.format == "console" and args.out:
            raise ProfilerError("--out: --format console writes to the terminal; choose html, md or json")
        directory: Path = args.directory or newest_run()
        run = load(directory)
        if run.info.is_counted:
            from profiler.analyse.timing.counters import run_counts

            text = counts_rendered(run_counts(run), args.format)
        else:
            analysis = analyse_run(run, timeline=args.format == "html")
            if args.format == "console":
                from profiler.report.render.console import print_report

                print_report(build_report(analysis), full=True)
                return int(Exit.OK)
            text = rendered(analysis, args.format)
        if args.format == "console":
            print(text)
            return int(Exit.OK)
        where = directory / "report" if directory.is_dir() else directory  # a .zip: beside it
        out = args.out or where.with_suffix(f".{args.format}")
        write_text(out, text)
        print(out)
        return int(Exit.OK)


PLUGIN = ReportCommand()
