"""Recognizes objects that the program copies with all that they hold, such as a model with its parameters."""

from __future__ import annotations

import ast

from profiler.analyse.finding import KnockOut
from profiler.core.syntax import parsed_line
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import deep_copies, frame_costs, frame_sites, lines_above


def judge(costs: StepCosts) -> Claim | None:
    """The time in `copy.deepcopy`. The program may need some of the copies."""
    lines = deep_copies(costs)
    claimed = frame_costs(lines)
    if not claimed:
        return None
    sites, parameters = frame_sites(lines), lines_above(costs, lambda each: each.name == "Parameter.__deepcopy__")
    # the code is for a model only
    copied, model = (_names(sites[0].source) if parameters and sites else None) or ("copied", "model")
    values = {"copied": copied if parameters else None, "model": model}
    return Claim(claimed, sites, values, is_most=True)


def _names(source: str) -> tuple[str, str] | None:
    """`target` and `net` of `target = copy.deepcopy(net)`; None where the line is another statement."""
    match parsed_line(source):
        case ast.Module(body=[ast.Assign(targets=[target], value=ast.Call(func=function, args=[model]))]):
            names = ast.unparse(target), ast.unparse(model)
            return names if ast.unparse(function).endswith("deepcopy") else None
    return None


PLUGIN = Rule(
    "deep-copies",
    "The program makes deep copies in its steps",
    ("{share:share} of each step is in copy.deepcopy(), which needs new memory for each copy.",),
    "Copy only what is used, such as a model that is the best after an evaluation, and reuse an earlier copy.",
    judge,
    code="{copied}.load_state_dict({model}.state_dict())",
    knock_out=KnockOut.LINE,
)
