"""Recognizes logging that takes much of each step."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from profiler.analyse.finding import KnockOut
from profiler.core.syntax import line_nodes
from profiler.diagnose.rule import Claim, Rule, StepCosts, take, total_seconds
from profiler.diagnose.rules._frames import frame_costs, lines_above
from profiler.run.model import Site


def judge(costs: StepCosts) -> Claim | None:
    """The time in logging, and in the texts of tensors."""
    claimed = take(costs, "log")
    texts = lines_above(costs, lambda each: each.name == "_str" and each.file == "torch/_tensor_str.py")
    sites = costs.sites("log")
    values = {"texts": costs.share(total_seconds(frame_costs(texts))) or None, "lazy": _lazy_call(sites)}
    return Claim(claimed, sites, values) if claimed else None


def _lazy_call(sites: Iterable[Site]) -> str | None:
    """The call of a logger at the first of these lines that gives it an f-string, with an argument instead."""
    for site in sites:
        for node in line_nodes(site.source):
            match node:
                case ast.Call(func=ast.Attribute(attr="debug" | "info"), args=[ast.JoinedStr(), *_]):
                    return f'{ast.unparse(node.func)}("%s", x)'
    return None


PLUGIN = Rule(
    "logging-in-loop",
    "Logging takes time",
    (
        "{share:share} of each step goes to logging.",
        "{texts:share} of each step makes texts of tensors. An f-string makes them even if its message is not shown.",
    ),
    "Log every 50th step or so, and keep sums of what is logged in between as tensors.",
    judge,
    fixes=(
        (
            "Pass values as arguments, as in {lazy}, which makes no text of a message that is not shown, or ask "
            "isEnabledFor() first. Log what is shown every 50th step or so."
        ),
    ),
    code="if step % 50 == 0:",
    knock_out=KnockOut.LINE,
)
