"""`check`: gates a change by its counters and by its speed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, NoReturn

from profiler.commands._common import add_counting
from profiler.core.errors import ProfilerError

_EPILOG: Final = (
    "Exit code: 0 PASS, 1 FAIL, 2 the check was impossible (an option, a file, a program that crashed or takes no "
    "visible step), 3 INCONCLUSIVE or NOT COMPARABLE; 130, 143 and 129 if Ctrl-C, SIGTERM or SIGHUP stopped it, "
    "after a report of the rounds so far."
)


class CheckCommand:
    """Compares counters with a file, on any machine, and the speed of two revisions, which run interleaved in one job.

    Speed is never compared with stored times.
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
        add(
            "--against",
            metavar="REV",
            help="compare with this git revision: speed, or with the next two options counters",
        )
        add_counting(parser)
        baseline = "compare counters, exactly, with this file; with --against the worse of both counts"
        add("--baseline", type=Path, metavar="FILE", help=baseline)
        update = "write the counters to the baseline; where more would pass than before, REASON is stored in it"
        add("--update", nargs="?", const="", metavar="REASON", help=update)
        add("--link", action="append", metavar="PATH", help="a file or folder outside git that REV needs too (data)")
        out = "directory of the reports and runs (default: reports/runs/TIME-check)"
        add("--out", type=Path, metavar="DIR", help=out)
        more = "another setting for this check, as in detect=3%%, max_seconds=600 or limits.syncs=1: the keys of "
        more += "[tool.profiler.check] in pyproject.toml, where a project keeps them (docs/baseline.md)"
        add("--set", action="append", metavar="KEY=VALUE", help=more)
        words = 'RUN_A RUN_B | "CMD_A" "CMD_B" | -- CMD ARGS...'
        add("words", nargs=argparse.REMAINDER, metavar=words, help="two recorded runs, two commands, or a command")

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
    """Raise one line, as for every error of `check`: the usage of all options would bury it."""
    from profiler.check.modes.finish import report_error

    raise report_error(ProfilerError(f"{message} (check --help names the options)"))


PLUGIN = CheckCommand()
