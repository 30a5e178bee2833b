"""Recognizes an optimizer that updates each parameter by operators of its own, where one call could update all."""

from __future__ import annotations

from typing import Any, Final

from profiler.analyse.finding import GainMethod, KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, total_seconds
from profiler.diagnose.rules._frames import frame_costs, frame_sites, lines_above
from profiler.run.model import Site

_FUSED: Final = ("torch.optim.adam.Adam", "torch.optim.adamw.AdamW")
"""Optimizers whose fused update was measured on a CPU. That of SGD was 0.9 to 4.8 times as fast."""
_REMAINING: Final = 0.25
"""Part of the update that a fused one takes."""


def judge(costs: StepCosts) -> Claim | None:
    """The time of torch's functions that update one tensor after the other. With torch's default settings, which are no
    mistake of the program's on a CPU, no gain is claimed."""
    optimizer = _optimizer(costs)
    if optimizer is None or costs.has_queue or costs.fact("device") != "cpu":
        return None
    lines = lines_above(
        costs, lambda each: each.name.startswith("_single_tensor_") and each.file.startswith("torch/optim/")
    )
    claimed = frame_costs(lines)
    total = total_seconds(claimed)
    made = Site.from_fact(optimizer) if "file" in optimizer else None
    name = str(optimizer["class"]).rpartition(".")[2]
    is_chosen = optimizer["foreach"] is False or optimizer["fused"] is False
    return Claim(
        claimed,
        largest_sites([made, *frame_sites(lines)]),
        {"optimizer": name, "tensors": optimizer["tensors"], "variable": optimizer.get("variable", "")},
        remaining=_REMAINING * total,
        method=GainMethod.ESTIMATE,
        has_gain=is_chosen,
    )


def _optimizer(costs: StepCosts) -> dict[str, Any] | None:
    """The only optimizer, where a fused one can do the same."""
    optimizers = costs.fact("optimizers")
    if not isinstance(optimizers, list) or len(optimizers) != 1:
        return None
    optimizer: dict[str, Any] = optimizers[0]
    is_fit = optimizer["class"] in _FUSED and optimizer["devices"] == ["cpu"] and not optimizer["differentiable"]
    return optimizer if is_fit and _has_fused(str(costs.fact("torch") or "")) else None


def _has_fused(version: str) -> bool:
    """Whether this version of torch has fused optimizers for the CPU: those from 2.4 on have."""
    numbers = version.split(".")[:2]
    return all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) >= (2, 4)


PLUGIN = Rule(
    "single-tensor-optimizer",
    "The optimizer updates one tensor after the other",
    ("{share:share} of each step goes to the update of {tensors:count} tensors.",),
    "Let one call update all of them.",
    judge,
    code="{variable:assignment}{optimizer}(..., fused=True)",
    threshold_source="A fused update of Adam or AdamW takes 0.14 to 0.24 of the time: 200 tensors of 64 elements, 40 "
    "of 16,384 and 6 of a million (torch 2.13, one core of an EPYC).",
    knock_out=KnockOut.SETTINGS,
    settings={"optimizer": {"fused": True, "foreach": False}},
)
