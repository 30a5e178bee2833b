"""A file of results, one JSON line a check: appended whole or not at all, read back with what is damaged left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from profiler.check.changepoints import trend
from profiler.check.model import GateResult
from profiler.check.past import SCHEMA, Bounds, Entry, History
from profiler.core.atomic_file import append_line
from profiler.core.errors import ProfilerError

__all__ = ["append", "entry_of", "read", "trend"]

_BEGINS: Final = b'{"schema": '
"""Every line, so that another file is told from a history."""
_WORKERS: Final = " (workers)"
_NAMED: Final = 3


def append(path: Path, result: GateResult) -> None:
    """Append `result` to the history in `path`, which is made where it is not there.

    :raises ProfilerError: it cannot be written (it is then as it was), or the file is no history.
    """
    line = json.dumps(_to_json(entry_of(result)), ensure_ascii=False, allow_nan=False)
    append_line(path, line, what="history", is_ours=_known)


def entry_of(result: GateResult) -> Entry:
    """What the history keeps of a result."""
    lines = result.throughput.lines if result.throughput else ()
    return Entry(
        time=result.created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        state=result.state,
        commit=result.candidate.commit or "",
        what=result.candidate.what,
        base_commit=result.base.commit or "",
        base=result.base.what,
        mode=result.mode,
        command=result.candidate.command,
        sentence=result.sentence,
        counters={
            line.counter + (_WORKERS if line.scope == "worker" else ""): line.after
            for line in result.counters
            if line.after is not None and all(map(math.isfinite, line.after))
        },
        slowdowns={
            line.name: Bounds(line.slowdown, _finite(line.low), _finite(line.high), line.rounds)
            for line in lines
            if line.slowdown is not None and math.isfinite(line.slowdown)
        },
        step_time=_finite(result.candidate.step_time),
        tokens_per_s=_finite(result.candidate.tokens_per_s),
        machine=dict(result.machine),
    )


def read(path: Path) -> History:
    """The history in `path`.

    :raises ProfilerError: it cannot be read, is no history, or a newer version wrote a line of it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfilerError(f"cannot read the history {path}: {error.strerror}") from error
    if data and not _known(data):
        raise ProfilerError(f"{path} is no history of checks: no line of it begins as one of those does")
    entries, damaged = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        entry = _from_line(line, path, number)
        if entry is None:
            damaged.append(number)
        else:
            entries.append(entry)
    return History(str(path), tuple(entries), _doubts(damaged, path))


def _known(begin: bytes) -> bool:
    """Whether a file that begins so is a history: a first line may be torn too."""
    first = begin.lstrip(b"\0\n").partition(b"\n")[0]
    return first.startswith(_BEGINS) or _BEGINS.startswith(first)


def _doubts(damaged: list[int], path: Path) -> tuple[str, ...]:
    if not damaged:
        return ()
    numbers = ", ".join(f"{number:,}" for number in damaged[:_NAMED])
    more = f" and {len(damaged) - _NAMED:,} more" if len(damaged) > _NAMED else ""
    one = len(damaged) == 1
    said = f"{'is' if one else 'are'} damaged and left out: a check was killed while it wrote, or someone edited it"
    return (f"{path}: line{'' if one else 's'} {numbers}{more} {said}",)


def _from_line(line: bytes, path: Path, number: int) -> Entry | None:
    """None: it is damaged."""
    try:
        value = json.loads(line)
        schema = value["schema"]
        if isinstance(schema, int) and schema > SCHEMA:
            raise ProfilerError(
                f"{path} line {number:,}: a newer version of the profiler wrote it (schema {schema}, this one reads "
                f"{SCHEMA}): update the profiler"
            )
        return _from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _to_json(entry: Entry) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "time": entry.time,
        "state": entry.state,
        "commit": entry.commit,
        "what": entry.what,
        "base_commit": entry.base_commit,
        "base": entry.base,
        "mode": entry.mode,
        "command": entry.command,
        "sentence": entry.sentence,
        "counters": {name: list(ends) for name, ends in sorted(entry.counters.items())},
        "slowdowns": {
            name: {"slowdown": one.slowdown, "low": one.low, "high": one.high, "rounds": one.rounds}
            for name, one in entry.slowdowns.items()
        },
        "step_time": entry.step_time,
        "tokens_per_s": entry.tokens_per_s,
        "machine": dict(entry.machine),
    }


def _from_json(value: Mapping[str, Any]) -> Entry:
    return Entry(
        time=str(value["time"]),
        state=str(value["state"]),
        **{name: str(value[name]) for name in ("commit", "what", "base_commit", "base", "mode", "command", "sentence")},
        counters={str(name): (float(low), float(high)) for name, (low, high) in value["counters"].items()},
        slowdowns={
            str(name): Bounds(float(one["slowdown"]), _number(one["low"]), _number(one["high"]), int(one["rounds"]))
            for name, one in value["slowdowns"].items()
        },
        step_time=_number(value["step_time"]),
        tokens_per_s=_number(value["tokens_per_s"]),
        machine={str(name): str(text) for name, text in value["machine"].items()},
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
