"""Parameters in float64, which a program seldom needs."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import GainMethod
from profiler.diagnose.device import MOST
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._frames import lines_above
from profiler.diagnose.rules._settings import setting_line

_HALF: Final = 0.5


def judge(costs: StepCosts) -> Claim | None:
    """Half of the computing with these parameters, or more with convolutions, whose kernels for float64 are slow."""
    double = costs.number("float64_parameters")
    if not double or double < MOST or costs.has_queue:
        return None
    return Claim(
        {"compute": costs.cost("compute").part(_HALF * double)},
        largest_sites([*setting_line(costs, "float64"), *costs.sites("compute")]),
        {"double": double},
        method=GainMethod.ESTIMATE,
        is_least=bool(lines_above(costs, lambda each: each.file == "torch/nn/modules/conv.py")),
    )


PLUGIN = Rule(
    "float64",
    "The model computes in float64",
    ("{double:share} of its parameters are in float64, twice as wide as float32.",),
    "Use float32 for the model and for its inputs: look for torch.set_default_dtype, .double(), and arrays of NumPy, "
    "which are float64 by default.",
    judge,
    code="model.float()",
    threshold_source="Half of the time: a core does half as many float64 operations at a time. Measured: 2.0 times the "
    "CPU time of matrix products (tests/clinic, case wild/float64); 2.3 to 2.7, 3.5 to 3.8 and 9 to 11 times that of "
    "convolutions with kernels of 1, 3 and 5 (torch 2.13, one core of an AMD EPYC).",
)
