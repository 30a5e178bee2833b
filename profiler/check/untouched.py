"""Sections of a baseline that an update leaves as they are, in words: an old one stays when its script is renamed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from profiler.check.baseline_section import Baseline
from profiler.check.keyed import Key
from profiler.check.located import place_of


def untouched(sections: Sequence[Baseline], written: Key, folder: str) -> tuple[str, ...]:
    """A line for each: its command and in what its key differs; and what to do where its script is gone.

    None is dropped by itself: a file holds several programs, and those of other branches, on purpose.

    :param written: key of the section that was written.
    :param folder: that commands are told from.
    """
    return tuple(_line(one, written, folder) for one in sections)


def _line(one: Baseline, written: Key, folder: str) -> str:
    differs = ", ".join(f"{name} {text}" for name, text in one.key.items() if written.get(name) != text)
    said = f"left as it was: {one.command} ({differs or 'its key says less'})"
    gone = next(_gone(one.command, folder), "")
    return f"{said}; there is no {gone} any more: if it was renamed, delete that section" if gone else said


def _gone(command: str, folder: str) -> Iterator[str]:
    """Its script, where that lay below the folder or its project and does not any more."""
    try:
        words = shlex.split(command)
    except ValueError:  # no shell's words
        return
    script = next((word for word in words if word.endswith(".py") and not word.startswith("/")), "")
    places = {folder, place_of(folder, words)}
    if script and not any((Path(place) / script).exists() for place in places):
        yield script
