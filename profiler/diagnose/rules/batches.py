"""How batches are made: items, collation, tokens, padding, sizes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from profiler.analyse.model.finding import Confidence, KnockOut
from profiler.core.errors import Notice
from profiler.core.syntax import line_nodes
from profiler.diagnose.input import is_started_for_batches, sampling_functions
from profiler.diagnose.model import MOST, WORTH_NAMING
from profiler.diagnose.rule import (
    ON_CORE,
    Claim,
    Cost,
    Order,
    RunClaim,
    StepCosts,
    exactly,
    largest_sites,
    rule,
    take,
    total_seconds,
)
from profiler.diagnose.rules._input import (
    NO_MORE_WORKERS,
    SLOW,
    advised,
    input_cost,
    input_sites,
    input_wait,
    loader_values,
    made_parts,
    made_sites,
    main_loader,
    making_claim,
    prepared_costs,
    quota_step_time,
)
from profiler.run.code_origin import relative_site
from profiler.run.model import Site

_OPENING: Final = frozenset(
    (
        *("ZipFile", "TarFile", "tarfile.open", "h5py.File", "lmdb.open", "sqlite3.connect", "ParquetFile", "memmap"),
        *("read_csv", "read_parquet", "read_feather", "read_pickle", "zarr.open", "open_dataset", "safe_open"),
        *("np.load", "numpy.load", "torch.load", "json.load", "pickle.load", "from_pretrained", "load_dataset"),
    )
)
"""Functions that open or load what holds many items, by their last name, or with their module where that is common."""


def _opened(source: str) -> str | None:
    """Return the call at a line that opens the same for each item: no argument is a variable."""
    for node in line_nodes(source):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if given and {name, name.rpartition(".")[2]} & _OPENING:
            is_same = not any(isinstance(part, ast.Call) for part in ast.walk(given[0])) and _is_fixed(given[0], ())
            modules = [part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Attribute)]
            if is_same and all(_is_fixed(each, modules) for each in given[1:]):
                return ast.unparse(node)
    return None


def _is_fixed(node: ast.expr, modules: Collection[ast.expr]) -> bool:
    """Return whether an argument is the same for each item.

    :param modules: nodes that may be modules, as in `np.uint8`, and no variables.
    """
    parts = [part for part in ast.walk(node) if part not in modules]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    is_item = any(isinstance(part, ast.Subscript) for part in parts)
    return not is_item and all(name in ("self", "cls") or name.isupper() for name in names)


@rule(
    "slow-dataset-item",
    "The dataset takes long for each item",
    (
        "Making a batch takes {made:time}, of which {items:share} in the dataset's own code.",
        "{share:share} of each step waits for that.",
        *NO_MORE_WORKERS,
    ),
    "Make items cheaper: prepare them once before the training, or vectorize loops over their elements.",
    fixes=("Open or load it once in each process and keep it, not for each item: {opened}.",),
    code="self.kept = None  # in __init__\nif self.kept is None:  # in __getitem__, once in each process\n"
    "    self.kept = {opened}",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
    is_of_code=True,
)
def slow_dataset_item(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which the dataset makes items."""
    claim = making_claim(costs, ("dataset", "dataset map"), "items")
    opened = _opened(claim.sites[0].source) if claim and claim.sites else None
    return claim and replace(claim, values={**claim.values, "opened": opened})


