"""Kernels so short that the host cannot launch them fast enough."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.device import MIN_LAUNCHES
from profiler.diagnose.rule import Claim, Rule, StepCosts, take, total_seconds

_SLOWEST: Final = 1e-3
"""Idle seconds per launch from which something else than launching takes the time, such as the first call of a library:
PyTorch launches an operator in 5 to 50 µs, and in up to 200 µs where it is traced."""


def judge(costs: StepCosts) -> Claim | None:
    """The idle time in which the host launched operators, as far as other rules leave it."""
    launches, busy = costs.analysis.value("launches_per_step"), costs.analysis.value("device_utilization")
    if not costs.has_queue or not launches or launches < MIN_LAUNCHES:
        return None
    # in a trace, launches are among the framework's calls, and other calls set the device up
    claimed = take(costs, "framework") if costs.analysis.is_trace else take(costs, "launch", "framework")
    if total_seconds(claimed) > _SLOWEST * launches:
        return None
    kernel = busy * costs.seconds / launches if busy else None
    values = {"launches": launches, "kernel": kernel, "call": costs.seconds / launches}
    calls = sorted(costs.analysis.call_sites, key=lambda call: -call.calls_per_step)
    sites = tuple(dict.fromkeys(call.site for call in calls if call.kind == "launch"))
    # fewer calls also save the Python around each, and larger kernels use more of the device
    return Claim(claimed, sites[:3], values, is_least=True)


PLUGIN = Rule(
    "many-small-kernels",
    "The host cannot launch kernels as fast as the device runs them",
    (
        "{launches:count} launches per step, one each {call:time}; the device needs {kernel:time} for each.",
        "While the host launches operators, the device is idle: that takes {share:share} of the time.",
    ),
    "Launch fewer and larger kernels: larger batches, fused operators, torch.compile, CUDA graphs.",
    judge,
    threshold_source="MIN_LAUNCHES, in `profiler.diagnose.device`: with fewer launches a step is no training step.",
    is_general=True,
    code='torch.compile(model, mode="reduce-overhead")',
)
