"""Recognizes logging that takes much of each step."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, take, total_seconds
from profiler.diagnose.rules._frames import frame_costs, lines_above


def judge(costs: StepCosts) -> Claim | None:
    """The time in logging, and in the texts of tensors."""
    claimed = take(costs, "log")
    texts = lines_above(costs, lambda each: each.name == "_str" and each.file == "torch/_tensor_str.py")
    values = {"texts": costs.share(total_seconds(frame_costs(texts))) or None}
    return Claim(claimed, costs.sites("log"), values) if claimed else None


PLUGIN = Rule(
    "logging-in-loop",
    "Logging takes time",
    (
        "{share:share} of each step goes to logging.",
        "{texts:share} of each step makes texts of tensors. An f-string makes them even if its message is not shown.",
    ),
    "Log every 50th step or so, and keep sums of what is logged in between as tensors.",
    judge,
    code="if step % 50 == 0:",
    knock_out=KnockOut.LINE,
)
