"""The operators of one step by line of the user's code, as `profiler.agent.hooks.operators` counted them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from profiler.analyse.model import OperatorLine
from profiler.analyse.sampling.stacks import Stacks
from profiler.run.model import Site, Table
from profiler.run.tables import COUNTED_STEPS, OPERATORS


def operator_lines(stacks: Stacks) -> tuple[OperatorLine, ...]:
    """The operators of each line, for each of forward and backward, the most seconds first; empty if not counted."""
    fact = stacks.run.info.facts.get(OPERATORS)
    if not isinstance(fact, Mapping):
        return ()
    times = _parts(stacks.run.steps, fact)
    sums: dict[tuple[Site | None, bool, str], np.ndarray[Any, np.dtype[np.float64]]] = {}
    for frames, is_backward, caller, *amounts in fact.get("lines", []):
        sites = (Site(*frame) for frame in frames)
        site = next((site for site in sites if stacks.is_user(site)), None)
        key = (stacks.relative(site) if site else None, bool(is_backward), str(caller))
        sums[key] = sums.get(key, np.zeros(4)) + times * np.array(amounts, np.float64)
    lines = [
        OperatorLine(*key, round(count), float(seconds), round(small), float(small_seconds))
        for key, (count, seconds, small, small_seconds) in sums.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.seconds))


def _parts(steps: Table, fact: Mapping[str, Any]) -> float:
    """How many of the counted steps a step has. Where no marked step ended meanwhile, they are those of an optimizer.
    How long they took tells how many of them a marked step has, at least, since counting makes them longer.
    """
    begin, end, measured = fact.get("begin"), fact.get("end"), steps[steps["warmup"] == 0]
    if not isinstance(begin, int) or not isinstance(end, int) or end <= begin or not len(measured):
        return 1.0
    ends = steps["end"]
    if ((ends > begin) & (ends <= end)).any():
        return 1.0
    seconds = float((measured["end"] - measured["begin"]).mean())
    return max(1.0, seconds * COUNTED_STEPS / (end - begin))
