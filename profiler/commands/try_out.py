"""`try`: measures the gain of findings by running the program without their cause."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from profiler.commands._common import RUNS, add_max_size, add_minutes, newest_run, progress_text
from profiler.core.errors import Exit, ProfilerError
from profiler.core.facts import program_name, with_python
from profiler.core.masking import shown_command
from profiler.core.terminal import called_as

if TYPE_CHECKING:
    from profiler.check.model import Round
    from profiler.knockout.trial import Session
    from profiler.run.trials import Trial

_EPILOG: Final = (
    "Exit code: 0 a gain was measured, 2 bad input, or no terminal and no --yes, 3 nothing could be tried (the reason "
    "is printed), 4 the program failed while it was recorded, 130 Ctrl-C. No file outside of the run directory changes."
)


class TryCommand:
    """Run a program in isolation with and without the cause of each finding, and print the measured gains."""

    name = "try"
    help = "measure the gain of findings: run the program in isolation with and without their cause"
    examples = ("try reports/runs/train", "try --yes -- python train.py")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        add = parser.add_argument
        add("--yes", action="store_true", help="do not ask before the program runs")
        add("--findings", type=_count, default=3, metavar="N", help="findings to try, the largest first (default: 3)")
        add_minutes(parser, "the most for all findings")
        add("--json", action="store_true", help="print the result as JSON")
        add_max_size(parser)
        words = "RUN [-- CMD ARGS...] | -- CMD ARGS..."
        add(
            "words",
            nargs=argparse.REMAINDER,
            metavar=words,
            help=f"a recorded run (default: the newest in {RUNS}), or a command to record first",
        )

    def run(self, args: argparse.Namespace) -> int:
        from profiler import read
        from profiler.knockout.trial import check_isolation, prepare
        from profiler.report.action_text import measured_text, trials_json
        from profiler.report.model import ReportInput
        from profiler.report.next_step import results_next_step
        from profiler.report.text import relative_path

        end = args.words.index("--") if "--" in args.words else len(args.words)
        words, command = args.words[:end], with_python(args.words[end + 1 :])
        lacks_command = end < len(args.words) and not command
        if words[1:]:  # options behind the run
            args = args.parser.parse_args([*words[1:], words[0]], namespace=args)
            words = args.words
        if len(words) > 1 or lacks_command:
            raise ProfilerError("name a run directory, or write a command after --, as in: try -- python train.py")
        if not (args.yes or sys.stdin.isatty()):
            raise ProfilerError("try runs the program again: without a terminal it needs --yes")
        check_isolation()
        if words:
            run = Path(words[0])
        else:
            run = _record(command, 60 * args.minutes) if command else newest_run()
        session = prepare(run, read(run), command=command or None, findings=args.findings, seconds=60 * args.minutes)
        say = sys.stderr if args.json else sys.stdout
        _describe(session, say)
        if not session.plans:
            raise ProfilerError(f"no finding of {run} can be tried", Exit.NOT_COMPARABLE)
        if not args.yes and not _agreed():
            return int(Exit.OK)
        trials = []
        for trial in _measured(session):
            trials.append(trial)
            print(f"{trial.rule}: {measured_text(trial)}", file=say, flush=True)
        if args.json:
            print(trials_json(trials, results_next_step(ReportInput.from_results(read(run)))))
        elif any(trial.factor for trial in trials):
            print(f"more: {called_as()} diagnose {shlex.quote(relative_path(run))}", file=say)
        return int(Exit.OK if any(trial.factor for trial in trials) else Exit.NOT_COMPARABLE)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of findings from 1")
    return int(text)


def _record(command: tuple[str, ...], seconds: float) -> Path:
    """Record the first part of a program, for a tenth of the time."""
    from profiler.check.modes.sides import record_explanation
    from profiler.check.speed.controlled_process import Program
    from profiler.run.store import default_directory, read_manifest

    out = default_directory(command, RUNS)
    record_explanation(Program(program_name(command), command, Path.cwd()), out, seconds=seconds / 10)
    if code := read_manifest(out).exit_code:
        raise ProfilerError(
            f"the program exited with {code} while it was recorded (its output is in {out})", Exit.TARGET_FAILED
        )
    return out


def _describe(session: Session, out: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    from profiler.analyse.model.finding import KnockOut
    from profiler.core.terminal import print_line
    from profiler.report.action_text import change_text, duration_text, not_tried_text
    from profiler.report.finding_text import finding_sentence

    console = Console(file=out, highlight=False, soft_wrap=True)

    def show(text: str) -> None:
        print_line(console, Text(text))

    for finding, reason in session.not_tried:
        if reason.code == "wait-for-core":  # nothing of the program is its cause
            continue
        show(not_tried_text(finding.rule.name, reason))
    instead = [(f"  If {rule} gains nothing, ", plan) for rule, plan in session.alternatives.items()]
    for condition, plan in (*(("  ", plan) for plan in session.plans), *instead):
        is_thread = plan.finding.rule.knock_out is KnockOut.THREAD
        text = change_text(plan.lines, plan.settings, is_thread=is_thread)
        start = f"{condition}the" if condition.strip() else "  The"
        show(f"{plan.finding.rule.name}: {finding_sentence(plan.finding)}")
        show(f"{start} trial {text}")
    if session.plans:
        # a command to copy stays whole
        console.print(Text(f"The program runs in {session.program.cwd}: {shown_command(session.program.argv)}"))
        text = duration_text(len(session.plans) + len(session.alternatives), session.seconds)
        show(f"{text}. Two copies of the program run in turn, without network; all files stay as they are.")


def _measured(session: Session) -> Iterator[Trial]:
    """Yield the trials, and show the running round on standard error."""
    from rich.console import Console

    from profiler.core.terminal import progress

    def on_round(rule: str, rounds: Sequence[Round]) -> None:
        show(f"{rule}: {progress_text(rounds)}")

    trials = session.trials(on_round)
    while True:
        with progress(Console(stderr=True)) as show:
            trial = next(trials, None)
        if trial is None:
            return
        yield trial


def _agreed() -> bool:
    print("Run it? [y/N] ", end="", file=sys.stderr, flush=True)  # standard output may be JSON
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


PLUGIN = TryCommand()
