"""The lines of the program at which a trace's calls were made, from the calls of Python functions that it holds.

torch's profiler records where a function begins, not which of its lines runs, so the line of a site is that of `def`.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import numpy as np

from profiler.run.ingest.trace_events import OnHost
from profiler.run.model import Site, Table

_FRAME: Final = re.compile(r"^(.*\.py)\((\d+)\): (.*)$", re.DOTALL)
_GENERIC: Final = frozenset({"numpy", "torch", "triton", "typing_extensions", "tqdm"}) | sys.stdlib_module_names
"""Packages whose lines tell how something was done, and not what. torch removes the folder of the packages from paths,
so a package of the program cannot be distinguished from an installed one."""
_WRAPPERS: Final = frozenset({"wrapper", "wrapped", "inner", "_wrapper"})
"""Names that functions made by decorators have."""
_COMPILED: Final = "/torchinductor_"
"""Part of the path of every file that torch.compile writes."""


def frame_site(name: str) -> Site | None:
    """The site in the name of a frame, `train.py(12): main`."""
    match = _FRAME.match(name)
    return Site(match[1], int(match[2]), match[3]) if match else None


def is_generic(file: str) -> bool:
    """Whether a file of a frame belongs to Python, torch or another package that works for any program."""
    if file.startswith(("/", "<")):
        return _COMPILED in file or file.startswith("<")
    return re.split(r"[/.]", file, maxsplit=1)[0] in _GENERIC


def sites(frames: Iterable[OnHost]) -> dict[Site, int]:
    """A number for each function of the program, or of a library that is not generic."""
    numbers: dict[Site, int] = {}
    for name in dict.fromkeys(event.name for event in frames):
        site = frame_site(name)
        if site is not None and site.function not in _WRAPPERS and not is_generic(site.file):
            numbers.setdefault(site, len(numbers))
    return numbers


def add_sites(calls: Table, frames: Iterable[OnHost], numbers: dict[Site, int]) -> None:
    """Write the site of the innermost function of `numbers` around each call into `calls`."""
    if not numbers or not len(calls):
        return
    by_name = {f"{site.file}({site.line}): {site.function}": number for site, number in numbers.items()}
    threads: dict[int, list[tuple[int, int, int]]] = {}
    for event in frames:
        number = by_name.get(event.name)
        if number is not None:
            threads.setdefault(event.tid, []).append((event.begin, -event.end, number))
    for tid, spans in threads.items():
        rows = np.flatnonzero(calls["tid"] == tid)
        moments, site_at = _innermost(sorted(spans))
        calls["site"][rows] = [site_at[bisect_right(moments, begin) - 1] for begin in calls["begin"][rows].tolist()]


def _innermost(spans: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Moments in ascending order, and the innermost span's number from each of them on; -1: none.

    :param spans: begin, minus end and number, sorted; they are nested.
    """
    moments, numbers = [-1], [-1]
    open_spans: list[tuple[int, int]] = []

    def leave(until: int) -> None:
        while open_spans and open_spans[-1][0] <= until:
            moments.append(open_spans.pop()[0])
            numbers.append(open_spans[-1][1] if open_spans else -1)

    for begin, minus_end, number in spans:
        leave(begin)
        open_spans.append((-minus_end, number))
        moments.append(begin)
        numbers.append(number)
    leave(sys.maxsize)
    return moments, numbers
