"""`check`: gate a change by its counters and by its speed."""

from __future__ import annotations

import argparse
import difflib
import re
from functools import partial
from pathlib import Path
from typing import NoReturn

from profiler.core.errors import ProfilerError

RUNS = Path("reports") / "runs"
_CODES = (
    "Exit code: 0 PASS, 1 FAIL, 2 the check could not be done (an option, a file, a program that crashed or takes no "
    "step that can be seen), 3 INCONCLUSIVE; 130, 143 and 129 where Ctrl-C, SIGTERM or SIGHUP stopped it, and then the "
    "rounds until then are reported. What [tool.profiler.check] in pyproject.toml says holds where no option does."
)

_UNKNOWN = "unrecognized arguments: "
"""The beginning of argparse's message on unknown options."""
_SIMILAR = 0.7
"""Ratio of equal letters (difflib) of two options, which both begin with --: --basline has 0.95, --bogus 0.47."""


class Check:
    """Counters against a file, on any machine; speed of two revisions, interleaved in one job, never stored times."""

    name = "check"
    help = "gate a change: counters against a checked-in baseline, speed against another revision; for CI"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.allow_abbrev = False  # a word that is short for two options some day breaks no job
        parser.error = partial(_refuse, parser)  # type: ignore[method-assign]
        parser.epilog = _CODES
        against = parser.add_argument_group("what to hold it against")
        against.add_argument(
            "--baseline",
            type=Path,
            metavar="FILE",
            help="counters, exactly, against this file; alone or beside --against, where the worse of both counts. One "
            "that pyproject.toml names holds there too, and is not used by --before and for recorded runs",
        )
        against.add_argument("--against", metavar="REV", help="speed and counters, against this git revision")
        against.add_argument("--before", metavar="CMD", help="speed and counters, against this command, in quotes")
        against.add_argument("--after", metavar="CMD", help="the command that --before goes with")
        against.add_argument(
            "--no-baseline", action="store_true", help="--against without the file that pyproject.toml names"
        )
        add = parser.add_argument
        add("--update", action="store_true", help="write what is counted now into the baseline, and gate nothing")
        add("--reason", metavar="TEXT", help="why an update lets more pass than before; it is kept in the file")
        add("--history", type=Path, metavar="FILE", help="append the result to this file; alone: show it")
        add("--detect", metavar="SHARE", help="a slow-down of this much is caught (default: 5%%)")
        add("--inconclusive", choices=("fail", "pass"), help="what nothing concluded does to the job (default: fail)")
        add(
            "--limit",
            action="append",
            metavar="NAME=AMOUNT",
            help="how far a counter may rise per step: syncs=1, h2d_bytes=1%%",
        )
        add("--ignore", action="append", metavar="NAME", help="a counter that gates nothing")
        add("--steps", type=int, metavar="N", help="counted steps of a process (default: the file's, or 20)")
        add("--warmup", type=int, metavar="N", help="steps before anything counts (default: 10)")
        add("--max-rounds", type=int, metavar="N", help="rounds of base and candidate at most (default: 28)")
        add("--max-seconds", type=float, metavar="S", help="begin no round that would end later than this")
        add("--patience", type=float, metavar="S", help="for a program's first step (default: 300)")
        add("--link", action="append", metavar="PATH", help="a file or folder outside git that REV needs too: data")
        add(
            "--environment",
            choices=("auto", "same"),
            help="of REV: its own where its requirements differ, or this one",
        )
        add("--no-explain", action="store_true", help="after a FAIL of speed, do not record where the time goes")
        add("--github", action="store_true", help="print annotations for GitHub (in its jobs: by itself)")
        add("--out", type=Path, metavar="DIR", help=f"directory of the reports and runs (default: {RUNS}/TIME-check)")
        add(
            "words",
            nargs=argparse.REMAINDER,
            metavar="RUN_A RUN_B | -- CMD ARGS...",
            help="recorded runs, or a command",
        )

    def run(self, args: argparse.Namespace) -> int:
        from profiler.check.modes.finish import interrupt_code, report_error, stop_on_signals

        try:
            with stop_on_signals():
                return _check(args)
        except KeyboardInterrupt as stop:
            return interrupt_code(stop)
        except BrokenPipeError:
            raise
        except (ProfilerError, OSError) as error:
            raise report_error(error) from error


def _check(args: argparse.Namespace) -> int:
    from profiler.check.modes.options import Mode, check_early, choose_mode, split_words

    runs, command = split_words(args)
    mode = choose_mode(args, runs, command)
    if mode is Mode.HISTORY:
        from profiler.check.modes.recorded import show_history

        return show_history(args.history)
    from profiler.check.modes import counters, interleaved, recorded
    from profiler.check.settings import settings_from

    settings = settings_from(args, uses_baseline=mode not in (Mode.COMMANDS, Mode.RUNS))
    check_early(settings)
    if mode is Mode.RUNS:
        return recorded.check_runs(runs, settings)
    if mode is Mode.COMMANDS:
        return interleaved.check_commands(args.before, args.after, settings)
    if mode is Mode.AGAINST:
        return interleaved.check_against(command, settings, args.against)
    return counters.check_command(command, settings)


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """One line, as for every error of `check`: the usage of all options would bury it."""
    from profiler.check.modes.finish import report_error

    similar: list[str] = []
    options = re.findall(r"--[a-z-]+", parser.format_usage())
    if message.startswith(_UNKNOWN):  # argparse has no exception of its own for these
        for word in message.removeprefix(_UNKNOWN).split():
            if word.startswith("--"):
                similar = similar or difflib.get_close_matches(word.partition("=")[0], options, 1, _SIMILAR)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise report_error(ProfilerError(f"{message}{hint} (check --help names the options)"))


PLUGIN = Check()
