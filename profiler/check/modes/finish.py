"""Ends every check: verdict, reports, the summary of a job, the history, the exit code; errors and signals.

What took minutes to measure is printed first. A report that cannot be written costs a line; only where check.json or
the history is missing, the check has failed.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final

from profiler.check.model import BASE, CANDIDATE, FAIL, INCONCLUSIVE, NOT_COMPARABLE, PASS, GateResult, Hunk
from profiler.check.modes.judge import judge
from profiler.check.outputs import json
from profiler.check.outputs.machine import RepositoryPaths, workflow_commands
from profiler.check.outputs.write import append_summary, print_result, write_all
from profiler.check.places import LineTimes
from profiler.check.settings import Settings
from profiler.check.speed.processes import deferred_signals, last_signal
from profiler.core.errors import Exit, ProfilerError
from profiler.report.write import write_text

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Comparison
    from profiler.check.modes.sides import Recordings
    from profiler.check.worktree.prepare import SourceDiff

CI: Final = "CI"
ACTIONS: Final = "GITHUB_ACTIONS"
SUMMARY: Final = "GITHUB_STEP_SUMMARY"
_FALSE: Final = ("", "0", "false", "no", "off")
_COMPARED_RUNS: Final = 5
"""Number of runs of each side that the page compares."""
_RECORD: Final = "check.json"
_EXIT_CODES: Final = {PASS: Exit.OK, FAIL: Exit.FAIL}
"""Of a result that decides; any other one is `NOT_COMPARABLE`."""


def finish(
    result: GateResult,
    settings: Settings,
    *,
    sides: Mapping[str, Recordings] | None = None,
    diff: SourceDiff | None = None,
) -> int:
    """Conclude, print and write a result; returns the exit code.

    Ctrl-C, SIGTERM and SIGHUP wait meanwhile: the result has been measured, and it takes seconds to report it.

    :param sides: the runs of BASE and CANDIDATE, for the comparison in the page.
    :param diff: what changed in the program's files; None: not known.
    :raises KeyboardInterrupt: at the end, if a signal arrived meanwhile.
    """
    with deferred_signals():
        result = replace(
            result,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - settings.started,
            out=str(settings.out),
            options=settings.options,
            notes=(*result.notes, *settings.notes),
        )
        comparison: Comparison | None = None
        with reported("the page has no comparison of the runs"):
            comparison = _compare_runs(sides)
        times: tuple[LineTimes, LineTimes] | None = None
        hunks: tuple[Hunk, ...] | None = None
        if diff is not None and FAIL in (result.counters_state, result.throughput and result.throughput.state):
            with reported("the lines that changed could not be shown"):
                times = _line_times(result, comparison, diff)
                files = [change.file for line in result.counters for change in line.changes]
                hunks = diff.hunks([*files, *(file for file, _ in times[1].lines)] if times else files)
        result = judge(result, comparison, times, hunks)
        settings.results.append(result)
        _print(result)
        complete = _write(result, settings.out, comparison)
        if summary := os.environ.get(SUMMARY):
            with reported("the summary of the job was not written"):
                append_summary(result, Path(summary))
        if settings.table.history is not None:
            complete &= _append_to_history(Path(settings.table.history), result)
        if not complete:
            return int(Exit.USAGE)
        passes = result.state in (INCONCLUSIVE, NOT_COMPARABLE) and result.limits.inconclusive == "pass"
        return int(Exit.OK if passes else _EXIT_CODES.get(result.state, Exit.NOT_COMPARABLE))


class reported:  # noqa: N801 - a context manager, as contextlib.suppress is
    """Print an error, or that the block was stopped, in a line, and go on after the block."""

    def __init__(self, failure: str) -> None:
        self._failure = failure

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, ProfilerError | OSError | KeyboardInterrupt):
            return False
        _report(self._failure, error)
        return True


def _report(failure: str, error: BaseException) -> None:
    why = "it was stopped" if isinstance(error, KeyboardInterrupt) else " ".join(str(error).split())
    with suppress(OSError):  # of a closed terminal
        print(f"{failure}: {why}", file=sys.stderr, flush=True)


def _print(result: GateResult) -> None:
    """A closed output changes no verdict."""
    try:
        if is_true(ACTIONS):
            for line in workflow_commands(result, RepositoryPaths.around(Path.cwd())):
                print(line)
            sys.stdout.flush()
        print_result(result, stream=sys.stdout)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit:  # rich's answer to a closed pipe; its code 1 would be read as FAIL
        return
    except OSError as error:
        _report("the verdict could not be printed", error)
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(result: GateResult, out: Path, comparison: Comparison | None) -> bool:
    """Whether check.json exists afterwards; the other reports need more and may fail."""
    with reported("not all reports were written"):
        write_all(result, out, comparison)
    if not (out / _RECORD).exists():
        with reported("error"):
            write_text(out / _RECORD, json.render(json.result_json(result)))
    return (out / _RECORD).exists()


def _append_to_history(path: Path, result: GateResult) -> bool:
    """Whether the result is in the history."""
    from profiler.check.history import append

    if result.throughput is None:
        # counted at another level than rounds are measured: in one series their times would look like a change
        result = replace(result, candidate=replace(result.candidate, step_time=None, tokens_per_s=None))
    with reported("error"):
        append(path, result)
        return True
    return False


def _line_times(
    result: GateResult, comparison: Comparison | None, diff: SourceDiff
) -> tuple[LineTimes, LineTimes] | None:
    """The time of each side by line; None: a side has no recording, or no step of it was timed."""
    base, candidate = comparison.sides if comparison else (None, None)
    if base and candidate and base.detail and candidate.detail and result.base.step_time and result.candidate.step_time:
        return (
            LineTimes.of(base.detail, str(diff.base_folder), result.base.step_time),
            LineTimes.of(candidate.detail, str(diff.folder), result.candidate.step_time),
        )
    return None


def _compare_runs(sides: Mapping[str, Recordings] | None) -> Comparison | None:
    """The comparison of the runs of both sides, for the page."""
    if not sides or not sides[BASE].runs or not sides[CANDIDATE].runs:
        return None
    from profiler import read
    from profiler.analyse.comparison import SideRuns, compare
    from profiler.diagnose.comparison import diagnose_comparison
    from profiler.report.comparison_text import with_comparison_verdict

    runs = []
    for name in (BASE, CANDIDATE):
        side = sides[name]
        light = tuple(read(run.path) for run in side.runs[:_COMPARED_RUNS])
        detail = read(side.detail, timeline=True) if side.detail else None
        runs.append(SideRuns(name, shlex.join(side.runs[0].info.argv), light, detail))
    comparison = compare(runs, anyway=True)
    return with_comparison_verdict(comparison, diagnose_comparison(comparison))


# ---------------------------------------------------------------- the job of continuous integration


def is_true(name: str) -> bool:
    """Whether an environment variable is set to anything but a usual word for no."""
    return os.environ.get(name, "").strip().lower() not in _FALSE


class ReportedError(ProfilerError):
    """An error that was reported to the job already."""


def report_error(error: ProfilerError | OSError) -> ReportedError:
    """`error` as the line that ends the check with exit code 2; in a job of GitHub also an annotation and a summary.

    Its own exit code is dropped: 3 is that of a result, and there is none.
    """
    if isinstance(error, ReportedError):
        return error
    if isinstance(error, OSError):
        message = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    else:
        message = str(error)
    line = " ".join(message.split())
    if is_true(ACTIONS):
        from profiler.check.outputs.write import escape
        from profiler.core.terminal import plain

        with suppress(OSError):
            print(f"::error::{plain(line).replace('%', '%25')}", flush=True)
        if summary := os.environ.get(SUMMARY):
            with suppress(OSError), Path(summary).open("a", encoding="utf-8") as file:
                file.write(f"**Performance check: it could not be done.** {escape(line)}\n")
    return ReportedError(line)


# ---------------------------------------------------------------- signals

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP end a check as Ctrl-C does: programs are ended, the worktree is removed, and what
    was measured is reported. Only the first signal raises, so that cleaning up is not disturbed; ignored signals, as
    under nohup, stay ignored.

    :raises KeyboardInterrupt: with the number of the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            raise KeyboardInterrupt(number)

    handled = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    previous = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def interrupt_code(stop: KeyboardInterrupt) -> int:
    """The exit code of a shell for a program that a signal ended: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP."""
    number = stop.args[0] if stop.args else last_signal()  # while programs run, signals are deferred
    return 128 + int(number or signal.SIGINT)
