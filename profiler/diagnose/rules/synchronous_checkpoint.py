"""Checkpoints that the training thread writes itself, often."""

from __future__ import annotations

from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import LineCost, Stage
from profiler.core.syntax import called_functions
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, take, total_seconds
from profiler.diagnose.rules._frames import frame_costs
from profiler.diagnose.rules._periodic import checkpoint_costs, checkpoint_sites, with_stage_cost
from profiler.run.model import Site

_WRITES: Final = frozenset(
    ("pickle.dump", "joblib.dump", "np.save", "np.savez", "np.savez_compressed", "numpy.save", "numpy.savez")
)
"""Functions that write an object to a file, and that no hook records."""
_FLUSHES: Final = frozenset(("flush", "fsync", "fdatasync"))
_WORK: Final = ("compute", "python")
"""Categories of what such a line does outside of torch."""


def judge(costs: StepCosts) -> Claim | None:
    """The time in which checkpoints are written, and of other work for them: what regular steps take for it, or waits
    in the same function for a file to reach the disk, or to take the place of another one."""
    claimed, sites = take(costs, "checkpoint"), checkpoint_sites(costs)
    by_hand = _lines_by_hand(costs, sites)
    if not claimed and not by_hand:
        return None
    functions = {(site.file, site.function) for site in sites}
    waits = [line for line in costs.analysis.lines if line.categories.get("waiting")]
    own = [line for line in waits if line in by_hand or (line.site.file, line.site.function) in functions]
    if own:
        part = sum(line.categories["waiting"] for line in own) / sum(line.categories["waiting"] for line in waits)
        claimed["waiting"] = costs.cost("waiting").part(part)
    work = frame_costs(tuple(line for line in by_hand if line.is_outside_torch))
    claimed |= {name: work[name] for name in _WORK if name in work}
    least = NAMED * total_seconds(claimed)
    more = sorted((line for line in by_hand if line.active >= least), key=lambda line: -line.active)
    claimed = max(claimed, checkpoint_costs(costs), key=total_seconds)
    lines = largest_sites((*sites, *(line.site for line in more)))
    return Claim(with_stage_cost(costs, Stage.CHECKPOINT, claimed), lines)


def _lines_by_hand(costs: StepCosts, sites: tuple[Site, ...]) -> list[LineCost]:
    """The lines that write an object to a file by a function of _WRITES, and those that flush a file in the same
    function. None beside a device with a queue: samples do not tell what of it leaves the device idle.

    :param sites: the other lines that write checkpoints.
    """
    if costs.has_queue:
        return []
    called = [(line, set(called_functions(line.site.source))) for line in costs.analysis.lines]
    writing = [line for line, names in called if names & _WRITES]
    functions = {(site.file, site.function) for site in (*sites, *(line.site for line in writing))}
    flushing = [line for line, names in called if {name.rpartition(".")[2] for name in names} & _FLUSHES]
    beside = [line for line in flushing if (line.site.file, line.site.function) in functions and line not in writing]
    return writing + beside


PLUGIN = Rule(
    "synchronous-checkpoint",
    "The training waits while checkpoints are written",
    ("{share:share} of each step goes to writing checkpoints.",),
    "Write checkpoints less often, or copy the state to the host and write it in a thread.",
    judge,
    knock_out=KnockOut.STATEMENT,
)
