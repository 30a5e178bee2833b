"""Recognizes a GPU that is there and that the program never uses."""

from __future__ import annotations

from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, take


def judge(costs: StepCosts) -> Claim | None:
    """The computing of a program on the CPU of a machine with a GPU. What a GPU would save is not known."""
    devices = costs.analysis.info.devices
    if not devices or costs.fact("device") != "cpu":
        return None
    name = str(devices[0].get("name", "a GPU"))
    return Claim(take(costs, "compute"), costs.sites("compute"), {"name": name}, has_gain=False)


PLUGIN = Rule(
    "gpu-unused",
    "A GPU is visible, and the program does not use it",
    ("The machine has {name}; all operators run on the CPU.", "Computing takes {share:share} of each step."),
    "Move the model and each batch to the GPU.",
    judge,
    code='device = "cuda"; model.to(device)',
    threshold=NAMED,
    threshold_source="A tenth: a program that hardly computes would not become faster.",
)
