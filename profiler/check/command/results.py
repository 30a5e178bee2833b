"""The end of every `check`: verdict, reports, a job's summary, the history, the exit code.

What took minutes to find out is said first. What cannot be written after that costs a line; only where the record
itself (check.json, the history) is missing, the check is not done.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from profiler.check.command.job import ACTIONS, SUMMARY, is_true
from profiler.check.command.settings import GateSettings
from profiler.check.command.unheld import unheld
from profiler.check.model import BASE, CANDIDATE, FAIL, INCONCLUSIVE, PASS, GateResult
from profiler.check.outputs import json
from profiler.check.outputs.annotations import workflow_commands
from profiler.check.outputs.places import places
from profiler.check.outputs.terminal import print_result
from profiler.check.outputs.write import append_summary, write_all
from profiler.check.verdict import concluded
from profiler.core.errors import Exit, ProfilerError
from profiler.report.write import write_text

if TYPE_CHECKING:
    from profiler.analyse.model import Comparison

_COMPARED: Final = 5
"""Rounds that the page's comparison is made of."""
_RECORD: Final = "check.json"


class Trouble:
    """What goes wrong within, or is stopped, is said in a line, and no more than that is lost."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, ProfilerError | OSError | KeyboardInterrupt):
            return False
        _complain(self._what, error)
        return True


def _complain(what: str, error: BaseException) -> None:
    why = "it was stopped" if isinstance(error, KeyboardInterrupt) else " ".join(str(error).split())
    with suppress(OSError):  # of a terminal that is gone
        print(f"{what}: {why}", file=sys.stderr, flush=True)


def finish(result: GateResult, settings: GateSettings, *, sides: Mapping[str, Any] | None = None) -> int:
    """Conclude, print, write; the exit code.

    :param sides: what was found of BASE and CANDIDATE, for the comparison in the page.
    """
    result = concluded(
        replace(
            result,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - settings.began,
            out=str(settings.out),
            notes=(*result.notes, *settings.notes, *unheld(result)),
        )
    )
    comparison: Comparison | None = None
    with Trouble("the page has no comparison of the runs"):
        comparison = _comparison(sides)
    if comparison is not None and any(one.detail for one in (sides or {}).values()):
        result = replace(result, explanation=comparison.verdict)  # it says where the time went
    _printed(result, settings)
    whole = _written(result, settings.out, comparison)
    if summary := os.environ.get(SUMMARY):
        with Trouble("the summary of the job was not written"):
            append_summary(result, Path(summary))
    if settings.history is not None:
        whole &= _appended(settings.history, result)
    return exit_code(result) if whole else int(Exit.USAGE)


def exit_code(result: GateResult) -> int:
    """0 PASS, 1 FAIL, 3 INCONCLUSIVE; 0 for that too where the limits say so."""
    if result.state == INCONCLUSIVE and result.limits.inconclusive == "pass":
        return int(Exit.OK)
    return int({PASS: Exit.OK, FAIL: Exit.FAIL, INCONCLUSIVE: Exit.NOT_COMPARABLE}[result.state])


def _printed(result: GateResult, settings: GateSettings) -> None:
    """A reader who is gone changes no verdict."""
    try:
        print_result(result, stream=sys.stdout)
        if settings.github or is_true(ACTIONS):
            for line in workflow_commands(result, places(Path.cwd())):
                print(line)
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit:  # rich's answer to a closed pipe; 1 would be read as FAIL
        return
    except (OSError, KeyboardInterrupt) as error:
        _complain("the verdict could not be printed", error)
        if isinstance(error, KeyboardInterrupt):
            return
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _written(result: GateResult, out: Path, comparison: Comparison | None) -> bool:
    """Whether check.json is there: reports that are made of more may lack."""
    with Trouble("not all reports were written"):
        write_all(result, out, comparison)
    if (out / _RECORD).exists():
        return True
    with Trouble("error"):
        write_text(out / _RECORD, json.render(json.result_json(result)))
        return True
    return False


def _appended(history: Path, result: GateResult) -> bool:
    from profiler.check.history import append

    if result.throughput is None:
        # counted at another level than rounds are: in one series their times would look like a change
        result = replace(result, candidate=replace(result.candidate, step_time=None, tokens_per_s=None))
    with Trouble("error"):
        append(history, result)
        return True
    return False


def _comparison(sides: Mapping[str, Any] | None) -> Comparison | None:
    """Of the runs of both sides, for the page: what they did, beside what the gate says."""
    if not sides or not sides[BASE].paths or not sides[CANDIDATE].paths:
        return None
    from profiler import read
    from profiler.analyse.comparison import SideRuns, compare
    from profiler.diagnose.comparison import diagnose_comparison
    from profiler.report.verdict_text import with_comparison_verdict

    made = [
        SideRuns(
            name,
            shlex.join(sides[name].runs[0].info.argv),
            tuple(read(path) for path in sides[name].paths[:_COMPARED]),
            read(sides[name].detail, timeline=True) if sides[name].detail else None,
        )
        for name in (BASE, CANDIDATE)
    ]
    comparison = compare(made, anyway=True)
    return with_comparison_verdict(comparison, diagnose_comparison(comparison))
