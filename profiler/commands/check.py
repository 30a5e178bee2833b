"""`check`: whether a change may go in, by what it counts and by how long it takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler.base.errors import ProfilerError

RUNS = Path("reports") / "runs"


class Check:
    """Counters against a file, on any machine; times of two revisions by turns, in one job. Never a stored time."""

    name = "check"
    help = "gate a change: counters against a checked-in baseline, speed against another revision; for CI"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        against = parser.add_argument_group("what to hold it against, one or two of these")
        against.add_argument("--baseline", type=Path, metavar="FILE", help="counters, exactly, against this file")
        against.add_argument("--against", metavar="REV", help="speed and counters, against this git revision")
        against.add_argument("--before", metavar="CMD", help="speed and counters, against this command, in quotes")
        against.add_argument("--after", metavar="CMD", help="the command that --before goes with")
        add("--update", action="store_true", help="write what is counted now into the baseline, and gate nothing")
        add("--reason", metavar="TEXT", help="why an update lets more pass than before; it is kept in the file")
        add("--history", type=Path, metavar="FILE", help="append the result to this file; alone: show it")
        add("--detect", metavar="SHARE", help="a slow-down of this much is caught (default: 5%%)")
        add("--inconclusive", choices=("fail", "pass"), help="what nothing concluded does to the job (default: fail)")
        add(
            "--limit", action="append", metavar="NAME=AMOUNT", help="how far a counter may rise: syncs=1, h2d_bytes=1%%"
        )
        add("--ignore", action="append", metavar="NAME", help="a counter that gates nothing")
        add("--steps", type=int, metavar="N", help="counted steps of a process (default: 20)")
        add("--warmup", type=int, metavar="N", help="steps before anything counts (default: 10)")
        add("--max-rounds", type=int, metavar="N", help="rounds of base and candidate at most (default: 20)")
        add("--max-seconds", type=float, metavar="S", help="begin no round that would end later than this")
        add("--patience", type=float, metavar="S", help="for a program's first step (default: 300)")
        add("--link", action="append", metavar="PATH", help="a file or folder outside git that REV needs too: data")
        add(
            "--environment", choices=("auto", "same"), help="of REV: its own where its requirements differ, or this one"
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
        from profiler.commands._checking import check_command, check_commands, check_runs, show_history
        from profiler.commands._gate_settings import settings_of

        runs, command = _split(args)
        _refuse(args, runs, command)
        settings = settings_of(args)
        if runs:
            return check_runs(runs, settings)
        if args.before is not None:
            return check_commands(args.before, args.after, settings)
        if command:
            return check_command(command, settings, against=args.against)
        return show_history(args.history)


def _split(args: argparse.Namespace) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Recorded runs before `--`, a command behind it; options that follow the runs are read as if they came first."""
    words: list[str] = args.words
    at = words.index("--") if "--" in words else len(words)
    before, command = words[:at], tuple(words[at + 1 :])
    runs = next((number for number, word in enumerate(before) if word.startswith("-")), len(before))
    if runs < len(before):
        args.parser.parse_args(before[runs:], namespace=args)
        if args.words:
            args.parser.error(f"what is {args.words[0]}? Runs come first, a command after --")
    return tuple(map(Path, before[:runs])), command


def _refuse(args: argparse.Namespace, runs: tuple[Path, ...], command: tuple[str, ...]) -> None:
    """:raises ProfilerError: what was asked for does not go together."""
    if (args.before is None) != (args.after is None):
        raise ProfilerError("--before and --after go together")
    kinds = [bool(runs), bool(command), args.before is not None]
    if sum(kinds) > 1:
        raise ProfilerError("give one of: two runs, a command after --, or --before and --after")
    if runs and len(runs) != 2:
        given = " ".join(map(str, runs))
        raise ProfilerError(f"two runs are held against each other, not {len(runs)} ({given}); a command goes after --")
    if not any(kinds) and (args.history is None or args.against or args.baseline or args.update):
        raise ProfilerError(
            "nothing to check: give a command after --, as in: check --against main -- python train.py (or two runs, "
            "or --before and --after; --history FILE alone shows what was checked before)"
        )
    if args.against is not None and not command:
        raise ProfilerError("--against needs the command to run, after --")
    if args.update and not command:
        raise ProfilerError("--update needs the command to count, after --")
    if args.update and args.against is not None:
        raise ProfilerError("--update writes a baseline and gates nothing: leave --against out")
    if args.reason is not None and not args.update:
        raise ProfilerError("--reason goes with --update")


PLUGIN = Check()
