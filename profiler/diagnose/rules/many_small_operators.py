"""Operators so small that torch takes longer to call them than they take to compute."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import OperatorLine
from profiler.core.syntax import called_functions, line_nodes
from profiler.diagnose.model import NAMED, WORTH_NAMING
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, total_seconds
from profiler.diagnose.rules._frames import frame_costs, lines_above
from profiler.diagnose.rules._operators import CALLING, called_by_program, called_from, small_operators, within_step
from profiler.run.model import Site

_CELL: Final = re.compile("cell$", re.IGNORECASE)
_IN_PLACE: Final = frozenset(("add_", "addcdiv_", "addcmul_", "clamp_", "copy_", "div_", "lerp_", "mul_", "sub_"))
"""Methods by which a program updates tensors: others of such names, such as `clip_grad_norm_`, take all at once."""

_CHECKS: Final = ("Distribution.__init__", "Distribution._validate_sample")
"""Functions that check arguments: of the parameters of a distribution, and of a sample whose probability it tells."""


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
    sites = _sites(rows) or costs.sites("framework")
    values |= {"checks": _checks(costs)}
    # fewer operators still have to compute the same
    return Claim(claimed, sites, values | _caller(rows), is_most=True) if claimed else None


def _sites(rows: Iterable[OperatorLine]) -> tuple[Site, ...]:
    """The lines that call most small operators, each a tenth of them or more."""
    counts = Counter[Site]()
    for row in rows:
        if row.site is not None:
            counts[row.site] += row.small_count
    return largest_sites(site for site, count in counts.most_common() if count and count >= NAMED * counts.total())


def _checks(costs: StepCosts) -> float | None:
    """The share of a step in which torch.distributions checks arguments; None where it is small."""
    lines = lines_above(costs, lambda each: each.file == "torch/distributions/distribution.py" and each.name in _CHECKS)
    share = costs.share(total_seconds(frame_costs(lines)))
    return share if share >= WORTH_NAMING else None


def _caller(rows: Collection[OperatorLine]) -> dict[str, str | None]:
    """What calls the operators, as far as the line with most small ones shows it: the cell of a recurrent network, a
    method that changes tensors in place and without gradients, or a comprehension over some items."""
    values = dict[str, str | None](cell=None, update=None, items=None)
    for site in _sites(rows)[:1]:
        called = called_functions(site.source)
        looped = [ast.unparse(node.iter) for node in line_nodes(site.source) if isinstance(node, ast.comprehension)]
        cells = [name for name in (site.function.removesuffix(".forward"), *called) if _CELL.search(name)]
        in_place = [method for name in called if (method := name.rpartition(".")[2]) in _IN_PLACE]
        learning = {row.site for row in rows if row.is_backward and row.site}
        values["cell"] = next((f"{name}()" for name in cells), None)
        values["update"] = next((f"{name}()" for name in in_place if learning and site not in learning), None)
        values["items"] = next(iter(looped), None)
    return values


PLUGIN = Rule(
    "many-small-operators",
    "Calling many small operators takes longer than computing them",
    (
        "{share:share} of each step is calling operators.",
        "The host calls {operators:count} of them per step.",
        "{small:count} of them take less than 20 µs each.",
    ),
    "Use fewer and larger operators: one for all items of a loop instead of one for each, or torch.compile.",
    judge,
    fixes=(
        (
            "Turn off the checks of torch.distributions, which take {checks:share} of each step, by "
            "torch.distributions.Distribution.set_default_validate_args(False)."
        ),
        "Use a module such as torch.nn.LSTM for all time steps instead of {cell} for each, or torch.compile.",
        "Update all tensors by one call of torch._foreach_lerp_ or an optimizer of torch.optim, not by {update} each.",
        "Use one operator for all of {items} instead of one for each, or torch.compile.",
    ),
    threshold_source="A tenth: some of this time remains in every program.",
    threshold=0.1,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
