"""`diagnose`: explains in the terminal why a recorded run was slow: where its time went, what left the device idle."""

from __future__ import annotations

import argparse
from pathlib import Path


class DiagnoseCommand:
    """python -m profiler diagnose RUN"""

    name = "diagnose"
    help = "explain in the terminal why a recorded run was slow"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        what = "a recorded run, a .zip of it, or a folder of traces"
        parser.add_argument("directory", type=Path, metavar="RUN", help=what)

    def run(self, args: argparse.Namespace) -> int:
        from profiler import read
        from profiler.core.errors import Exit
        from profiler.report.build import build_report
        from profiler.report.render.console import print_report

        print_report(build_report(read(args.directory)))
        return int(Exit.OK)


PLUGIN = DiagnoseCommand()
