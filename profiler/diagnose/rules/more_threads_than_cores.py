"""Recognizes more threads that compute than cores to run them."""

from __future__ import annotations

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import CORELESS_CATEGORIES
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.rule import ON_CORE, Claim, Cost, Rule, StepCosts, take
from profiler.diagnose.rules._settings import setting_line
from profiler.diagnose.run import excess_threads


def judge(costs: StepCosts) -> Claim | None:
    """The waits for a core, where the program has more threads than cores or than its CPU quota."""
    for category, code in (("core", "more-threads-than-cores"), ("throttled", "more-threads-than-quota")):
        notice = excess_threads(costs.analysis, category)
        if notice is not None and notice.code == code:
            limit = notice.values.get("cores", notice.values.get("quota"))
            ranks = len(costs.analysis.ranks.ranks) if costs.analysis.ranks else 1
            own = max(1, int(limit / max(1, ranks)))
            return Claim(
                _own_waits(costs),
                setting_line(costs, "threads"),
                {"threads": notice.values["threads"], "limit": limit, "own": own},
                is_least=True,
            )
    return None


def _own_waits(costs: StepCosts) -> dict[str, Cost]:
    """The waits for a core, at most as long as other threads and processes of the program run: beyond that, other
    programs have the cores."""
    claimed, cpu = take(costs, *CORELESS_CATEGORIES), costs.analysis.value("host_cpu")
    if cpu is None or "core" not in claimed:
        return claimed
    used = (cpu + (costs.analysis.value("children_cpu") or 0.0)) * costs.seconds
    found = diagnose_input(costs.analysis)
    waiting = (found.waits + found.around_starts) * costs.seconds if found else 0.0  # for workers, without a core
    others = max(0.0, used - sum(costs.cost(name).seconds for name in ON_CORE) + waiting)
    return claimed | {"core": claimed["core"].part(min(1.0, others / claimed["core"].seconds))}


PLUGIN = Rule(
    "more-threads-than-cores",
    "More threads compute than there are cores for them",
    (
        "Threads that compute: {threads:count}. Cores for them: {limit:number}.",
        "{share:share} of each step waits for a core while they run.",
    ),
    "Use no more threads than cores; with several ranks on a machine, the cores divided by the ranks.",
    judge,
    code="torch.set_num_threads({own:plain})",
    knock_out=KnockOut.SETTINGS,
    settings={"threads": "own"},
)
