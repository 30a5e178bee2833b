"""Several ranks: communication, and waits for each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler.analyse.model.device import COMMUNICATING
from profiler.analyse.model.finding import GainMethod
from profiler.analyse.model.host import AFTER_OPTIMIZER
from profiler.analyse.model.ledger import Period
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Cost, StepCosts, exactly, largest_sites, rule, take
from profiler.run.model import Site
from profiler.run.tables import REPEATED_GRADIENT_SYNCS


@rule(
    "exposed-communication",
    "Devices communicate while no kernel computes",
    ("They only communicate {share:share} of the time, of {whole:share} in which they communicate at all.",),
    "Overlap it with the backward pass: larger or smaller buckets, fewer synchronized steps, a faster link.",
    threshold=NAMED,  # the last bucket of gradients can seldom be hidden
)
def exposed_communication(costs: StepCosts) -> Claim | None:
    """The time in which a device only communicates."""
    parts = [part for part in costs.analysis.device_parts if part.kind == "communication"]
    claimed = take(costs, COMMUNICATING)
    whole = sum(part.share for part in parts)
    return Claim(claimed, (), {"whole": whole}) if claimed else None


_MOST_STEPS: Final = 0.5
"""Repeated synchronizations per step from which a program accumulates gradients. A choice: it does so in each step."""


@rule(
    "gradient-sync-in-accumulation",
    "All ranks synchronize gradients more than once per optimizer step",
    (
        "DistributedDataParallel synchronizes {repeated:n time} per step more than the optimizer needs.",
        "These synchronizations take {share:share} of each step.",
    ),
    "Let only the last backward pass before the optimizer's step synchronize: run the others within no_sync(), with "
    "their forward passes, which decide whether gradients are synchronized.",
    code="with model.no_sync():  # in all passes but the last one\n"
    "    loss = criterion(model(inputs), targets) / passes\n    loss.backward()",
)
def gradient_sync_in_accumulation(costs: StepCosts) -> Claim | None:
    """The part of the communication, and of waits for other ranks, of all synchronizations of a step but the last."""
    repeated = costs.analysis.value(f"{REPEATED_GRADIENT_SYNCS}_per_step") or 0.0
    if repeated < _MOST_STEPS:
        return None
    needless = repeated / (repeated + 1.0)
    claimed: dict[str, Cost] = {}
    for name in (COMMUNICATING, "ranks"):
        if costs.cost(name).seconds > 0:
            claimed[name] = costs.cost(name).part(needless)
    phase = costs.phase("backward")
    backward = phase.site if phase else None
    sites = largest_sites([forward_before(costs, backward) if backward else None, backward])
    return Claim(claimed, sites, {"repeated": repeated}, method=GainMethod.ESTIMATE) if claimed else None


def forward_before(costs: StepCosts, backward: Site) -> Site | None:
    """Return the line that calls the model for a backward pass: it decides whether gradients are synchronized, so the
    change begins there."""
    cells = costs.analysis.ledger.of(Period.STEPS) if costs.analysis.ledger else ()
    lines = {place for cell in cells if cell.activity == "forward" for place in cell.lines}
    number = max((number for file, number in lines if file == backward.file and number < backward.line), default=0)
    return replace(backward, line=number, source="") if number else None


@rule(
    "exchange-after-update",
    "Ranks exchange data after the optimizer's step",
    ("{share:share} of each step goes to that, besides the exchange of gradients.", "Most of it is in {calls}."),
    "Keep metrics on each rank, and gather them only in the steps that are logged.",
)
def exchange_after_update(costs: StepCosts) -> Claim | None:
    """What ranks wait for each other after the optimizer's step, where no rank is later than the others."""
    phase, ledger = costs.phase(AFTER_OPTIMIZER), costs.analysis.ranks
    if phase is None or not phase.seconds_per_step or costs.has_queue:
        return None
    if ledger is None or ledger.straggler or ledger.reason:
        return None
    waits = phase.categories.get("ranks", 0.0) / phase.seconds_per_step
    backward = costs.phase("backward")
    own = largest_sites([phase.site, *phase.further])
    within = [site for site in costs.sites("ranks") if site in own or (phase.calls and site.function == phase.calls)]
    sites = tuple(site for site in (within or own) if site != (backward.site if backward else None))
    if not waits or not sites:
        return None
    cost = Cost(phase.seconds_per_step, phase.low * costs.seconds, phase.high * costs.seconds).part(waits)
    whole = costs.cost("ranks").seconds
    claimed = {"ranks": cost.part(min(1.0, whole / cost.seconds))}
    if cost.seconds > whole:  # the clocks tell that a part of the exchange runs on a core
        claimed["compute"] = cost.part(1.0 - whole / cost.seconds)
    # a rank that waits less here may wait longer for the others in its next backward pass
    values = {"calls": f"{phase.calls}()" if phase.calls else None}
    return Claim(claimed, sites, values, method=GainMethod.ESTIMATE)


_SHARED: Final = 0.25
"""Part of the straggler's time in a category that the others spend in it, too, from which that is work of all ranks
which is shared unequally. A choice: the straggler then has up to four times as much of it."""


@rule(
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
)
def straggling_rank(costs: StepCosts) -> Claim | None:
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
            "core": straggler.core if is_itself and straggler.core > NAMED * straggler.lead else None,
            "own": own,
            "others": straggler.others,
            "doing": straggler.category,
            "shared": whole / shared if shared > 0 and not is_shared else None,
            "without": whole / without if without > 0 and is_shared else None,
        },
        remaining=equal if is_shared else 0.0,
        is_most=not is_shared,
    )
