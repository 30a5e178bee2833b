"""Tells what a device does or is not used for, and what copies between host and device cost."""

from __future__ import annotations

import ast
import re
from collections.abc import Container
from typing import Final

from profiler.analyse.model.device import COPYING, CallSite
from profiler.analyse.model.finding import Confidence, KnockOut
from profiler.core.syntax import line_nodes
from profiler.diagnose.device import MANY_LAUNCHES, program_blame, too_few_launches
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import (
    MAX_SITES,
    Claim,
    Order,
    RunClaim,
    StepCosts,
    exactly,
    largest_sites,
    rule,
    take,
    total_seconds,
)
from profiler.diagnose.rules._input import loader_values, main_loader
from profiler.diagnose.rules.whole_run import share_of_run
from profiler.run.model import Site

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


# ---------------------------------------------------------------- copies

TO_DEVICE: Final = ("h2d", "d2d")
"""Kinds of copies that give the device its data. Copies to the host are reads of values, which other rules judge."""


def idle_in_copies(costs: StepCosts, sites: Container[Site]) -> dict[Site, float]:
    """Line of these -> seconds per step in which the device is idle while the host copies there, the longest first."""
    idle: dict[Site, float] = {}
    for row in program_blame(costs.analysis):
        if row.category == "copy" and row.site is not None and row.site in sites:
            idle[row.site] = idle.get(row.site, 0.0) + row.seconds_per_step
    return dict(sorted(idle.items(), key=lambda item: -item[1]))


_FILLING: Final = frozenset(
    {"arange", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm"}
    | {"tril_indices", "triu_indices", "zeros"}
)
"""Functions of torch that fill a tensor without data of the host, and take a device."""
_ON_HOST: Final = frozenset({"device", "generator", "out", "pin_memory", None})
"""Arguments with which the tensor is not made on the host, or cannot be made elsewhere; None: they are not known."""


def filled_on_device(source: str) -> str | None:
    """Return the call that fills the tensor on the device, for a line such as `a = torch.zeros(4).to(device)`; else
    None."""
    for node in line_nodes(source):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Call(func=ast.Attribute(value=ast.Name("torch"), attr=name)) as filling,
                    attr="to" | "cuda" as move,
                )
            ) if name in _FILLING and (device := _device(node, move)):
                if _ON_HOST.isdisjoint(keyword.arg for keyword in filling.keywords):
                    filling.keywords.append(ast.keyword("device", device))
                    return ast.unparse(filling)
    return None


