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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final

from profiler.check.causes import changed_first, counted_causes, worse_causes
from profiler.check.counters.compare import budget_warnings, unused_limits, worst
from profiler.check.model import (
    BASE,
    CANDIDATE,
    FAIL,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    PASS,
    GateResult,
    Hunk,
    WorseCause,
)
from profiler.check.outputs import history, json
from profiler.check.outputs.first_screen import verdict_sentence
from profiler.check.outputs.format import RepositoryPaths
from profiler.check.outputs.machine import workflow_commands
from profiler.check.outputs.write import append_summary, print_result, write_all
from profiler.check.places import LineTimes, slower_lines
from profiler.check.settings import Settings
from profiler.check.speed.processes import deferred_signals, last_signal
from profiler.core.errors import Exit, Notice, ProfilerError
from profiler.report.write import write_text

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Comparison
    from profiler.check.diff import SourceDiff
    from profiler.check.modes.sides import Recordings

CI: Final = "CI"
ACTIONS: Final = "GITHUB_ACTIONS"
SUMMARY: Final = "GITHUB_STEP_SUMMARY"
_FALSE: Final = ("", "0", "false", "no", "off")
_COMPARED_RUNS: Final = 5
"""Number of runs of each side that the page compares."""
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
                details = [side.detail for side in comparison.sides] if comparison else []
                folders = str(diff.base_folder), str(diff.folder)
                sides_of = zip(details, folders, (result.base.step_time, result.candidate.step_time), strict=False)
                timed = [LineTimes.of(detail, folder, step) for detail, folder, step in sides_of if detail and step]
                files = [change.file for line in result.counters for change in line.changes]
                if len(timed) == len((BASE, CANDIDATE)):
                    times = timed[0], timed[1]
                    files += (file for file, _ in times[1].lines)
                hunks = diff.hunks(files)
        result = judge(result, comparison, times, hunks)
        settings.results.append(result)
        _print(result)
        if not _write(result, settings, comparison):
            return int(Exit.USAGE)
        passes = result.state in (INCONCLUSIVE, NOT_COMPARABLE) and result.limits.inconclusive == "pass"
        return int(Exit.OK if passes else _EXIT_CODES.get(result.state, Exit.NOT_COMPARABLE))


# ---------------------------------------------------------------- the verdict


def judge(
    result: GateResult,
    comparison: Comparison | None = None,
    times: tuple[LineTimes, LineTimes] | None = None,
    hunks: Sequence[Hunk] | None = None,
) -> GateResult:
    """Return the complete result of what was measured.

    :param comparison: of the runs of both sides.
    :param times: the time of each side by line.
    :param hunks: what the diff changed in the files of a FAIL; None: not known.
    :raises ValueError: nothing was compared.
    """
    warnings = (*result.warnings, *budget_warnings(result.counters), *unused_limits(result))
    # a comparison with a baseline has its diff already
    result = replace(result, warnings=warnings, hunks=result.hunks if hunks is None else tuple(hunks))
    if times is not None and hunks is not None:
        result = replace(result, slower_lines=slower_lines(*times, hunks))
    timed: tuple[WorseCause, ...] = ()
    if comparison is not None:
        timed = tuple(worse_causes(comparison, hunks))
        if any(side.detail for side in comparison.sides):
            result = replace(result, explanation=comparison.verdict)  # it tells where the time went
    known = {cause.rule for cause in timed}
    counted = (cause for cause in counted_causes(result.counters) if cause.rule not in known)
    return conclude(replace(result, causes=changed_first((*timed, *counted), result.hunks)))


def conclude(result: GateResult) -> GateResult:
    """Return the result with its state, as bad as its worst part, and its sentence.

    :raises ValueError: it has no part.
    """
    parts = [result.counters_state, result.throughput.state if result.throughput else None]
    states = [state for state in parts if state is not None]
    if not states:
        raise ValueError("nothing was compared")
    counters = list(result.counters)
    for index, line in enumerate(counters):
        # a gain over equally many steps can be written down in the baseline, where there is one
        if line.reasons[:1] == (Notice("fewer"),) and not (result.baseline_file and len(line.reasons) > 1):
            code = "fewer-than-baseline" if result.baseline_file else "fewer"
            counters[index] = replace(line, reasons=(Notice(code),))
    result = replace(result, counters=tuple(counters), state=worst(states))
    return replace(result, sentence=verdict_sentence(result))


# ---------------------------------------------------------------- what is printed and written


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
    """Return a closed output changes no verdict."""
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


def _write(result: GateResult, settings: Settings, comparison: Comparison | None) -> bool:
    """Write the reports, the summary of a job and the history; return whether check.json and the history have it."""
    record, history_file = settings.out / "check.json", settings.table.history
    with reported("not all reports were written"):
        write_all(result, settings.out, comparison)
    if not record.exists():  # the other reports need more
        with reported("error"):
            write_text(record, json.render(json.result_json(result)))
    if summary := os.environ.get(SUMMARY):
        with reported("the summary of the job was not written"):
            append_summary(result, Path(summary))
    if history_file is None:
        return record.exists()
    if result.throughput is None:
        # counted at another level than rounds are measured: in one series their times would look like a change
        result = replace(result, candidate=replace(result.candidate, step_time=None, tokens_per_s=None))
    with reported("error"):
        history.append(Path(history_file), result)
        return record.exists()
    return False


def _compare_runs(sides: Mapping[str, Recordings] | None) -> Comparison | None:
    """Return the comparison of the runs of both sides, for the page."""
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
    """Return whether an environment variable is set to anything but a usual word for no."""
    return os.environ.get(name, "").strip().lower() not in _FALSE


class ReportedError(ProfilerError):
    """An error that was reported to the job already."""


def report_error(error: ProfilerError | OSError) -> ReportedError:
    """Return `error` as the line that ends the check with exit code 2; in a job of GitHub also an annotation and a
    summary.

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
    """Return the exit code of a shell for a program that a signal ended: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP."""
    number = stop.args[0] if stop.args else last_signal()  # while programs run, signals are deferred
    return 128 + int(number or signal.SIGINT)
