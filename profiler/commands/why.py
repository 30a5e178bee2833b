"""`why`: says after some seconds of training why a program is slow, and lets it run on."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.commands._common import RUNS, add_privacy, privacy, seconds
from profiler.core.errors import ProfilerError
from profiler.core.facts import with_python

if TYPE_CHECKING:
    from profiler.analyse.model.analysis import Analysis
    from profiler.run.model import RunInfo

_MIN_S: Final = 1.0
_LOOK_S: Final = 4.0
"""Seconds from the first step to the first analysis, and between two analyses. A choice: from the first step on, there
are 20 to 70 stack samples a second."""
_TELL_S: Final = 10.0
"""Seconds between two lines of progress."""


class WhyCommand:
    """Start a program, record it until the cause is certain, print the answer, and let the program run on."""

    name = "why"
    help = "say after some seconds of training why a program is slow, and let it run on"
    examples = ("why train.py", "why -- torchrun --nproc-per-node 2 train.py")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        most = "time limit after the first step (default: 60; for a PID at most 10)"
        add("--seconds", type=seconds(_MIN_S), default=60.0, metavar="S", help=most)
        add("--brief", action="store_true", help="answer in one line, such as for an e-mail")
        add("--stop", action="store_true", help="stop the program after the answer")
        add("--out", type=Path, metavar="DIR", help=f"the run directory (default: a new one in {RUNS})")
        add_privacy(parser)
        words = "PID | -- CMD ARGS..."
        add("command", nargs=argparse.REMAINDER, metavar=words, help="a running process, or a program to start")

    def run(self, args: argparse.Namespace) -> int:
        """Return the program's exit code, or end by the signal that ended the program."""
        from profiler.record.launch import record
        from profiler.record.target import end_by, find_program
        from profiler.run.model import RunSpec
        from profiler.run.store import default_directory

        if len(args.command) == 1 and args.command[0].isdecimal():
            return _of_process(args)
        argv = with_python(args.command[1:] if args.command[:1] == ["--"] else args.command)
        executable = find_program(argv)
        spec = RunSpec(
            argv, (args.out or default_directory(argv, RUNS)).absolute(), level="standard", privacy=privacy(args)
        )
        window = _Window(spec.out, args.seconds)
        answered = False

        def answer(_: RunInfo) -> None:
            nonlocal answered
            answered = True
            _print(spec.out, window, brief=args.brief, goes_on=True)

        info = record(spec, executable=executable, enough=window.is_enough, answer=None if args.stop else answer)
        if not answered:  # the program has ended, or was stopped
            _print(spec.out, window, brief=args.brief, goes_on=False, is_over=not window.is_done)
        code = info.exit_code or 0
        return end_by(-code) if code < 0 else code


class _Window:
    """Analyses a run during its recording, until the answer is certain or the time is used up."""

    def __init__(self, run: Path, most: float) -> None:
        from profiler import read
        from profiler.diagnose.live import RunningAnalysis
        from profiler.record.live_steps import StepRate

        self._analysing = RunningAnalysis(lambda: read(run), least=_LOOK_S, pause=1.0)
        self._steps = StepRate(run)
        self._most = most
        self._first: float | None = None
        self._told = 0.0
        """Seconds from the first step to the last line of progress."""
        self._looked_at: Analysis | None = None
        self.uncertain = "no step was seen"
        self.is_done = False
        """True if the answer was due before the program ended."""

    def is_enough(self) -> bool:
        """Return whether to answer now. The recorder calls this about ten times a second."""
        now = time.monotonic()
        if self._first is None:
            steps, reason = self._steps.read(time.monotonic_ns())
            self.uncertain = reason or "the number of steps is small"
            if steps is None:
                return False
            self._first = now
        self.is_done = now - self._first >= self._most
        if not self.is_done and now - self._first >= _LOOK_S:
            try:
                self._look(now - self._first)
            except Exception as error:  # noqa: BLE001 - the edge to the recording, which goes on; the answer reports it
                self.uncertain = f"the recording could not be analysed: {type(error).__name__}: {error}"
        return self.is_done

    def _look(self, since: float) -> None:
        from profiler.diagnose.live import open_question

        analysis = self._analysing.read()
        if isinstance(analysis, str):
            self.uncertain = analysis
            return
        if analysis is not self._looked_at:
            before, self._looked_at = self._looked_at, analysis
            self.uncertain = open_question(analysis, before)
            self.is_done = not self.uncertain
        if since - self._told > _TELL_S and not self.is_done:
            self._told = since
            _say(f"{round(analysis.value('steps') or 0.0):,} steps seen in {since:.0f} s; {self.uncertain}")


def _of_process(args: argparse.Namespace) -> int:
    """Show the threads of a running process, because its steps cannot be seen from outside."""
    from profiler.commands.attach import PLUGIN as ATTACH

    if args.stop or args.brief:
        raise ProfilerError("--stop and --brief need a command: why PID only observes a process")
    args.pid, args.seconds = int(args.command[0]), min(args.seconds, _ATTACHED_S)
    return ATTACH.run(args)


_ATTACHED_S: Final = 10.0
"""Longest time in seconds for which a process is observed from outside."""


def _say(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # its terminal is gone
            print(f"profiler: {text}", file=sys.stderr, flush=True)


def _print(run: Path, window: _Window, *, brief: bool, goes_on: bool, is_over: bool = False) -> None:
    """Print the first screen on stderr, apart from the output of the program."""
    from profiler import analyse_run, load
    from profiler.record.target import signals_as_interrupt
    from profiler.report.write import print_answer, print_summary

    try:
        with nullcontext() if goes_on else signals_as_interrupt():  # handlers belong to the main thread
            if is_over and not brief:
                print_summary(load(run), analyse_run)
                return
            print_answer(load(run), analyse_run, brief=brief, goes_on=goes_on, uncertain=window.uncertain)
    except ProfilerError as error:
        _say(str(error))
    except (OSError, KeyboardInterrupt):  # the terminal has been closed, or Ctrl-C ends the text
        pass


PLUGIN = WhyCommand()
