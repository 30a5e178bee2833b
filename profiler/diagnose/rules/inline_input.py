"""Batches that the training loop prepares itself, outside of any loader."""

from __future__ import annotations

from profiler.analyse.finding import Confidence, KnockOut
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites, total_seconds
from profiler.diagnose.rules._input import inline_cost, input_sites, prepared_costs


def judge(costs: StepCosts) -> Claim | None:
    """What other rules leave of the input that is made outside of loaders, or, where that is more, of what is computed
    before the model by no operator of torch: from where its values come is not known."""
    found, prepared, preparation = diagnose_input(costs.analysis), prepared_costs(costs), costs.analysis.preparation
    values: dict[str, float | str | None] = dict.fromkeys(("part", "prepared", "calls"))
    if not prepared or preparation is None:
        if found is None or not found.inline:
            return None
        values["part"] = found.inline_part.name if found.inline_part else None
        sites = input_sites(costs, costs.inputs(context="inline"))
        return Claim({"input": inline_cost(costs, found)}, sites, values)
    first, *others = preparation.lines
    values["prepared"] = costs.share(total_seconds(prepared))
    values["calls"] = f"{preparation.calls}()" if preparation.calls else None
    return Claim(
        prepared,
        largest_sites([first, preparation.whole.site, *others]),
        values,
        is_most=True,
        confidence=Confidence.MEDIUM,
    )


PLUGIN = Rule(
    "inline-input",
    "The training loop prepares its batches itself",
    (
        "{share:share} of each step goes to input that no loader makes, most of it to: {part}.",
        "{prepared:share} of each step is computed before it calls the model, by no loader and no operator of torch.",
        "Most of it is in {calls}.",
    ),
    "Compute once, before the training, what is the same in each step, and the rest by operations on whole arrays "
    "instead of loops over items; or let the workers of a DataLoader make the batches while the model trains.",
    judge,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
