"""Operators so small that torch takes longer to call them than they take to compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import OperatorLine
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._operators import CALLING, called_by_program, called_from, small_operators, within_step
from profiler.run.model import Site


def judge(costs: StepCosts) -> Claim | None:
    """What small operators take at each line, with the time around them. Where operators were not counted, torch's own
    Python only. Other rules judge loaders and optimizers."""
    if costs.has_queue:  # what its kernels take is known then: other rules judge it
        return None
    rows = called_by_program(costs)
    claimed = within_step(costs, called_from(small_operators(costs), *CALLING))
    values: dict[str, float | None] = {"operators": costs.analysis.value("launches_per_step"), "small": None}
    if rows:
        values = {"operators": sum(row.count for row in rows), "small": sum(row.small_count for row in rows)}
    elif not costs.analysis.operators and costs.cost("framework").seconds:
        claimed = {"framework": costs.cost("framework")}
    return Claim(claimed, _sites(rows) or costs.sites("framework"), values) if claimed else None


def _sites(rows: Iterable[OperatorLine]) -> tuple[Site, ...]:
    """The lines that call most small operators, each a tenth of them or more."""
    counts = Counter[Site]()
    for row in rows:
        if row.site is not None:
            counts[row.site] += row.small_count
    return largest_sites(site for site, count in counts.most_common() if count and count >= NAMED * counts.total())


PLUGIN = Rule(
    "many-small-operators",
    "Calling many small operators takes longer than computing them",
    (
        "{share:share} of each step is calling operators.",
        "The host calls {operators:count} of them per step.",
        "{small:count} of them take less than 20 µs each.",
    ),
    "Use fewer and larger operators: one for all items of a loop, a module such as torch.nn.LSTM for all time steps, a "
    "function such as torch._foreach_lerp_ for all parameters, larger batches, or torch.compile.",
    judge,
    threshold_source="A tenth: some of this time remains in every program.",
    threshold=0.1,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
