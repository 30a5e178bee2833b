"""`check`: gates a change by its counters and by its speed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, NoReturn

from profiler.commands._common import add_counting
from profiler.core.errors import ProfilerError

_EPILOG: Final = (
    "Exit code: 0 PASS, 1 FAIL, 2 the check was impossible (a wrong option or file, a program that crashed, no step), "
    "3 INCONCLUSIVE or NOT COMPARABLE. Ctrl-C, SIGTERM and SIGHUP stop it with 130, 143 and 129, after a report of the "
    "rounds so far. docs/baseline.md lists all settings of [tool.profiler.check]."
)


class CheckCommand:
    """Compare the counters of a program with a file, or the speed of two revisions that run interleaved in one job.

    Speed is never compared with stored times, because times vary between machines and hours.
    """

    name = "check"
    help = "gate a change in CI: compare counters with a committed baseline, and speed with another revision"
    examples = (
        "check --against main --virtual-cuda -- python train.py --device cuda",
        "check --baseline counters.json --update -- python train.py",
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.allow_abbrev = False  # an abbreviation that becomes ambiguous one day would break a job
        parser.refuse = _refuse  # type: ignore[attr-defined]
        parser.epilog = _EPILOG
        add = parser.add_argument
        add("--against", metavar="REV", help="compare speed, or counts, with this git revision")
        add_counting(parser)
        baseline = "compare counters exactly with this file"
        add("--baseline", type=Path, metavar="FILE", help=baseline)
        update = "write the counters to the baseline; REASON allows an increase"
        add("--update", nargs="?", const="", metavar="REASON", help=update)
        add("--link", action="append", metavar="PATH", help="link a path outside git into REV, such as data")
        out = "directory of the reports and runs (default: reports/runs/TIME-check)"
        add("--out", type=Path, metavar="DIR", help=out)
        more = "override a setting of [tool.profiler.check], as in detect=3%%"
        add("--set", action="append", metavar="KEY=VALUE", help=more)
        words = 'RUN_A RUN_B | "CMD_A" "CMD_B" | -- CMD ARGS...'
        add("words", nargs=argparse.REMAINDER, metavar=words, help="two recorded runs, two commands, or one command")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.check.modes.finish import interrupt_code, report_error, stop_on_signals
        from profiler.check.modes.run import run_check

        try:
            with stop_on_signals():
                return run_check(args)
        except KeyboardInterrupt as stop:
            return interrupt_code(stop)
        except BrokenPipeError:
            raise
        except (ProfilerError, OSError) as error:
            raise report_error(error) from error


def _refuse(message: str) -> NoReturn:
    """Raise a wrong option as one line, because the usage of all options would bury it."""
    from profiler.check.modes.finish import report_error

    raise report_error(ProfilerError(f"{message} (check --help names the options)"))


PLUGIN = CheckCommand()
