"""Which of a program's optimizers, or loaders, ends a round of them: by the order in which they came.

A phase is a stretch whose names occur in no other: one optimizer trains after the other. Within a phase the leader ends
each round: the seldomest name, where it is no rare extra. Where the leader comes in bursts, what came between two of
them is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.run.model import Table

SELDOM: Final = 10
"""What comes less than once in so many of the most frequent one does not lead."""
SPAN: Final = 0.5
"""What is met over less than this share of the longest does not lead: it may be gone, or not have come yet."""
A_FEW: Final = 0.4
"""The usual round is no longer than this share of all rounds is: of two in a burst, one after the other, it is one."""
PHASE_ROUNDS: Final = 50
"""So many usual rounds without the leader are no round, but another phase between two of its own."""
THREADS: Final = 8
"""Of so many threads it is asked whether they do the same; more of them tell nothing new."""

Numbers = npt.NDArray[np.int64]


def phase_starts(names: Numbers) -> Numbers:
    """Rows at which a phase begins, 0 among them. A name that came once makes no phase: it lies in that around it."""
    _, first, counts = np.unique(names, return_index=True, return_counts=True)
    last = len(names) - 1 - np.unique(names[::-1], return_index=True)[1]
    often = np.flatnonzero(counts > 1)
    often = often[np.argsort(first[often], kind="stable")]
    if not len(often):
        return np.zeros(1, np.int64)
    until = np.maximum.accumulate(last[often])
    fresh = np.flatnonzero(first[often][1:] > until[:-1]) + 1
    return np.concatenate([[0], first[often][fresh]]).astype(np.int64)


def round_ends(names: Numbers) -> Numbers:
    """Rows of one phase that end a round, ascending."""
    ends: list[Numbers] = []
    open_parts = [(0, len(names))]
    while open_parts:
        start, stop = open_parts.pop()
        own = _of_leader(names[start:stop])
        ends.append(start + own)
        open_parts += [(start + begin, start + end) for begin, end in _apart(own, stop - start)]
    return np.sort(np.concatenate(ends))


def _of_leader(names: Numbers) -> Numbers:
    kinds, first, counts = np.unique(names, return_index=True, return_counts=True)
    if len(kinds) == 1:
        return np.arange(len(names), dtype=np.int64)
    span = len(names) - 1 - np.unique(names[::-1], return_index=True)[1] - first
    leading = np.flatnonzero((span >= SPAN * span.max()) & (counts * SELDOM >= counts.max()))
    if not len(leading):
        leading = np.array([int(np.argmax(counts))])
    equal = leading[counts[leading] <= counts[leading].min() + 1]  # one of a round may have been cut off
    return np.flatnonzero(names == kinds[equal[np.argmax(first[equal])]])


def _apart(own: Numbers, length: int) -> list[tuple[int, int]]:
    """Stretches between the leader's rows `own`, before and after them that belong to none of its rounds."""
    gaps = np.diff(own)
    if not len(gaps):
        return []  # the leader came once, and so did all others: it is one round
    usual = int(np.sort(gaps)[int(A_FEW * (len(gaps) - 1))])
    wide = gaps > 2 * usual
    bursts = gaps[wide].sum() > 0.5 * gaps.sum()  # most of what happened, happened between them
    if not bursts:
        wide = gaps > PHASE_ROUNDS * usual
    found = [(int(own[at]) + 1, int(own[at + 1])) for at in np.flatnonzero(wide).tolist()]
    for begin, end in ((0, int(own[0])), (int(own[-1]) + 1, length)):
        if end - begin > 2 * usual:
            found.append((begin, end))
    return found


def side_by_side(rows: Table, texts: Sequence[str]) -> list[Table]:
    """The rows of each thread, where threads do the same at the same time; else all rows of the process together.

    Threads do the same where one line made what each of them steps: one for all, or one for each. Of a thread that
    steps several from one line another may step the rest of a model.
    """
    tids, counts = np.unique(rows["tid"], return_counts=True)
    busy = tids[(counts > 2) & (2 * counts >= counts.max(initial=0))][:THREADS].tolist()
    if len(busy) < 2:
        return [rows]
    at = [np.flatnonzero(rows["tid"] == tid) for tid in busy]
    together = min(int(own[-1]) for own in at) - max(int(own[0]) for own in at)
    lines = [[_line(texts[name]) for name in np.unique(rows["name"][own]).tolist()] for own in at]
    same = set.intersection(*map(set, lines))
    if 2 * together < len(rows) or not same or any(len(set(own)) < len(own) for own in lines):
        return [rows]
    return [rows[rows["tid"] == tid] for tid in tids.tolist()]


def _line(name: str) -> str:
    """The name without the number that tells apart what one line made."""
    line, _, number = name.rpartition(" #")
    return line if number.isdigit() else name
