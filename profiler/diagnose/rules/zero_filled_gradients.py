"""Gradients that are filled with zeros instead of dropped: the backward pass then adds to them."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import GainMethod, KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly, total_seconds
from profiler.diagnose.rules._frames import frame_costs, frame_sites, lines_above

_LARGE: Final = 2 << 20
"""Elements of all gradients from which they do not stay in a core's cache: 8 MiB."""
_ADDING: Final = 2.0
"""Seconds of additions in the backward pass for each second of filling large gradients. An addition moves three times
the bytes. Measured: 2 to 2.8 with 2.8 to 13 million elements, 0.2 with a million (torch 2.13, one core of an EPYC)."""


def judge(costs: StepCosts) -> Claim | None:
    """The time in `zero_grad`, where it was called with `set_to_none=False`, and that of the additions. In older runs
    it is known by samples only."""
    fills = costs.analysis.value("zero_fills_per_step")
    if not fills or costs.has_queue:
        return None
    lines = lines_above(costs, lambda each: each.name.endswith("zero_grad") and each.file.startswith("torch/"))
    claimed = frame_costs(lines)
    recorded = costs.analysis.value("zero_fill_ns_per_step")
    if recorded is not None:  # what was recorded contains waits for a core
        claimed = {"compute": exactly(recorded / 1e9 / costs.core_wait_factor)}
    filling = total_seconds(claimed)
    if not filling:
        return None
    optimizers = costs.fact("optimizers") or ()
    if sum(optimizer["elements"] for optimizer in optimizers) >= _LARGE:
        computing = claimed.get("compute", exactly(0.0))
        claimed["compute"] = computing.part(1.0 + _ADDING)
    return Claim(
        claimed, frame_sites(lines), {"fills": fills, "filling": costs.share(filling)}, method=GainMethod.ESTIMATE
    )


PLUGIN = Rule(
    "zero-filled-gradients",
    "Gradients are filled with zeros before each backward pass",
    (
        "{filling:share} of each step fills gradients with zeros, {fills:number} times per step.",
        "The backward pass then adds to them instead of writing them.",
    ),
    "Drop the gradients, which is torch's default.",
    judge,
    code="optimizer.zero_grad(set_to_none=True)",
    threshold_source="_ADDING was measured.",
    knock_out=KnockOut.SETTINGS,
    settings={"set_to_none": True},
)
