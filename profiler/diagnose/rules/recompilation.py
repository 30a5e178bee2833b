"""Recognizes code that torch.compile compiles again and again."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import Stage
from profiler.diagnose.rule import Claim, Rule, StepCosts, phase_costs

_OFTEN: Final = 3.0
"""Compilations again in the measured steps from which they go on. A choice: torch compiles again once for each shape
that it then takes to be dynamic, such as that of a last batch."""


def judge(costs: StepCosts) -> Claim | None:
    """The time in which torch.compile compiles within measured steps, where it compiles the same code repeatedly."""
    phase, times = costs.phase(Stage.COMPILE), costs.analysis.value("recompilations_per_step") or 0.0
    steps = costs.analysis.value("steps") or 0.0
    if phase is None or costs.has_queue or times * steps < _OFTEN:
        return None
    values = {"times": times * steps, "steps": steps}
    # each call also searches the versions that were compiled before
    return Claim(*phase_costs(costs, phase), values, is_least=True)


PLUGIN = Rule(
    "recompilation",
    "torch.compile compiles code again within the steps",
    (
        "{share:share} of each step is compilation.",
        "Code is compiled again {times:count} times in {steps:count} steps.",
    ),
    "Keep shapes and Python values that the compiled code depends on the same, or mark those that change as dynamic.",
    judge,
    code="torch.compile(model, dynamic=True)",
    threshold_source="_OFTEN is a choice.",
)
