"""Recognizes another Python thread that holds the GIL while the training thread needs it."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import Analysis, LineCost, ThreadActivity, ThreadState
from profiler.diagnose.device import MOST
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, take
from profiler.run.model import Site

_WAITS: Final = (ThreadState.LOCK, ThreadState.NETWORK, ThreadState.CHILD, ThreadState.IDLE)
"""States of a thread that waits and leaves the GIL to others."""


def judge(costs: StepCosts) -> Claim | None:
    """The waits for the GIL."""
    claimed = take(costs, "gil")
    if not claimed:
        return None
    holder = gil_holder(costs.analysis)
    site = _main_line(holder) if holder else None
    held = holder.gil if holder else None
    values = {"held": held, "holder": site, "thread_site": holder.site if holder else None}
    return Claim(claimed, largest_sites([site]) or costs.sites("gil"), values, is_least=True)


def _main_line(holder: ThreadActivity) -> Site | None:
    """The line at which a thread most often runs, or waits for the GIL or a core; None unless its function has most of
    this time."""
    if not holder.lines:
        return holder.site if holder.share_at_site > MOST else None
    shares = [(line.share * _running_part(line), line.site) for line in holder.lines]
    _, main = max(shares, key=itemgetter(0))
    of_function = sum(share for share, site in shares if (site.file, site.function) == (main.file, main.function))
    waiting = sum(share for state, share in holder.states if state in _WAITS)
    return main if of_function > MOST * (1.0 - waiting) else None


def _running_part(line: LineCost) -> float:
    """The part of the time at this line in which the thread does not wait without the GIL."""
    whole = sum(line.categories.values())
    return 1.0 - sum(line.categories.get(state, 0.0) for state in _WAITS) / whole if whole else 1.0


def gil_holder(analysis: Analysis) -> ThreadActivity | None:
    """The thread beside the main one that held the GIL most; None where no window saw one hold it."""
    main = next((thread for thread in analysis.threads if thread.tid == thread.pid), None)
    others = [thread for thread in analysis.threads if main and thread.pid == main.pid and thread is not main]
    holder = max(others, key=lambda thread: thread.gil or 0.0, default=None)
    return holder if holder and (holder.gil or 0.0) >= NAMED else None


PLUGIN = Rule(
    "thread-holds-gil",
    "Another Python thread holds the GIL while the training thread waits for it",
    ("{share:share} of each step waits for the GIL.", "That thread holds it {held:share} of the time."),
    "Move the work of that thread to a process of its own, or into code that releases the GIL.",
    judge,
    knock_out=KnockOut.THREAD,
)
