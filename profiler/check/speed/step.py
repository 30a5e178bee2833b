"""Which of the moments that a program comes by ends a step: said while it runs, from the order in which they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from profiler.run.tables import MARK, BoundaryKind

ROUNDS: Final = 3
"""So often what ends a step must have been seen."""
BATCHES: Final = 64
"""Batches without an optimizer's step among them, after which a batch is a step: more are seldom gathered for one."""
MOST: Final = 1 << 14
"""Moments after which no more are waited for."""


def chosen(seen: Sequence[str]) -> str | None:
    """The key of the moments that end a step; None: too little has been seen yet.

    As at load (profiler.run.steps): what the program marks, else the optimizer that ends a round of them, else the
    loader.
    """
    if MARK in seen:
        return MARK
    for kind, enough in ((BoundaryKind.OPTIMIZER, 0), (BoundaryKind.LOADER, BATCHES)):
        own = [key for key in seen if key.startswith(f"{int(kind)} ")]
        if len(own) < max(ROUNDS, enough):
            if own and kind is BoundaryKind.OPTIMIZER and len(seen) < MOST:
                return None
            continue
        leader, count = _leader(own)
        if count >= ROUNDS or len(seen) >= MOST:
            return leader
    return None


def in_words(key: str) -> str:
    """What a step is, for people."""
    if key == MARK:
        return "steps as the program marks them"
    kind, _, name = key.partition(" ")
    return f"{'batches' if kind == str(int(BoundaryKind.LOADER)) else 'steps'} of {name}"


def _leader(keys: Sequence[str]) -> tuple[str, int]:
    """What ends most rounds, and how many."""
    import numpy as np

    from profiler.run.cycles import round_ends

    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    names = np.array([numbers[key] for key in keys], np.int64)
    ends = Counter(keys[at] for at in round_ends(names).tolist())
    return ends.most_common(1)[0]
