"""A section of the baseline: what was counted under one key, made of what processes counted and taken for it again."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final

import profiler
from profiler.check.keyed import Key, key_of
from profiler.check.loading import IN_LOADER, WOULD_SYNC
from profiler.check.located import folder_of, place_of
from profiler.check.model import Counted
from profiler.check.sections import SCHEMA
from profiler.core.errors import ProfilerError
from profiler.report.text import step_text
from profiler.run.model import Run

Range = tuple[float, float]
"""Least and most, per step."""
Lines = Mapping[tuple[str, str, str, str], tuple[tuple[int, float, str], ...]]
"""(counter, file, function, operation) -> each line: number, amount per step, its text."""

_OF_WORKERS: Final = {WOULD_SYNC: IN_LOADER}
"""What sections that were written before call a counter of workers."""
_WHOLE: Final = 1e-6
"""A total that is so near to a whole number is one: it went through a division by the number of steps."""


@dataclass(frozen=True)
class Baseline:
    """One section: what the program counted under one key."""

    key: Key
    """What must be equal, see profiler.check.keyed."""
    command: str
    step: str
    """What a step is, in words."""
    steps: int
    """Measured in each process."""
    processes: int
    counters: Mapping[str, Range]
    workers: Mapping[str, Range] = field(default_factory=dict)
    lines: Lines = field(default_factory=dict)
    worker_lines: Lines = field(default_factory=dict)
    updated_at: str = ""
    """ISO 8601, UTC."""
    reason: str = ""
    """Why it was loosened, in the words of who did."""
    tool: str = ""
    """Version of the profiler that wrote it."""
    schema: int = SCHEMA


# ---------------------------------------------------------------- from and to what was counted


def made(
    counted: Sequence[Counted],
    run: Run,
    command: str,
    *,
    reason: str = "",
    folder: str = "",
    at: datetime | None = None,
) -> Baseline:
    """What these processes counted, as a section.

    :param run: of one of them: what it says of its program is the key.
    :param folder: that the command was started in, where the run does not say.
    :raises ProfilerError: there is none, or they took different numbers of steps.
    """
    steps = {one.steps for one in counted}
    if len(steps) != 1:
        numbers = " and ".join(map(str, sorted(steps)))
        raise ProfilerError(
            f"no baseline can be made of processes that took {numbers or 'no'} steps: they must be as many"
        )
    return Baseline(
        key=key_of(run),
        command=_portable(command, folder or folder_of(run)),
        step=step_text(run.step),
        steps=steps.pop(),
        processes=len(counted),
        counters=_ranges(counted, lambda one: one.totals),
        workers=_ranges(counted, lambda one: one.workers),
        lines=_lines(counted, lambda one: one.lines),
        worker_lines=_lines(counted, lambda one: one.worker_lines),
        updated_at=(at or datetime.now(UTC)).isoformat(timespec="seconds"),
        reason=reason,
        tool=profiler.__version__,
    )


def as_counted(baseline: Baseline) -> tuple[Counted, ...]:
    """Its least and its most, as two processes that counted them."""
    return _process(baseline, 0), _process(baseline, 1)


def of_workers(baseline: Baseline) -> dict[str, Range]:
    """Counters of its loader's workers by the names that they have now."""
    return {_OF_WORKERS.get(name, name): ends for name, ends in baseline.workers.items()}


def _process(baseline: Baseline, side: int) -> Counted:
    steps = baseline.steps
    lines, worker_lines = (
        {key: tuple((line, _total(amount, steps), text) for line, amount, text in own) for key, own in whole.items()}
        for whole in (baseline.lines, baseline.worker_lines)
    )
    return Counted(
        steps,
        {name: _total(ends[side], steps) for name, ends in baseline.counters.items()},
        {name: _total(ends[side], steps) for name, ends in of_workers(baseline).items()},
        {key: (sum(one[1] for one in own), max(own, key=lambda one: one[1])[0]) for key, own in lines.items()},
        lines,
        {(_OF_WORKERS.get(key[0], key[0]), *key[1:]): own for key, own in worker_lines.items()},
    )


def _total(per_step: float, steps: int) -> float:
    total = per_step * steps
    return float(round(total)) if math.isclose(total, round(total), rel_tol=1e-12, abs_tol=_WHOLE) else total


def _ranges(counted: Sequence[Counted], of: Callable[[Counted], Mapping[str, float]]) -> dict[str, Range]:
    names = sorted({name for one in counted for name in of(one)})
    amounts = {name: [of(one).get(name, 0.0) / one.steps for one in counted] for name in names}
    return {name: (min(own), max(own)) for name, own in amounts.items()}


def _lines(
    counted: Sequence[Counted], of: Callable[[Counted], Lines]
) -> dict[tuple[str, str, str, str], tuple[tuple[int, float, str], ...]]:
    """The most of all processes, per step."""
    most: dict[tuple[str, str, str, str], dict[tuple[int, str], float]] = {}
    for one in counted:
        for key, own in of(one).items():
            known = most.setdefault(key, {})
            for line, amount, text in own:
                known[line, text] = max(known.get((line, text), 0.0), amount / one.steps)
    return {
        key: tuple((line, amount, text) for (line, text), amount in sorted(own.items()))
        for key, own in sorted(most.items())
    }


def other_command(baseline: Baseline, command: str, folder: str) -> str:
    """What the section was counted with, in a line, where it is not this command; a doubt, since options may be other
    work."""
    now = _portable(command, folder)
    return "" if now == baseline.command else f"the baseline was counted with another command: {baseline.command}"


def _portable(command: str, folder: str) -> str:
    """A command without the folders of this machine, where they can be left out."""
    try:
        words = shlex.split(command)
    except ValueError:  # no shell's words: as it is
        return command
    place = place_of(folder, words)
    found = [PurePosixPath(word).name if at == 0 and "/" in word else word for at, word in enumerate(words)]
    if place != folder:  # its script is known from there
        found = [os.path.normpath(f"{folder}/{word}") if _is_script(word) else word for word in found]
    below = f"{place.rstrip('/')}/"
    return shlex.join(word.removeprefix(below) if place else word for word in found)


def _is_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("/")
