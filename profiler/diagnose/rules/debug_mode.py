"""A debugging mode of torch that was left on."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import frame_costs, frame_sites, lines_above


def judge(costs: StepCosts) -> Claim | None:
    """The time in which anomaly detection records a stack for each operator."""
    if not costs.fact("anomaly_detection") or costs.has_queue:
        return None
    # torch calls this function for each operator: the one of the standard library, or torch.fx's of the same name
    lines = lines_above(costs, lambda each: each.name == "format_stack" and each.file.endswith("traceback.py"))
    claimed = frame_costs(lines, "python")
    return Claim(claimed, frame_sites(lines), is_bound=False) if claimed else None


PLUGIN = Rule(
    "debug-mode",
    "Anomaly detection is on",
    ("{share:share} of each step goes to the stacks that torch records, one for each operator.",),
    "Turn it on only while you look for the source of a NaN.",
    judge,
    code="torch.autograd.set_detect_anomaly(False)",
    knock_out=KnockOut.SETTINGS,
    settings={"anomaly": False},
)
