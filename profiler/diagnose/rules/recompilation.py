"""Code that torch.compile compiles again and again."""

from __future__ import annotations

from profiler.analyse.model import Stage
from profiler.diagnose.rule import Claim, Rule, StepCosts, phase_costs


def judge(costs: StepCosts) -> Claim | None:
    """The time in which torch.compile compiles within measured steps."""
    phase = costs.phase(Stage.COMPILE)
    if phase is None or costs.has_queue:
        return None
    return Claim(*phase_costs(costs, phase), {"times": costs.analysis.value("recompilations_per_step") or None})


PLUGIN = Rule(
    "recompilation",
    "torch.compile compiles code within the steps",
    ("{share:share} of each step is compilation.", "Code is compiled again {times:number} times per step."),
    "Keep shapes and Python values that the compiled code depends on the same, or mark those that change as dynamic.",
    judge,
    code="torch.compile(model, dynamic=True)",
)
