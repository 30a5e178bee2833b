"""Recognizes a tensor that the host fills and then copies, where the device could fill it."""

from __future__ import annotations

import ast
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.core.syntax import line_nodes
from profiler.diagnose.rule import MAX_SITES, Claim, Rule, StepCosts, exactly
from profiler.diagnose.rules._copies import TO_DEVICE, idle_in_copies
from profiler.run.model import Site

_FILLING: Final = frozenset(
    {"arange", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm"}
    | {"tril_indices", "triu_indices", "zeros"}
)
"""Functions of torch that fill a tensor without data of the host, and take a device."""
_ON_HOST: Final = frozenset({"device", "generator", "out", "pin_memory", None})
"""Arguments with which the tensor is not made on the host, or cannot be made elsewhere; None: they are not known."""


def judge(costs: StepCosts) -> Claim | None:
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


def filled_on_device(source: str) -> str | None:
    """The call that fills the tensor on the device, for `torch.zeros(4).to(device)` and the like in a line of source.

    None where the line has no such call, or is only a part of a statement.
    """
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
    """The device that a call of `to` or `cuda` names; None: none, or more than a device."""
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


PLUGIN = Rule(
    "made-on-host",
    "The host fills a tensor and copies it, though the device could fill it",
    ("Such copies per step: {calls:number}.", "The device is idle {share:share} of the time in them."),
    "Create the tensor on the device.",
    judge,
    code="{instead}",
    threshold_source="The line itself shows that the tensor is filled without data of the host.",
    knock_out=KnockOut.STATEMENT,
)
