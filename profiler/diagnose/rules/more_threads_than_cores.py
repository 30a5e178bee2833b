"""More threads that compute than cores to run them."""

from __future__ import annotations

from profiler.diagnose.rule import Claim, Rule, StepCosts, take
from profiler.diagnose.run import excess_threads


def judge(costs: StepCosts) -> Claim | None:
    """The waits for a core, where the program has more threads than cores or than its CPU quota."""
    for category, code in (("core", "more-threads-than-cores"), ("throttled", "more-threads-than-quota")):
        notice = excess_threads(costs.analysis, category)
        if notice is not None and notice.code == code:
            limit = notice.values.get("cores", notice.values.get("quota"))
            return Claim(
                take(costs, "core", "throttled"),
                (),
                {"threads": notice.values["threads"], "limit": limit},
                is_bound=False,
            )
    return None


PLUGIN = Rule(
    "more-threads-than-cores",
    "More threads compute than there are cores for them",
    ("{threads:count} threads compute on {limit:number} cores.", "{share:share} of each step waits for a core."),
    "Use no more threads than cores; with several ranks on a machine, the cores divided by the ranks.",
    judge,
    code="torch.set_num_threads({limit:count})",
)
