"""The operators of one step by line of the user's code, as `profiler.agent.hooks.operators` counted them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.analyse.model import OperatorLine
from profiler.analyse.sampling.stacks import Stacks
from profiler.run.model import Site
from profiler.run.tables import OPERATORS


def operator_lines(stacks: Stacks) -> tuple[OperatorLine, ...]:
    """The operators of each line, for each of forward and backward, the most seconds first; empty if not counted."""
    fact = stacks.run.info.facts.get(OPERATORS)
    rows = fact.get("lines", []) if isinstance(fact, Mapping) else []
    sums: dict[tuple[Site | None, bool, str], np.ndarray[Any, np.dtype[np.float64]]] = {}
    for frames, is_backward, caller, *amounts in rows:
        sites = (Site(*frame) for frame in frames)
        site = next((site for site in sites if stacks.is_user(site)), None)
        key = (stacks.relative(site) if site else None, bool(is_backward), str(caller))
        sums[key] = sums.get(key, np.zeros(4)) + amounts
    lines = [
        OperatorLine(*key, int(count), float(seconds), int(small), float(small_seconds))
        for key, (count, seconds, small, small_seconds) in sums.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.seconds))
