"""What can be refused before any program is started: files that could not be written at the end, misspelt counters."""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Final

from profiler.check import baseline, history
from profiler.check.command.settings import GateSettings
from profiler.check.counters import EVERY, GATED, UNGATED
from profiler.core.errors import ProfilerError
from profiler.core.metrics import COUNTERS

_ALIKE: Final = 0.8
"""Of the letters (difflib's ratio): sync is syncs misspelt, and a counter of one's own is not refused before it was
seen whether the program has it."""


def ready(settings: GateSettings) -> None:
    """:raises ProfilerError: the check would end in an error whatever its programs do."""
    if settings.history is not None:
        _history(settings.history)
    if settings.update and settings.baseline is not None:
        _replaceable(settings.baseline)
    if settings.update:
        return  # limits gate nothing in it, and what it writes makes names known
    there: set[str] = set()
    if settings.baseline is not None and settings.baseline.exists():
        sections = baseline.sections(settings.baseline)
        there = {name for one in sections for name in (*one.counters, *one.workers)}
    known = {*GATED, *UNGATED, *(counter.name for counter in COUNTERS), *there, EVERY}
    for option, key, names in (
        ("--limit", "limits", settings.limits.counters),
        ("--ignore", "ignore", settings.limits.ignore),
    ):
        for name in names:
            _known(name, known, option if name in settings.named else f"[tool.profiler.check] {key}:")


def _history(path: Path) -> None:
    """It is read as it will be when it is shown, and could be appended to."""
    if path.exists():
        if not stat.S_ISREG(path.stat().st_mode):
            raise ProfilerError(f"cannot append to the history {path}: it is no plain file")
        history.read(path)
        if not os.access(path, os.W_OK):
            raise ProfilerError(f"cannot append to the history {path}: it may not be written")
        return
    _folder(path, f"cannot append to the history {path}")


def _replaceable(path: Path) -> None:
    """An update writes beside the file, then puts that in its place."""
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise ProfilerError(f"cannot write the baseline {path}: it is a folder")
    _folder(place, f"cannot write the baseline {path}")
    baseline.previous(path, {})


def _folder(path: Path, what: str) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ProfilerError(f"{what}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ProfilerError(f"{what}: nothing may be written in {folder}")


def _known(name: str, known: set[str], where: str) -> None:
    """Whether anything counts a name shows when programs have counted; what is nearly another is misspelt."""
    others = [one for one in sorted(known) if one not in name]  # fsyncs is no misspelt syncs
    near = [] if name in known else difflib.get_close_matches(name, others, 1, _ALIKE)
    if near:
        raise ProfilerError(f"{where} {name}: nothing counts that; did you mean {near[0]}?")
