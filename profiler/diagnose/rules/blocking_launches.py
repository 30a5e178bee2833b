"""Recognizes a setting for debugging that makes the host wait for each kernel that it launches."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, take

_VARIABLE = "CUDA_LAUNCH_BLOCKING"


def judge(costs: StepCosts) -> Claim | None:
    """The idle time while operators are launched. How much of it would be hidden otherwise is not known."""
    variables = costs.fact("debug_variables") or {}
    if _VARIABLE not in variables or not costs.has_queue:
        return None
    return Claim(take(costs, "launch", "framework"), costs.sites("launch"), has_gain=False)


PLUGIN = Rule(
    "blocking-launches",
    "The host waits for each kernel that it launches",
    (
        f"The environment variable {_VARIABLE} is set.",
        "While the host launches operators, the device is idle: that takes {share:share} of the time.",
    ),
    "Set it only while you look for the source of an error of CUDA.",
    judge,
    code=f"unset {_VARIABLE}",
)
