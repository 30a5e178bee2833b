"""Recognizes memory of the training process that grows from step to step, until it is full."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import Confidence
from profiler.diagnose.rule import Rule, RunClaim, StepCosts

_LEAST_BYTES: Final = 32 << 20
_LEAST_SHARE: Final = 0.05
"""Growth in the recorded steps from which it is told, in bytes and as a share of the largest memory. A choice: in a
healthy program, allocators and caches grow by some MB."""


def judge(costs: StepCosts) -> RunClaim | None:
    """The growth of memory that is not the page cache's, where it goes on throughout the run. It costs no time yet."""
    growth, peak = costs.analysis.measures.get("memory_growth"), costs.analysis.value("peak_memory")
    steps = costs.analysis.value("steps") or 0.0
    if growth is None or growth.value is None or not peak:
        return None
    total = growth.value * steps
    if total < max(_LEAST_BYTES, _LEAST_SHARE * peak):
        return None
    return RunClaim(
        values={"growth": growth.value, "low": growth.low, "high": growth.high, "total": total, "steps": steps},
        confidence=Confidence.MEDIUM,  # a buffer that is still being filled grows alike
    )


PLUGIN = Rule(
    "memory-creep",
    "The memory of the training process grows with each step",
    (
        "It grows by {growth:size} per step, {total:size} in {steps:count} steps.",
        "In the slowest third of the run it grows by {low:size} per step, in the fastest by {high:size}.",
        "A replay buffer, or a dataset that is cached in the first epoch, grows like this too until it is full.",
    ),
    "Look for a list, a cache or a sum that keeps tensors with their graphs: store loss.item() or loss.detach().",
    judge,
    code="history.append(loss.detach())",
    threshold_source="32 MiB and a twentieth of the memory: a choice. It grows in each third of the run.",
)
