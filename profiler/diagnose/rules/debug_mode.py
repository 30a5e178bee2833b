"""A debugging mode of torch that was left on."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The Python code of a program with anomaly detection, which records a stack for each operator."""
    if not costs.fact("anomaly_detection"):
        return None
    # which part of the Python is its own is not known: without it, all other Python remains
    return Claim(take(costs, "python"), costs.sites("python"), is_exclusive=False)


PLUGIN = Rule(
    "debug-mode",
    "Anomaly detection is on",
    ("{share:share} of each step is Python: for each operator, torch records the stack that called it.",),
    "Turn it on only while you look for the source of a NaN.",
    judge,
    code="torch.autograd.set_detect_anomaly(False)",
)
