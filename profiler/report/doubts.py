"""Doubts about runs in few words; those about what else ran on the machine stand beside the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profiler.analyse.model import OTHER_MACHINES, OTHER_PROGRAMS, Comparison
from profiler.report.subject import Subject, views


def alike(notes: Iterable[str]) -> list[str]:
    """Of notes that differ in their numbers only, the first, and how many more there are: each run may have its own."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(re.sub(r"[\d.,]+", "#", note), []).append(note)
    return [first + (f" (and {len(more)} more like this)" if more else "") for first, *more in groups.values()]


def company(notes: Iterable[str]) -> list[str]:
    """Those of `notes` that tell of other work on the machine, which makes all times longer."""
    return alike(note for note in notes if note.startswith((OTHER_PROGRAMS, OTHER_MACHINES)))


def not_alone(subject: Subject) -> str:
    """What else ran on the machine, of each side that says so, as a sentence; empty where nothing is known of it."""
    named = isinstance(subject, Comparison)
    said = [f"{view.label}: {note}" if named else note for view in views(subject) for note in company(view.notes())]
    if not said:
        return ""
    text = "; ".join(said)
    return f"{text if named else text[0].upper() + text[1:]}. Times are longer than on a quiet machine, and vary more."
