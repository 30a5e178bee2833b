"""Recognizes objects that the program copies with all that they hold, such as a model with its parameters."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import deep_copies, frame_costs, frame_sites, lines_above


def judge(costs: StepCosts) -> Claim | None:
    """The time in `copy.deepcopy`. The program may need some of the copies."""
    lines = deep_copies(costs)
    claimed = frame_costs(lines)
    parameters = lines_above(costs, lambda each: each.name == "Parameter.__deepcopy__")
    # the code is for a model only
    values = {"copied": "copied" if parameters else None}
    return Claim(claimed, frame_sites(lines), values, is_most=True) if claimed else None


PLUGIN = Rule(
    "deep-copies",
    "The program makes deep copies in its steps",
    ("{share:share} of each step is in copy.deepcopy(), which needs new memory for each copy.",),
    "Copy only what is used, as a model that is the best after an evaluation, and reuse an earlier copy.",
    judge,
    code="{copied}.load_state_dict(model.state_dict())",
    knock_out=KnockOut.LINE,
)
