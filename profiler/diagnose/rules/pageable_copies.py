"""Copies to the device from memory that is not page-locked, which nothing hides."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, device_cost, largest_sites
from profiler.diagnose.rules._input import loader_values, main_loader


def judge(costs: StepCosts) -> Claim | None:
    """The time in which a device only receives from pageable memory. Copies to the host are reads of results, for which
    page-locked memory alone does not help: other rules judge them."""
    claimed = device_cost(costs, lambda part: part.kind == "h2d" and part.memory == "pageable")
    if not claimed:
        return None
    calls = [call for call in costs.analysis.call_sites if call.kind == "h2d"]
    waiting = sorted((call for call in calls if call.blocked_per_step > 0), key=lambda call: -call.blocked_per_step)
    loader = main_loader(costs)
    values = loader_values(costs)
    values["blocked"] = costs.share(sum(call.blocked_per_step for call in waiting)) if waiting else None
    values["unpinned"] = values["batch_size"] if loader and not loader.pin_memory else None
    return Claim(claimed, largest_sites(call.site for call in waiting), values)


PLUGIN = Rule(
    "pageable-copies",
    "Copies of pageable memory keep the device from computing",
    (
        "The device only receives such memory {share:share} of the time.",
        "The host waits {blocked:share} of each step in copies to the device.",
        "The loader does not pin its batches of {unpinned:count} items.",
    ),
    "Put batches into page-locked memory, and copy them without waiting.",
    judge,
    code="{loader:assignment}DataLoader(..., pin_memory=True); batch.to(device, non_blocking=True)",
)
