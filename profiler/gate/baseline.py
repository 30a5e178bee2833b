"""The checked-in counters: a file of sections, one for each kind of machine and work, and what an update changes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

import profiler
from profiler.base.errors import ProfilerError
from profiler.gate import baseline_file
from profiler.gate.keyed import Key, key_of, nearest
from profiler.gate.located import folder_of
from profiler.gate.model import Counted
from profiler.gate.replaced import held, replace
from profiler.gate.sections import SCHEMA, Plain, Row, text_of
from profiler.run.model import Run

Range = tuple[float, float]
"""Least and most, per step."""
Lines = Mapping[tuple[str, str, str, str], tuple[tuple[int, float, str], ...]]
"""(counter, file, function, operation) -> each line: number, amount per step, its text."""

_WHOLE: Final = 1e-6
"""A total that is so near to a whole number is one: it went through a division by the number of steps."""


@dataclass(frozen=True)
class Baseline:
    """One section: what the program counted under one key."""

    key: Key
    """What must be equal, see profiler.gate.keyed."""
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
        step=run.step_source,
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


def _process(baseline: Baseline, side: int) -> Counted:
    steps = baseline.steps
    lines, worker_lines = (
        {key: tuple((line, _total(amount, steps), text) for line, amount, text in own) for key, own in whole.items()}
        for whole in (baseline.lines, baseline.worker_lines)
    )
    return Counted(
        steps,
        {name: _total(ends[side], steps) for name, ends in baseline.counters.items()},
        {name: _total(ends[side], steps) for name, ends in baseline.workers.items()},
        {key: (sum(one[1] for one in own), max(own, key=lambda one: one[1])[0]) for key, own in lines.items()},
        lines,
        worker_lines,
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


def _portable(command: str, folder: str) -> str:
    """A command without the folders of this machine, where they can be left out."""
    try:
        words = shlex.split(command)
    except ValueError:  # no shell's words: as it is
        return command
    found = [PurePosixPath(word).name if at == 0 and "/" in word else word for at, word in enumerate(words)]
    below = f"{folder.rstrip('/')}/"
    return shlex.join(word.removeprefix(below) if folder else word for word in found)


# ---------------------------------------------------------------- the file


def sections(path: Path) -> tuple[Baseline, ...]:
    """All sections of a file, by key.

    :raises ProfilerError: it cannot be read, is damaged or was changed by hand, or a newer version wrote it.
    """
    return tuple(_from_plain(one) for one in baseline_file.read(path))


def read(path: Path, key: Key | None = None) -> Baseline:
    """The section of `key`; where there is none, the one that differs in the fewest parts, see `keyed.mismatch`.

    :raises ProfilerError: as `sections`.
    """
    found = sections(path)
    return found[nearest([one.key for one in found], key or {})]


def previous(path: Path, key: Key) -> tuple[Baseline | None, str]:
    """The section that an update replaces, if there is one; and why it cannot be told, where the file is damaged.

    :raises ProfilerError: the file cannot be read at all, or a newer version wrote it.
    """
    try:
        found = sections(path) if path.exists() else ()
    except baseline_file.DamagedError as error:
        return None, str(error)
    return next((one for one in found if one.key == key), None), ""


def write(path: Path, baseline: Baseline) -> bool:
    """Put a section in the place of the one with its key, or beside the others; a damaged file is replaced whole.

    Atomic: whatever happens in the middle, the file is the old one or the new one.

    :returns: whether anything but the date has changed; if not, the file is left alone.
    :raises ProfilerError: it cannot be written, or a newer version wrote what is there.
    """
    with held(path, "baseline") as place:
        try:
            there = sections(place) if place.exists() else ()
        except baseline_file.DamagedError:
            there = ()
        old = next((one for one in there if one.key == baseline.key), None)
        if old is not None and _content(old) == _content(baseline):
            return False
        kept = [one for one in there if one.key != baseline.key]
        whole = sorted((*kept, baseline), key=lambda one: sorted(one.key.items()))
        replace(place, text_of([_to_plain(one) for one in whole]))
    return True


def _content(one: Baseline) -> object:
    plain = _to_plain(one)
    return {name: value for name, value in plain.items() if name not in {"updated_at", "reason", "tool"}}


def _to_plain(one: Baseline) -> Plain:
    return {
        "key": dict(one.key),
        "command": _encodable(one.command),
        "step": _encodable(one.step),
        "steps": one.steps,
        "processes": one.processes,
        "counters": dict(one.counters),
        "workers": dict(one.workers),
        "sites": _rows(one.lines),
        "worker_sites": _rows(one.worker_lines),
        "updated_at": one.updated_at,
        "reason": _encodable(one.reason),
        "tool": one.tool,
    }


def _encodable(text: str) -> str:
    """Arguments that are no text cannot be written as one."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _rows(lines: Lines) -> list[Row]:
    return sorted(
        (counter, file, line, function, operation, amount, text)
        for (counter, file, function, operation), own in lines.items()
        for line, amount, text in own
    )


def _from_plain(plain: Plain) -> Baseline:
    return Baseline(
        key=plain["key"],
        command=plain["command"],
        step=plain["step"],
        steps=plain["steps"],
        processes=plain["processes"],
        counters=plain["counters"],
        workers=plain["workers"],
        lines=_of_rows(plain["sites"]),
        worker_lines=_of_rows(plain["worker_sites"]),
        updated_at=plain["updated_at"],
        reason=plain["reason"],
        tool=plain["tool"],
    )


def _of_rows(rows: Sequence[Row]) -> Lines:
    found: dict[tuple[str, str, str, str], tuple[tuple[int, float, str], ...]] = {}
    for counter, file, line, function, operation, amount, text in rows:
        key = (counter, file, function, operation)
        found[key] = (*found.get(key, ()), (line, amount, text))
    return found


# ---------------------------------------------------------------- an update


def loosened(old: Baseline, new: Baseline) -> tuple[str, ...]:
    """What would pass under `new` and not under `old`, a line each: an update that does so needs a reason."""
    return (*_looser(old.counters, new.counters, ""), *_looser(old.workers, new.workers, " in loader workers"))


def _looser(old: Mapping[str, Range], new: Mapping[str, Range], where: str) -> list[str]:
    found = []
    for name in sorted(old):
        least, most = old[name]
        if name not in new:
            found.append(f"{name}{where}: {_words(old[name])} per step before, not counted any more")
        elif new[name][1] > most:
            found.append(f"{name}{where}: {_words(old[name])} -> {_words(new[name])} per step")
        elif least == most and new[name][0] < new[name][1]:
            found.append(f"{name}{where}: always {most:g} before, {_words(new[name])} per step now")
    return found


def _words(ends: Range) -> str:
    least, most = ends
    return f"{most:g}" if least == most else f"{least:g} to {most:g}"