@rule(
    "slow-collate",
    "Collating items into batches takes long",
    (
        "Making a batch takes {made:time}, of which {collate:share} in the function that collates items.",
        "{share:share} of each step waits for that.",
        *NO_MORE_WORKERS,
    ),
    "Do before the training what does not depend on the other items of a batch, such as tokenizing them. Vectorize the "
    "rest: build each batch with one operator, such as torch.stack, instead of a loop over its items.",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
    is_of_code=True,
)
def slow_collate(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which items are collated."""
    return making_claim(costs, ("collate",), "collate")


@rule(
    "slow-sampler",
    "The loader's sampler takes long to draw indices",
    (
        "Drawing the indices of a batch takes {batch:time}, {share:share} of each step.",
        "The training process does this itself, however many workers there are.",
    ),
    "If a draw does not depend on those before it, draw the indices of all batches at the start of an epoch, by "
    "operations on whole arrays. Else make a draw cheaper: keep what it looks up in arrays or lists.",
)
def slow_sampler(costs: StepCosts) -> Claim | None:
    """The part of the loader's time in which it asks its sampler."""
    found = costs.input
    if found is None or not found.sampling or is_started_for_batches(found.use):
        return None
    functions = sampling_functions(costs.analysis)
    cost = input_cost(costs, found, found.sampling)
    share, low, high = (sum(getattr(each.below, end) for each in functions) for end in ("share", "low", "high"))
    sampled = Cost(cost.seconds, cost.low * low / share, cost.high * high / share)
    return Claim(
        {"input": sampled},
        largest_sites(site for each in functions for site in each.lines or (each.below.site,)),
        {"batch": cost.seconds / (found.use.batches or 1.0)},
        is_most=True,  # drawing still costs something
    )


@rule(
    "io-bound-input",
    "Making batches mostly waits for files or for the network",
    (
        "Making a batch takes {made:time}.",
        "Of that time, {files:share} is a wait for files.",
        "Of that time, {sockets:share} is a wait for data from a socket.",
    ),
    "Keep the data in memory or on a local disk, read it in fewer and larger pieces, or let more workers read beside "
    "each other: those that wait need no core.",
    is_alternative=True,
    knock_out=KnockOut.SETTINGS,
    settings={"replay": True},
)
def io_bound_input(costs: StepCosts) -> Claim | None:
    """The part of the loader's time that waits for files and sockets."""
    found, waits = advised(costs, *SLOW), input_wait(costs)
    if found is None or not waits:
        return None
    parts, made = made_parts(costs, found)
    values = {
        **loader_values(costs),
        "made": found.made_seconds,
        "files": found.use.file_wait or None,
        "sockets": found.use.socket_wait or None,
    }
    cost = made.part(waits)
    remaining = max(0.0, quota_step_time(costs) - costs.active + cost.seconds)
    # the rest of a read, which copies the data, is not known
    return Claim({"input": cost}, input_sites(costs, parts), values, remaining, is_least=True)


@rule(
    "inline-input",
    "The training loop prepares its batches itself",
    (
        "{share:share} of each step goes to input that no loader makes, most of it to: {part}.",
        "{prepared:share} of each step is computed before it calls the model, by no loader and no operator of torch.",
        "Most of it is in {calls}.",
    ),
    "Compute once, before the training, what is the same in each step. Vectorize the rest: use operations on whole "
    "arrays instead of loops over items. If batches do not depend on what the training does, let the workers of a "
    "DataLoader make them meanwhile.",
    order=Order.SHAPE,
    is_alternative=True,
    knock_out=KnockOut.STATEMENT,
    is_of_code=True,
)
def inline_input(costs: StepCosts) -> Claim | None:
    """What other rules leave of the input that is made outside of loaders, or, where that is more, of what is computed
    before the model by no operator of torch: from where its values come is not known."""
    found, prepared, preparation = costs.input, prepared_costs(costs), costs.analysis.preparation
    if not prepared or preparation is None:
        if found is None or not found.inline:
            return None
        part = found.inline_part.name if found.inline_part else None
        sites = input_sites(costs, costs.inputs(context="inline"))
        return Claim({"input": input_cost(costs, found, found.inline)}, sites, {"part": part})
    first, *others = preparation.lines
    calls = f"{preparation.calls}()" if preparation.calls else None
    return Claim(
        prepared,
        largest_sites([first, preparation.whole.site, *others]),
        {"prepared": costs.share(total_seconds(prepared)), "calls": calls},
        is_most=True,
        confidence=Confidence.MEDIUM,
    )


@rule(
    "inline-tokenization",
    "Training waits while text is tokenized",
    (
        "{share:share} of each step goes to the tokenizer.",
        "It encodes {tokenized:n text} per step.",
        "Making a batch takes {made:time}, of which {tokenizing:share} in the tokenizer.",
        *NO_MORE_WORKERS,
    ),
    "Tokenize the corpus once before the training and read token ids, or tokenize in workers of a loader.",
    is_alternative=True,
    knock_out=KnockOut.STATEMENT,
)
def inline_tokenization(costs: StepCosts) -> Claim | None:
    """The tokenizer's time outside of any loader, else its part of the loader's time."""
    found, parts = costs.input, costs.inputs(where="main process", context="inline")
    tokenizing = [part for part in parts if part.name == "tokenize"]
    inline = sum(part.seconds_per_step for part in parts)
    share = sum(part.seconds_per_step for part in tokenizing) / inline if inline else 0.0
    if found is None or share < MOST:
        claim = making_claim(costs, ("tokenize",), "tokenizing")
        return replace(claim, is_most=True) if claim else None
    return Claim(
        {"input": input_cost(costs, found, share * found.inline)},
        input_sites(costs, tokenizing),
        {"tokenized": costs.analysis.value("tokenized_per_step")},
    )


@rule(
    "exposed-input",
    "The device is idle while the host prepares input",
    ("It is idle {share:share} of the time for this reason.", "Much of it is in {site:function}."),
    "Let the workers of a DataLoader prepare batches while the device computes, or prepare them on the device.",
    order=Order.REST,
)
def exposed_input(costs: StepCosts) -> Claim | None:
    """The idle time in which the host prepared input, of runs without recorded parts of it: other rules know more."""
    if not costs.has_queue or costs.analysis.input:
        return None
    claimed = take(costs, "input")
    return Claim(claimed, costs.sites("input")) if claimed else None


_MIN_BATCHES: Final = 3
"""Batches with padding from which its share is told. A choice."""
_MUCH_PADDING: Final = 0.2
"""Share of padding that is taken to remain in batches of texts of similar length. A choice."""


@rule(
    "padding",
    "Much of each batch is padding",
    (
        "Of the elements of {batches:count} batches, {padding:share} are the id {id:plain} at the end of rows.",
        "The model computes with them as with all others, unless it leaves them out by itself.",
    ),
    "Put texts of similar length into one batch, pad each batch only to its longest text, or pack several texts into "
    "one row.",
)
def padding(costs: StepCosts) -> Claim | RunClaim | None:
    """The time of computing with padding, as far as it is in proportion to the length of the rows. A few batches tell
    it by their values, which other integers may have as well."""
    loader, facts = main_loader(costs), costs.fact("padding")
    seen = facts.get(loader.name) if loader and isinstance(facts, Mapping) else None
    if seen is None or costs.fact("packed_sequences"):
        return None
    if seen["padded_batches"] < max(_MIN_BATCHES, seen["batches"]) or len(seen["ids"]) != 1:
        return None  # some batches were no token ids, or had none that is certainly padding
    share = seen["padding"] / seen["elements"]
    if share <= _MUCH_PADDING:
        return None
    values = {"padding": share, "batches": seen["padded_batches"], "id": seen["ids"][0]}
    info, line = costs.analysis.info, seen.get("line")
    pads = relative_site(Site.from_fact(line), info.project or info.cwd) if line else None
    sites = largest_sites([pads, *made_sites(costs, ())])
    computing = sum(phase.seconds_per_step for phase in costs.analysis.phases if phase.name in ("forward", "backward"))
    if costs.has_queue or not computing:  # what a device computes is in no category of the host
        return RunClaim(sites=sites, values=values, confidence=Confidence.MEDIUM)
    saved = 1.0 - (1.0 - share) / (1.0 - _MUCH_PADDING)
    compute = costs.cost("compute")
    whole = min(1.0, computing / compute.seconds) if compute.seconds else 0.0
    cost = compute.part(whole * saved)
    costs_of_padding = {"compute": cost if cost.seconds else exactly(0.0)}
    # what does not depend on the length, such as the gradients of an embedding, remains
    return Claim(costs_of_padding, sites, values, confidence=Confidence.MEDIUM, is_most=True)


_DOMINATES: Final = 0.6
"""Least share of a step that does not depend on the number of items, at the low end of its interval. A choice: twice as
many items then give 1.4 times as many per second."""
_TIMES_LARGER: Final = 4
"""Times as many items of which the gain is predicted. A choice."""
_MUCH_CALLING: Final = 0.2
"""Share of a step in torch's own Python and calls from which a batch may be too small."""
_STEP_WORK: Final = tuple(name for name in ON_CORE if name not in ("input", "checkpoint"))


@rule(
    "small-batch",
    "Most of a step does not depend on the size of the batch",
    (
        "Without its wait for the batch, a step with {items:n item} takes {step:time}.",
        "One with {other:n item} takes {other_step:time}.",
        "By a line through these two, {fixed:share} of a step would remain without any item.",
        "The gain is in items per second with batches of {larger:count}; what the model learns in a step changes too.",
    ),
    "Use larger batches, and adapt the learning rate; or make the steps themselves cheaper.",
    code="{loader:assignment}DataLoader(..., batch_size={larger:plain})",
    order=Order.SHAPE,
    is_alternative=True,
)
def small_batch(costs: StepCosts) -> Claim | Notice | None:
    """What steps with more items in each save for every item, by a line through the times of two sizes."""
    curve = costs.analysis.batches
    if curve is None or costs.is_device_unseen:
        return None
    if curve.fixed is None or curve.seconds is None or curve.low is None or curve.high is None:
        calling = costs.cost("framework").seconds + costs.cost("launch").seconds
        return Notice("one-batch-size", {"items": curve.size}) if calling >= _MUCH_CALLING * costs.active else None
    if curve.low < _DOMINATES * curve.seconds or curve.seconds < WORTH_NAMING * costs.seconds:
        return None
    work = {name: costs.cost(name) for name in _STEP_WORK if costs.cost(name).seconds}
    whole = total_seconds(work)
    if not whole:
        return None
    saved = (1 - 1 / _TIMES_LARGER) / whole * min(1.0, whole / curve.seconds)
    fixed, low, high = (min(value, curve.seconds) for value in (curve.fixed, curve.low, curve.high))
    claimed = {
        name: Cost(cost.seconds * saved * fixed, cost.seconds * saved * low, cost.seconds * saved * high)
        for name, cost in work.items()
    }
    values = {
        **loader_values(costs),
        "items": curve.size,
        "other": curve.other,
        "step": curve.seconds,
        "other_step": curve.other_seconds,
        "fixed": fixed / curve.seconds,
        "larger": curve.size * _TIMES_LARGER,
    }
    return Claim(claimed, made_sites(costs, ()), values)
