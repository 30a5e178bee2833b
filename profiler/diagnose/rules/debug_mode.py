"""A debugging mode of torch that was left on."""

from __future__ import annotations

from pathlib import PurePath

from profiler.analyse.finding import KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import frame_costs, frame_sites, times_in
from profiler.run.model import Site


def judge(costs: StepCosts) -> Claim | None:
    """The time in which anomaly detection records a stack for each operator."""
    if not costs.fact("anomaly_detection") or costs.has_queue:
        return None
    times = times_in(costs, _formats_stack)
    claimed = frame_costs(costs, times, "python")
    return Claim(claimed, frame_sites(times), is_bound=False) if claimed else None


def _formats_stack(site: Site) -> bool:
    """Whether it is the function of the standard library that torch calls for each operator."""
    return site.function == "format_stack" and PurePath(site.file).name == "traceback.py"


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
