"""Recognizes a rank that makes the others wait."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly, largest_sites

_MUCH: Final = 0.01
"""Part of the lead from which waits for a core are named: the others wait for those too."""

_SHARED: Final = 0.25
"""Part of the straggler's time in a category that the others spend in it, too, from which that is work of all ranks
which is shared unequally. A choice: the straggler then has up to four times as much of it."""


def judge(costs: StepCosts) -> Claim | None:
    """The lead of the straggler's own work: on that rank its own time without waits for a core, on the others waits."""
    ranks = costs.analysis.ranks
    straggler = ranks.straggler if ranks else None
    if ranks is None or straggler is None or not straggler.lead:
        return None
    is_itself = straggler.rank == ranks.analysed and costs.cost(straggler.category).seconds > 0
    category = straggler.category if is_itself else "ranks"
    # the lead is a low figure, which its waits for a core may exceed: it has at least its excess of CPU time of work
    least = min(straggler.lead, straggler.cpu)
    lead = max(least, straggler.lead - straggler.core) if is_itself else straggler.lead
    whole = costs.seconds if costs.has_queue else costs.active
    equal = lead / max(1, len(ranks.ranks))
    shared, without = whole - lead + equal, whole - lead
    is_shared = not straggler.alone and straggler.others >= _SHARED * straggler.seconds > 0
    own = straggler.seconds if straggler.seconds > straggler.others else None  # else no category tells why it is late
    return Claim(
        {category: exactly(lead)},
        largest_sites([straggler.site]),
        {
            "rank": straggler.rank,
            "ranks": len(ranks.ranks),
            "work": lead,
            "core": straggler.core if is_itself and straggler.core > _MUCH * straggler.lead else None,
            "own": own,
            "others": straggler.others,
            "doing": straggler.category,
            "shared": whole / shared if shared > 0 and not is_shared else None,
            "without": whole / without if without > 0 and is_shared else None,
        },
        remaining=equal if is_shared else 0.0,
        is_most=not is_shared,
    )


PLUGIN = Rule(
    "straggling-rank",
    "Rank {rank} makes the training wait",
    (
        "It works {work:time} per step longer than {ranks:others}.",
        "If that work is for all ranks, sharing it equally gives {shared:ratio}.",
        "The gain is that of sharing this work equally. Leaving it out gives {without:ratio}.",
        "It spends {own:time} of each step {doing:activity}, {ranks:others} {others:time}.",
        "It also waits {core:time} per step longer for a free core, which is no part of that work.",
    ),
    "Give each rank the same work, such as batches of equal length: look at what this rank does at that line.",
    judge,
)
