"""`check`: gates a change by its counters and by its speed."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from profiler.commands._common import add_counting, add_max_size, add_privacy
from profiler.core.errors import ProfilerError

_EPILOG: Final = (
    "Exit code: 0 PASS, 1 FAIL, 2 the check was impossible (an option, a file, a program that crashed or takes no "
    "visible step), 3 INCONCLUSIVE; 130, 143 and 129 if Ctrl-C, SIGTERM or SIGHUP stopped it, after a report of the "
    "rounds so far. Options take precedence over [tool.profiler.check] in pyproject.toml."
)


class CheckCommand:
    """Compares counters with a file, on any machine, and the speed of two revisions, which run interleaved in one job.

    Speed is never compared with stored times.
    """

    name = "check"
    help = "gate a change in CI: compare counters with a committed baseline, and speed with another revision"
    examples = ("check --baseline counters.json --update -- python train.py", "check --against main -- python train.py")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.allow_abbrev = False  # an abbreviation that becomes ambiguous one day would break a job
        parser.error = partial(_refuse, parser)  # type: ignore[method-assign]
        parser.epilog = _EPILOG
        group = parser.add_argument_group("what to compare to")
        baseline = "counters, exactly, against this file; alone or with --against, where the worse of both counts. A "
        baseline += (
            "baseline named in pyproject.toml is also used with --against, but not with --before or with recorded runs"
        )
        group.add_argument("--baseline", type=Path, metavar="FILE", help=baseline)
        group.add_argument("--against", metavar="REV", help="compare speed and counters with this git revision")
        group.add_argument("--before", metavar="CMD", help="compare speed and counters with this command (in quotes)")
        group.add_argument("--after", metavar="CMD", help="the command to compare with --before")
        group.add_argument(
            "--no-baseline", action="store_true", help="--against without the file that pyproject.toml names"
        )
        add = parser.add_argument
        add_counting(parser)
        add("--update", action="store_true", help="write the current counters to the baseline instead of comparing")
        add("--reason", metavar="TEXT", help="why higher counters are accepted; stored in the file")
        add("--history", type=Path, metavar="FILE", help="append the result to this file; without a command: show it")
        add("--detect", metavar="SHARE", help="the slow-down that must be found (default: 5%%)")
        outcomes = ("fail", "pass")
        add(
            "--inconclusive", choices=outcomes, help="effect of an INCONCLUSIVE result on the exit code (default: fail)"
        )
        limit = "how far a counter may rise per step: syncs=1, h2d_bytes=1%%"
        add("--limit", action="append", metavar="NAME=AMOUNT", help=limit)
        add("--ignore", action="append", metavar="NAME", help="a counter that may rise")
        budget = "how much of a counter there may be: peak_bytes=2GB fails above it, growth_bytes=warn:0 warns"
        add("--budget", action="append", metavar="NAME=[warn:]AMOUNT", help=budget)
        add("--steps", type=int, metavar="N", help="counted steps of a process (default: the file's, or 20)")
        add("--warmup", type=int, metavar="N", help="warm-up steps before counting (default: 10)")
        add("--max-rounds", type=int, metavar="N", help="maximum number of rounds (default: 28)")
        add("--max-seconds", type=float, metavar="S", help="start no round that would end later than this")
        add("--patience", type=float, metavar="S", help="seconds to wait for a program's first step (default: 300)")
        add("--link", action="append", metavar="PATH", help="a file or folder outside git that REV needs too (data)")
        environment = "of REV: its own where its requirements differ, or this one"
        add("--environment", choices=("auto", "same"), help=environment)
        add("--no-explain", action="store_true", help="after a FAIL of speed, do not record where the time goes")
        add_privacy(parser, arguments=False)
        add_max_size(parser)
        add("--github", action="store_true", help="print annotations for GitHub (default in GitHub jobs)")
        out = "directory of the reports and runs (default: reports/runs/TIME-check)"
        add("--out", type=Path, metavar="DIR", help=out)
        words = "RUN_A RUN_B | -- CMD ARGS..."
        add("words", nargs=argparse.REMAINDER, metavar=words, help="recorded runs, or a command")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.check.modes import run_check
        from profiler.check.modes.finish import interrupt_code, report_error, stop_on_signals

        try:
            with stop_on_signals():
                return run_check(args)
        except KeyboardInterrupt as stop:
            return interrupt_code(stop)
        except BrokenPipeError:
            raise
        except (ProfilerError, OSError) as error:
            raise report_error(error) from error


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """One line, as for every error of `check`: the usage of all options would bury it."""
    from profiler.check.modes.finish import report_error
    from profiler.check.modes.options import similar_option

    hint = similar_option(message, parser.format_usage())
    raise report_error(ProfilerError(f"{message}{hint} (check --help names the options)"))


PLUGIN = CheckCommand()
