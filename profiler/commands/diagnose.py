"""`diagnose`: explains in the terminal why a recorded run was slow."""

from __future__ import annotations

import argparse

from profiler.commands._common import add_max_size, add_run, newest_run


class DiagnoseCommand:
    """Print the findings of a run, its ledger of time, its counts, or a prediction."""

    name = "diagnose"
    help = "explain in the terminal why a recorded run was slow"
    examples = (
        "diagnose reports/runs/train --ledger train.py:20",
        "diagnose reports/runs/train --what-if sync=0,input=0.5",
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add_run(parser, "a run, a .zip of it, or a folder of traces")
        changes = "predict the step with changes, such as sync=0,input=0.5 (docs/findings.md)"
        parser.add_argument("--what-if", metavar="CHANGES", help=changes)
        cells = "list all time of the run, or of one line"
        parser.add_argument("--ledger", metavar="FILE:LINE", nargs="?", const="", help=cells)
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
        add_max_size(parser)

    def run(self, args: argparse.Namespace) -> int:
        from profiler import analyse_run, load
        from profiler.analyse.timing.counts import run_counts
        from profiler.core.errors import Exit, ProfilerError
        from profiler.report.build import build_report
        from profiler.report.ledger_page import ledger_report
        from profiler.report.render.console import print_report
        from profiler.report.write import rendered

        if args.ledger is not None and (args.what_if is not None or args.format == "json"):
            raise ProfilerError(
                "--ledger prints a table: leave --what-if and --format json out (--format json alone has the cells)",
                Exit.USAGE,
            )
        if args.what_if is not None:
            return _what_if(args)
        run = load(args.directory or newest_run())
        if args.ledger is not None and not run.info.is_counted:
            print_report(ledger_report(analyse_run(run), args.ledger))
            return int(Exit.OK)
        results = run_counts(run) if run.info.is_counted else analyse_run(run)
        if args.format == "json":
            print(rendered(results, "json"), end="")
        else:
            print_report(build_report(results))
        return int(Exit.OK)


def _what_if(args: argparse.Namespace) -> int:
    import json
    import shlex

    from profiler import load
    from profiler.analyse.analysis import analyse
    from profiler.core.errors import Exit, ProfilerError
    from profiler.diagnose.predict import parse_cures, what_if
    from profiler.report.action_text import what_if_json, what_if_text
    from profiler.report.next_step import what_if_next_step

    cures = parse_cures(args.what_if)
    if not cures:
        raise ProfilerError("--what-if: write one or more changes, such as sync=0,input=0.5")
    run = args.directory or newest_run()
    prediction = what_if(analyse(load(run)), cures)
    if args.format == "json":
        step = what_if_next_step(cures, prediction, shlex.quote(str(run)))
        print(json.dumps(what_if_json(cures, prediction, step), indent=2, allow_nan=False))
    else:
        print(what_if_text(cures, prediction))
    return int(Exit.OK)


PLUGIN = DiagnoseCommand()
