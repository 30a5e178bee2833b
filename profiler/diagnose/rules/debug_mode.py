"""Recognizes a debugging mode of torch that was left on."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts, exactly, largest_sites, total_seconds
from profiler.diagnose.rules._frames import frame_costs, frame_sites, lines_above
from profiler.diagnose.rules._settings import setting_line
from profiler.run.tables import OPERATORS


def judge(costs: StepCosts) -> Claim | None:
    """The time in which anomaly detection records a stack for each operator, and looks for NaN in each gradient."""
    if not costs.fact("anomaly_detection") or costs.has_queue:
        return None
    # torch calls this function for each operator: the one of the standard library, or torch.fx's of the same name
    lines = lines_above(costs, lambda each: each.name == "format_stack" and each.file.endswith("traceback.py"))
    claimed = frame_costs(lines, "python")
    operators = costs.fact(OPERATORS)
    checks = operators.get("nan_checks", 0.0) if isinstance(operators, Mapping) else 0.0
    values = {
        "stacks": costs.share(total_seconds(claimed)) or None,
        "checks": costs.share(checks) or None,
    }
    if checks:
        claimed["compute"] = exactly(min(checks, costs.cost("compute").seconds))
    sites = largest_sites([*setting_line(costs, "anomaly"), *frame_sites(lines)])
    return Claim(claimed, sites, values, is_least=True) if claimed else None


PLUGIN = Rule(
    "debug-mode",
    "Anomaly detection is on",
    (
        "{stacks:share} of each step goes to the stacks that torch records, one for each operator.",
        "{checks:share} of each step looks for NaN in each gradient.",
    ),
    "Turn it on only while you look for the source of a NaN.",
    judge,
    code="torch.autograd.set_detect_anomaly(False)",
    knock_out=KnockOut.SETTINGS,
    settings={"anomaly": False},
)
