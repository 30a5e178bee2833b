"""The checked-in counters: a file of sections, one for each kind of machine and work, and what an update changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from profiler.check import baseline_file
from profiler.check.baseline_section import Baseline, Lines, Range, as_counted, made, of_workers, other_command
from profiler.check.counters import UNGATED
from profiler.check.keyed import Key, nearest
from profiler.check.replaced import held, replace
from profiler.check.sections import Plain, Row, text_of
from profiler.check.untouched import untouched
from profiler.check.watched import NO_DEVICE, ON_DEVICE

__all__ = [
    "Baseline",
    "as_counted",
    "loosened",
    "made",
    "other_command",
    "others",
    "previous",
    "read",
    "sections",
    "write",
]


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
    """The section that an update replaces, if there is one; and why it cannot be told, where the file is damaged: then
    the update replaces all of it.

    :raises ProfilerError: the file cannot be read at all, or a newer version wrote it.
    """
    try:
        found = sections(path) if path.exists() else ()
    except baseline_file.DamagedError as error:
        lost = "what it let pass is not known, and none of its sections is kept: version control may have them"
        return None, f"the file {error.fault}, so {lost}"
    return next((one for one in found if one.key == key), None), ""


def others(path: Path, written: Baseline, folder: str) -> tuple[str, ...]:
    """Of the sections that an update leaves as they are: what each is of, and whether its script is still there.

    :param written: what the update has written.
    :param folder: that commands are told from.
    :raises ProfilerError: as `sections`.
    """
    return untouched([one for one in sections(path) if one.key != written.key], written.key, folder)


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
    """What would pass under `new` and not under `old`, a line each: an update that does so needs a reason.

    :param old: of the key of `new`.
    """
    said_nothing = ON_DEVICE if new.key.get("device") == NO_DEVICE else ()  # a 0 of theirs was written before
    return (
        *_looser(old.counters, new.counters, "", said_nothing),
        *_looser(of_workers(old), of_workers(new), " in loader workers", said_nothing),
    )


def _looser(old: Mapping[str, Range], new: Mapping[str, Range], where: str, said_nothing: Collection[str]) -> list[str]:
    found = []
    for name in sorted(set(old) - set(UNGATED)):
        least, most = old[name]
        if name not in new:
            if name in said_nothing and not most:
                continue
            found.append(f"{name}{where}: {_words(old[name])} per step before, not counted any more")
        elif new[name][1] > most:
            found.append(f"{name}{where}: {_words(old[name])} -> {_words(new[name])} per step")
        elif least == most and new[name][0] < new[name][1]:
            found.append(f"{name}{where}: always {most:g} before, {_words(new[name])} per step now")
    return found


def _words(ends: Range) -> str:
    least, most = ends
    return f"{most:g}" if least == most else f"{least:g} to {most:g}"
