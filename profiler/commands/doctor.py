"""`doctor`: shows what can be measured on this machine, and how to enable the rest."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from typing import Final

from profiler.commands._common import RUNS
from profiler.core import machine
from profiler.core.errors import Exit, ProfilerError

_NOTE: Final = (
    "Exit code 0: recording works at level standard. 1: a requirement (in bold) is missing. "
    "Everything else only limits what a run can show."
)


class DoctorCommand:
    """Print what this machine allows to measure. Return 1 if a requirement of level standard is missing."""

    name = "doctor"
    help = "show what can be measured on this machine, and how to enable the rest"
    examples = ("doctor", "doctor --json")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--python", default=sys.executable, metavar="EXE", help="the Python that trains (default: this one)")
        add("--json", action="store_true", help="print the results as JSON (docs/json.md)")
        parser.epilog = _NOTE

    def run(self, args: argparse.Namespace) -> int:
        if absent := machine.missing_packages():
            return _report_missing(machine.install_hint(absent), as_json=args.json)
        from rich.console import Console

        from profiler.record.checks import all_checks
        from profiler.record.doctor import Setup, examine
        from profiler.report.render.doctor import doctor_json, doctor_lines, doctor_view
        from profiler.report.render.drawing import is_unicode

        python = shutil.which(args.python)
        if python is None:
            raise ProfilerError(f"--python {args.python}: there is no such program")
        rows = examine(Setup(python, RUNS), all_checks())
        if args.json:
            print(json.dumps(doctor_json(rows), indent=1))
        else:
            console = Console(highlight=False)
            unicode = is_unicode(console)
            if console.is_terminal or "COLUMNS" in os.environ:
                console.print(doctor_view(rows, width=console.width, unicode=unicode))
            else:  # paths and commands stay in one piece for tools that search the output
                console.print(*doctor_lines(rows, unicode=unicode), sep="\n", soft_wrap=True)
        return int(Exit.FAIL if any(row.lacking for row in rows) else Exit.OK)


def _report_missing(why: str, *, as_json: bool) -> int:
    """Report missing packages of the profiler, without which no check can run."""
    if as_json:
        row = {"name": "packages", "title": "own packages", "needed": True, "state": "no", "why": why, "do": None}
        print(json.dumps({"schema": "doctor/1", "standard": False, "conclusion": why, "checks": [row]}, indent=1))
    else:
        print(f"own packages  no  {why}\n\nRecording does not work. Install them first: all other checks need them.")
    return int(Exit.FAIL)


PLUGIN = DoctorCommand()
