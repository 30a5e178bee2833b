"""What a device does, or is not used for."""

from __future__ import annotations

import re
from typing import Final

from profiler.analyse.model.finding import Confidence
from profiler.diagnose.device import MANY_LAUNCHES, too_few_launches
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Order, RunClaim, StepCosts, rule, take, total_seconds
from profiler.diagnose.rules.whole_run import share_of_run

_SLOWEST: Final = 1e-3
"""Idle seconds per launch, or seconds per kernel, from which something else than launching takes the time: PyTorch
launches an operator in 5 to 50 µs, and in up to 200 µs where it is traced."""


@rule(
    "many-small-kernels",
    "The host cannot launch kernels as fast as the device runs them",
    (
        "{launches:count} launches per step, one each {call:time}; the device needs {kernel:time} for each.",
        "While the host launches operators, the device is idle: that takes {share:share} of the time.",
    ),
    "Launch fewer and larger kernels: larger batches, fused operators, torch.compile, CUDA graphs.",
    order=Order.REST,
    code='torch.compile(model, mode="reduce-overhead")',
)
def many_small_kernels(costs: StepCosts) -> Claim | None:
    """The idle time in which the host launched operators. It gets what other rules leave."""
    launches, busy = costs.analysis.value("launches_per_step"), costs.analysis.value("device_utilization")
    if not costs.has_queue or not launches or launches < MANY_LAUNCHES or too_few_launches(costs.analysis):
        return None
    # in a trace, launches are among the framework's calls, and other calls set the device up
    claimed = take(costs, "framework") if costs.analysis.is_trace else take(costs, "launch", "framework")
    kernel = busy * costs.seconds / launches if busy else None
    whole = total_seconds(claimed)
    if costs.is_little(whole) or max(whole / launches, kernel or 0.0) > _SLOWEST:
        return None
    once = sum(row.seconds_per_step for row in costs.analysis.idle if row.is_once)
    values = {"launches": launches, "kernel": kernel, "call": (costs.seconds - once) / launches}
    calls = sorted(costs.analysis.call_sites, key=lambda call: -call.calls_per_step)
    sites = tuple(dict.fromkeys(call.site for call in calls if call.kind == "launch"))
    # fewer calls also save the Python around each, and larger kernels use more of the device
    return Claim(claimed, sites[:3], values, is_least=True)


_VARIABLE = "CUDA_LAUNCH_BLOCKING"


@rule(
    "blocking-launches",
    "The host waits for each kernel that it launches",
    (
        f"The environment variable {_VARIABLE} is set.",
        "While the host launches operators, the device is idle: that takes {share:share} of the time.",
    ),
    "Set it only while you look for the source of an error of CUDA.",
    code=f"unset {_VARIABLE}",
)
def blocking_launches(costs: StepCosts) -> Claim | None:
    """The idle time while operators are launched. How much of it would be hidden otherwise is not known."""
    variables = costs.fact("debug_variables") or {}
    if _VARIABLE not in variables or not costs.has_queue:
        return None
    return Claim(take(costs, "launch", "framework"), costs.sites("launch"), has_gain=False)


@rule(
    "gpu-unused",
    "A GPU is visible, and the program does not use it",
    ("The machine has {name}; all operators run on the CPU.", "Computing takes {share:share} of each step."),
    "Move the model and each batch to the GPU.",
    code='device = "cuda"; model.to(device); inputs = inputs.to(device)',
    threshold=NAMED,  # a program that hardly computes would not become faster
)
def gpu_unused(costs: StepCosts) -> Claim | None:
    """The computing of a program on the CPU of a machine with a GPU. What a GPU would save is not known."""
    devices = costs.analysis.info.devices
    if costs.analysis.is_trace:  # whose device may only not be recorded
        return None
    if not devices or costs.fact("device") != "cpu":
        return None
    name = str(devices[0].get("name", "a GPU"))
    return Claim(take(costs, "compute"), costs.sites("compute"), {"name": name}, has_gain=False)


_MUCH_FLOAT32: Final = 0.2
"""Share of the time from which they are told. A choice: half of it gives 10% where products become twice as fast."""
_TENSOR_CORES: Final = re.compile(
    r"\b(V100S?|Quadro GV100|T4G?|TITAN (V|RTX)|RTX|A\d{1,4}[GX]?|L2|L4|L20|L40[SG]?|H\d{2,3}|GH200|GB10|G?B\d{3})\b"
)
"""Names of NVIDIA's GPUs since Volta that have tensor cores. GeForce GTX 16 and the T400 to T2000 for workstations, all
of the Turing generation, have none."""


@rule(
    "precision-unused",
    "Matrix products are computed in float32 without tensor cores",
    ("{products:share} of the time the {device} computes products and convolutions in float32.",),
    "Try autocast, or on GPUs since Ampere torch.set_float32_matmul_precision('high'), and compare the loss.",
    code='with torch.autocast("cuda"): loss = criterion(model(inputs), labels)',
)
def precision_unused(costs: StepCosts) -> RunClaim | None:
    """The time of such products. How much faster they become depends on their sizes and on the device, and whether the
    training allows it is for its owner to tell: no gain is predicted."""
    share = costs.analysis.float32_products
    names = sorted({str(device.get("name") or "") for device in costs.analysis.info.devices})
    if share < _MUCH_FLOAT32 or len(names) != 1 or not _TENSOR_CORES.search(names[0]):
        return None
    seconds = share * costs.seconds * (costs.analysis.value("steps") or 0.0)
    values = {"device": names[0], "products": share}
    return RunClaim(seconds, share_of_run(costs, seconds), values=values, confidence=Confidence.MEDIUM)
