"""Recognizes another Python thread that holds the GIL while the training thread needs it."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import Analysis, ThreadActivity
from profiler.diagnose.device import MOST
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, take
from profiler.run.model import Site


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
    """The line with most samples of a thread, in whatever state; None unless its function has most of all."""
    if not holder.lines:
        return holder.site if holder.share_at_site > MOST else None
    main = max(holder.lines, key=lambda line: line.share)
    function = main.site.file, main.site.function
    share = sum(line.share for line in holder.lines if (line.site.file, line.site.function) == function)
    return main.site if share > MOST else None


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