def _device(call: ast.Call, method: str) -> ast.expr | None:
    """Return the device that a call of `to` or `cuda` names; None: none, or more than a device."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
    if any(keyword.arg not in ("device", "non_blocking") for keyword in call.keywords) or len(call.args) > 1:
        return None
    device = next(iter([*call.args, *named]), None)
    if device is None:
        return ast.Constant("cuda") if method == "cuda" else None
    if named or isinstance(device, ast.Constant) or ast.unparse(device).startswith("torch.device("):
        return device
    is_named = ast.unparse(device).rpartition(".")[2].lower().endswith(("device", "dev"))
    return device if is_named and isinstance(device, ast.Name | ast.Attribute) else None


@rule(
    "made-on-host",
    "The host fills a tensor and copies it, though the device could fill it",
    ("Such copies per step: {calls:number}.", "The device is idle {share:share} of the time in them."),
    "Create the tensor on the device.",
    code="{instead}",
    knock_out=KnockOut.STATEMENT,
)
def made_on_host(costs: StepCosts) -> Claim | None:
    """The idle time in the copies of lines that fill the copied tensor, without the time to fill it."""
    calls: dict[Site, float] = {}
    instead: dict[Site, str] = {}
    for call in costs.analysis.call_sites:
        if call.kind in TO_DEVICE and (filling := filled_on_device(call.site.source)) is not None:
            calls[call.site] = calls.get(call.site, 0.0) + call.calls_per_step
            instead[call.site] = filling
    idle = idle_in_copies(costs, calls)
    if not idle:
        return None
    sites = tuple(idle)[:MAX_SITES]
    values = {"calls": sum(calls[site] for site in idle), "instead": instead[sites[0]]}
    return Claim({"copy": exactly(sum(idle.values()))}, sites, values)


MANY: Final = 10.0
"""Copies per step of one line. A choice: a batch has a handful of tensors."""
TINY: Final = 1 << 14
"""Bytes of a copy below which its time is that of the call: 1.6 µs at the 10 GB/s of a slow link; a call takes 5 µs."""


@rule(
    "tiny-copies",
    "Many small copies between host and device",
    ("{calls:count} copies per step, of {size:size} each.", "The device is idle {share:share} of the time in them."),
    "Collect the values in one tensor, and copy that once per step.",
    knock_out=KnockOut.STATEMENT,
)
def tiny_copies(costs: StepCosts) -> Claim | None:
    """The idle time in the copies of lines that make many small ones."""
    many: dict[Site, tuple[float, float]] = {}
    for call in costs.analysis.call_sites:
        size = call.bytes_per_step / call.calls_per_step if call.calls_per_step else 0.0
        if call.kind in TO_DEVICE and call.calls_per_step >= MANY and size < TINY:
            many[call.site] = call.calls_per_step, size
    idle = idle_in_copies(costs, many)
    if not idle:
        return None
    sites = tuple(idle)
    values = {"calls": sum(many[site][0] for site in sites), "size": many[sites[0]][1]}
    # one copy also saves the allocation and the Python around each of the others
    return Claim({"copy": exactly(sum(idle.values()))}, sites[:MAX_SITES], values, is_least=True)


_CONSTANT: Final = re.compile(r"(^|_|\.)(mask|mean|std|var|variance|weights?|scale|buffer|table|running_\w+)$")
"""Names of tensors that are hardly a part of a batch."""
_MAKES: Final = ("as_tensor", "tensor", "from_numpy")
"""Functions that make a tensor of what the host has."""


OF_PINNED: Final = (
    "Pass non_blocking=True: this memory is page-locked already, but the host waits for each copy. Where a library "
    "makes the copy, look for its option."
)


def cure_of_copy(source: str) -> str | None:
    """Return what helps where a line copies pageable memory that is hardly a batch, as far as its source tells; else
    None."""
    for node in line_nodes(source):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as tensor, attr="to" | "cuda")):
                name = ast.unparse(tensor)
                if name.startswith("self.") or _CONSTANT.search(name):
                    return (
                        f"If {name} does not change, move it to the device once, before the loop, as "
                        "register_buffer() and model.to(device) do."
                    )
            case ast.ListComp(elt=each) | ast.GeneratorExp(elt=each) if _is_made(each):
                return "Stack all of these values on the host, and copy them at once: each copy of the loop waits."
    return None


def _is_made(node: ast.AST) -> bool:
    called = (ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(name.rpartition(".")[2] in _MAKES for name in called)


def _copying(costs: StepCosts, *kinds: str) -> list[CallSite]:
    """Return the calls that copy, those for which the host waits longest first."""
    calls = (call for call in costs.analysis.call_sites if call.kind in kinds)
    return sorted(calls, key=lambda call: -call.blocked_per_step)


@rule(
    "pageable-copies",
    "Copies to the device make the host wait",
    (
        "The device only receives pageable memory {share:share} of the time.",
        "The host waits {blocked:share} of each step in copies to the device.",
        "The loader does not pin its batches of {unpinned:n item}.",
    ),
    "Put batches into page-locked memory, and copy them without waiting.",
    fixes=("{cure}",),
    code="{loader:assignment}DataLoader(..., pin_memory=True); batch.to(device, non_blocking=True)",
)
def pageable_copies(costs: StepCosts) -> Claim | None:
    """The time in which a device only receives from pageable memory; other rules judge reads of results."""
    parts = costs.analysis.device_parts
    exposed = sum(part.exposed for part in parts if part.kind == "h2d" and part.memory == "pageable")
    if not exposed:
        return None
    waiting = [call for call in _copying(costs, "h2d") if call.blocked_per_step > 0]
    loader = main_loader(costs)
    values = loader_values(costs)
    values["blocked"] = costs.share(sum(call.blocked_per_step for call in waiting)) if waiting else None
    values["unpinned"] = values.get("batch_size") if loader and not loader.pin_memory else None
    sources = [site.source for site in (waiting[0].library, waiting[0].site) if site] if waiting else []
    values["cure"] = next(filter(None, map(cure_of_copy, sources)), None)
    return Claim({COPYING: exactly(exposed * costs.seconds)}, largest_sites(call.site for call in waiting), values)


@rule(
    "exposed-copies",
    "The device copies while no kernel computes",
    ("It only copies {share:share} of the time.",),
    "Copy the next batch while the device computes, on a stream of its own; copy less, or smaller types.",
    threshold=NAMED,  # the first copy of a step can seldom be hidden
    order=Order.REST,
)
def exposed_copies(costs: StepCosts) -> Claim | None:
    """The time in which a device only copies. It gets what other rules leave."""
    claimed = take(costs, COPYING)
    return Claim(claimed, largest_sites(call.site for call in _copying(costs, "h2d", "d2h"))) if claimed else None
