"""A rank that makes the others wait."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly, largest_sites

_MUCH: Final = 0.01
"""Part of the lead from which waits for a core are named: the others wait for those too."""


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
    shared = whole - lead * (1.0 - 1.0 / max(1, len(ranks.ranks)))
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
            "shared": whole / shared if shared > 0 else None,
        },
        is_most=True,
    )


PLUGIN = Rule(
    "straggling-rank",
    "Rank {rank} makes the training wait",
    (
        "It works {work:time} per step longer than {ranks:others}.",
        "If that work is for all ranks, sharing it equally gives {shared:ratio}.",
        "It spends {own:time} of each step {doing:activity}, {ranks:others} {others:time}.",
        "It also waits {core:time} per step longer for a free core, which is no part of that work.",
    ),
    "Give each rank the same work: look at what this rank does at that line.",
    judge,
)
