"""Recognizes torch's profiler, which the program itself runs in its steps."""

from __future__ import annotations

from typing import Final

from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._frames import frame_costs, frame_sites, lines_above
from profiler.diagnose.rules._settings import setting_line

_FILE: Final = "torch/profiler/profiler.py"
_FUNCTIONS: Final = ("profile.step", "_KinetoProfile.start", "profile.start", "_KinetoProfile.stop", "profile.stop")
"""Functions of that file that a program calls in or between its steps: they start and stop the profiler, and make a
table or a trace of what it recorded."""


def judge(costs: StepCosts) -> Claim | None:
    """The time in which the profiler starts, stops and makes its results. What it takes in operators is not known."""
    if costs.has_queue:
        return None
    lines = lines_above(costs, lambda each: each.file == _FILE and each.name in _FUNCTIONS)
    claimed = frame_costs(lines)
    sites = largest_sites([*setting_line(costs, "profiler"), *frame_sites(lines)])
    return Claim(claimed, sites, is_least=True) if claimed else None


PLUGIN = Rule(
    "profiler-left-on",
    "torch's profiler runs in the steps",
    ("{share:share} of each step goes to its starts, its ends and its results. It also makes operators slower.",),
    "Profile a few steps only, and turn it off afterwards.",
    judge,
    code="schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)",
)
