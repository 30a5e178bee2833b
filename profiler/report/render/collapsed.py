"""A run's stack samples as collapsed stacks, a line each: `main;train;forward 1234`, outermost frame first.

What flamegraph.pl, inferno and speedscope read. The number is microseconds of wall time, not a count of samples:
samples stand for spans of different length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler.report.render._traced import Names, described, joined, need_stacks
from profiler.run.model import Run, Site, Table

_ESCAPED: Final = str.maketrans({";": "%3B", "\n": "%0A", "\r": "%0D"})
"""What the format itself uses; as in an address, so that it can be read back."""


def render(run: Run, *, threads: bool = False) -> Iterator[str]:
    """The text in pieces; the same stack in several places is one line.

    :param threads: a frame for the process and one for the thread stand before each stack.
    :raises ProfilerError: the run has no stack samples.
    """
    return joined(_lines(run, need_stacks(run), threads), "")


def _lines(run: Run, stacks: Table, threads: bool) -> Iterator[str]:
    names = Names(run)
    columns = ["pid", "tid", "stack"] if threads else ["stack"]
    keys, at = np.unique(stacks[columns], return_inverse=True)
    spans = np.zeros(len(keys), np.int64)
    np.add.at(spans, at, stacks["end"] - stacks["begin"])
    frames = {number: _frames(run.stack_frames[number]) for number in np.unique(stacks["stack"]).tolist()}
    for key, ns in zip(keys.tolist(), spans.tolist(), strict=True):
        if microseconds := (ns + 500) // 1000:
            pid, tid, stack = key if threads else (0, 0, key[0])
            before = f"{escaped(names.process(pid))};{escaped(names.thread(pid, tid))};" if threads else ""
            yield f"{before}{frames[stack]} {microseconds}\n"


def _frames(stack: tuple[Site, ...]) -> str:
    return ";".join(escaped(described(site)) for site in stack)


def escaped(text: str) -> str:
    """`text` as one frame: nothing in it that separates frames or lines."""
    return text.translate(_ESCAPED)
