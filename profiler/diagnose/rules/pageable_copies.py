"""Copies from memory that is not page-locked, which make the host wait and which nothing hides."""

from __future__ import annotations

from profiler.diagnose.rule import COPIES, Claim, Rule, StepCosts, copy_sites, device_cost


def judge(costs: StepCosts) -> Claim | None:
    """The time in which a device only copies from or to pageable memory."""
    claimed = device_cost(costs, lambda part: part.kind in COPIES and part.memory == "pageable")
    return Claim(claimed, copy_sites(costs)) if claimed else None


PLUGIN = Rule(
    "pageable-copies",
    "Copies of pageable memory keep the device from computing",
    ("The device only copies such memory {share:share} of the time.", "The host waits for each of these copies."),
    "Let the loader put batches into page-locked memory, and copy them without waiting.",
    judge,
    code="DataLoader(..., pin_memory=True); batch.to(device, non_blocking=True)",
)
