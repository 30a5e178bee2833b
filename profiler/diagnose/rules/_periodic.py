"""Checkpoints that a function writes in every so many steps, with its other work for them."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.rule import Cost, StepCosts, exactly

_LEAST: Final = 0.25
"""Least share of recorded writing in the extra time of regular long steps from which all of that is the checkpoint's. A
choice: flushing and moving the file may take longer than writing it, an evaluation before it takes most of the time."""
_OTHERS: Final = ("waiting", "compute", "python", "framework")
"""Categories that the rest of it is in, the likeliest first: the thread waits for the disk."""


def checkpoint_costs(costs: StepCosts) -> dict[str, Cost]:
    """What regular long steps take more than others, where they call the function that writes the checkpoint."""
    spikes, sites = costs.analysis.spikes, costs.sites("checkpoint")
    if spikes is None or not spikes.every or spikes.stage or not spikes.lines or not sites or costs.has_queue:
        return {}
    line, written = spikes.lines[0], costs.cost("checkpoint")
    extra = spikes.share * costs.seconds
    if line.site.file != sites[0].file or line.calls != sites[0].function or written.seconds < _LEAST * extra:
        return {}
    claimed, rest = {"checkpoint": written}, max(0.0, extra - written.seconds)
    for name in _OTHERS:
        seconds = min(rest, costs.cost(name).seconds)
        if seconds:
            claimed[name], rest = exactly(seconds), rest - seconds
    return claimed
