"""Arrays, tables and tensors to which each step appends by copying all that they hold, such as a history or a queue."""

from __future__ import annotations

from profiler.analyse.finding import Confidence, KnockOut
from profiler.diagnose.rule import Claim, Rule, StepCosts
from profiler.diagnose.rules._frames import appended, concatenations, frame_costs, frame_sites


def judge(costs: StepCosts) -> Claim | None:
    """The time at lines such as `self.keys = torch.cat([self.keys, new])`. None beside a device with a queue: samples
    do not tell what of it leaves the device idle."""
    lines = () if costs.has_queue else concatenations(costs)
    claimed, sites = frame_costs(lines), frame_sites(lines)
    if not claimed:
        return None
    name = appended(sites[0])
    # a variable may be made anew in each step, and longer once, as by padding
    confidence = Confidence.MEDIUM if name.isidentifier() else Confidence.HIGH
    return Claim(claimed, sites, {"name": name}, confidence=confidence)


PLUGIN = Rule(
    "repeated-concatenation",
    "Data is appended by copying all of it",
    ("{share:share} of each step is making a new copy of {name} with more in it.",),
    "Write into memory that is allocated once, at a position that moves on, as a ring buffer does; or append parts to "
    "a list, and join them once, where they are used.",
    judge,
    knock_out=KnockOut.LINE,
)
