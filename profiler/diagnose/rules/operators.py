"""Operators, gradients and the optimizer."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

from profiler.analyse.model.finding import Confidence, GainMethod, KnockOut
from profiler.analyse.model.host import BACKWARD, UPDATE, OperatorLine, Stage
from profiler.core.errors import Notice
from profiler.core.syntax import called_functions, line_nodes
from profiler.diagnose.known_cures import has_denormal_numbers
from profiler.diagnose.model import MOST, NAMED, WORTH_NAMING
from profiler.diagnose.rule import (
    MAX_SITES,
    Claim,
    Order,
    StepCosts,
    exactly,
    largest_sites,
    phase_costs,
    rule,
    total_seconds,
)
from profiler.diagnose.rules._lines import (
    CALLING,
    called_by_program,
    called_from,
    frame_costs,
    frame_sites,
    lines_above,
    small_operators,
    within_step,
)
from profiler.run.model import Site

_CELL: Final = re.compile("cell$", re.IGNORECASE)
_IN_PLACE: Final = frozenset(("add_", "addcdiv_", "addcmul_", "clamp_", "copy_", "div_", "lerp_", "mul_", "sub_"))
"""Methods by which a program updates tensors: others of such names, such as `clip_grad_norm_`, take all at once."""

_CHECKS: Final = ("Distribution.__init__", "Distribution._validate_sample")
"""Functions that check arguments: of the parameters of a distribution, and of a sample whose probability it tells."""


def _calling_sites(rows: Iterable[OperatorLine]) -> tuple[Site, ...]:
    """Return the lines that call most small operators, each a tenth of them or more."""
    counts = Counter[Site]()
    for row in rows:
        if row.site is not None:
            counts[row.site] += row.small_count
    return largest_sites(site for site, count in counts.most_common() if count and count >= NAMED * counts.total())


def _caller(rows: Collection[OperatorLine]) -> dict[str, str | None]:
    """Return what calls the operators, as far as the line with most small ones shows it: the cell of a recurrent
    network, a method that changes tensors without gradients, or a comprehension."""
    site = next(iter(_calling_sites(rows)), None)
    if site is None:
        return {}
    called, learning = called_functions(site.source), {row.site for row in rows if row.is_backward and row.site}
    looped = (ast.unparse(node.iter) for node in line_nodes(site.source) if isinstance(node, ast.comprehension))
    cells = (name for name in (site.function.removesuffix(".forward"), *called) if _CELL.search(name))
    in_place = (method for name in called if (method := name.rpartition(".")[2]) in _IN_PLACE)
    return {
        "cell": next((f"{name}()" for name in cells), None),
        "update": next((f"{name}()" for name in in_place if learning and site not in learning), None),
        "items": next(looped, None),
    }


@rule(
    "many-small-operators",
    "Calling many small operators takes longer than computing them",
    (
        "{share:share} of each step is calling operators.",
        "The host calls {operators:count} of them per step.",
        "{small:count} of them take less than 20 µs each.",
    ),
    "Use fewer and larger operators: vectorize loops, with one operator for all items instead of one for each, or use "
    "torch.compile. Compute once what is the same in each step.",
    fixes=(
        (
            "Turn off the checks of torch.distributions, which take {checks:share} of each step, by "
            "torch.distributions.Distribution.set_default_validate_args(False)."
        ),
        "Use a module such as torch.nn.LSTM for all time steps instead of {cell} for each, or torch.compile.",
        "Update all tensors by one call of torch._foreach_lerp_ or an optimizer of torch.optim, not by {update} each.",
        "Use one operator for all of {items} instead of one for each, or torch.compile.",
    ),
    threshold=NAMED,  # some of this time remains in every program
    order=Order.SHAPE,
    knock_out=KnockOut.STATEMENT,
    is_of_code=True,
)
def many_small_operators(costs: StepCosts) -> Claim | None:
    """What small operators take at each line, with the time around them; else, if not counted, torch's own Python."""
    if costs.has_queue:  # what its kernels take is known then: other rules judge it
        return None
    rows = called_by_program(costs)
    claimed = within_step(costs, called_from(small_operators(costs), *CALLING))
    values: dict[str, float | None] = {"operators": costs.analysis.value("launches_per_step"), "small": None}
    if rows:
        values = {"operators": sum(row.count for row in rows), "small": sum(row.small_count for row in rows)}
    elif not costs.analysis.operators and costs.cost("framework").seconds:
        claimed = {"framework": costs.cost("framework")}
    sites = _calling_sites(rows) or costs.sites("framework")
    lines = lines_above(costs, lambda each: each.file == "torch/distributions/distribution.py" and each.name in _CHECKS)
    share = costs.share(total_seconds(frame_costs(lines)))
    values |= {"checks": share if share >= WORTH_NAMING else None}
    # fewer operators still have to compute the same
    # operators of no line are called within torch, such as those of a recurrent network's module
    has_lines = bool(sites) or not rows
    return Claim(claimed, sites, values | _caller(rows), has_gain=has_lines, is_most=True) if claimed else None


_FUSED: Final = ("torch.optim.adam.Adam", "torch.optim.adamw.AdamW")
"""Optimizers whose fused update was measured on a CPU. That of SGD was 0.9 to 4.8 times as fast."""
_REMAINING: Final = 0.25
"""Part of the update that a fused one takes. Measured: 0.14 to 0.24 with 200 tensors of 64 elements, 40 of 16,384 and 6
of a million (torch 2.13, one core of an EPYC)."""


def _optimizer(costs: StepCosts) -> dict[str, Any] | None:
    """Return the only optimizer, where a fused one can do the same."""
    optimizers = costs.fact("optimizers")
    if not isinstance(optimizers, list) or len(optimizers) != 1:
        return None
    optimizer: dict[str, Any] = optimizers[0]
    is_fit = optimizer["class"] in _FUSED and optimizer["devices"] == ["cpu"] and not optimizer["differentiable"]
    return optimizer if is_fit and _has_fused(str(costs.fact("torch") or "")) else None


def _has_fused(version: str) -> bool:
    """Return whether this version of torch has fused optimizers for the CPU."""
    numbers = version.split(".")[:2]
    return all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) >= (2, 4)


_MANY_GROUPS: Final = 8
"""Groups of parameters from which that is judged, at least two for each setting. A choice: few groups cost little."""
_OF_GROUPS: Final = 0.12
"""Part of the update in groups that one of all tensors by a fused optimizer takes. Measured: 0.09 with foreach, 0.13
with torch's default, and 0.24 where the groups were fused (242 tensors of 32 and 1,024 elements, torch 2.13)."""
_UPDATES: Final = ("_single_tensor_", "_multi_tensor_", "_fused_")
"""Beginnings of the names of torch's functions that update a group."""


@rule(
    "single-tensor-optimizer",
    "The optimizer updates one tensor after the other{grouped}",
    (
        "{share:share} of each step goes to the update of {tensors:n tensor}.",
        "They are in {groups:count} groups, of which neither foreach nor fused has several tensors to update at once.",
        "The groups have {settings:count} different settings.",
        "Of sampled numbers, {denormal:share} are denormal: see whether torch.set_flush_denormal(True) helps.",
    ),
    "Let one call update all of them.",
    fixes=(
        "Put all parameters with the same settings into one group, which one call updates. There are {groups:count}.",
    ),
    code="{variable:assignment}{optimizer}({parameters}..., fused=True)",
    knock_out=KnockOut.SETTINGS,
    settings={"optimizer": {"fused": "is_one_group", "foreach": False}},
)
def single_tensor_optimizer(costs: StepCosts) -> Claim | None:
    """The time of torch's functions that update one tensor after the other, also because each is a group of its own.
    With torch's default settings, which are no mistake of the program's on a CPU, no gain is claimed."""
    optimizer = _optimizer(costs)
    if optimizer is None or costs.has_queue or costs.fact("device") != "cpu":
        return None
    groups, settings = optimizer.get("groups", 0), optimizer.get("settings", 1)
    in_groups = groups >= max(_MANY_GROUPS, 2 * settings) and optimizer["tensors"] < 2 * groups
    names = _UPDATES if in_groups else _UPDATES[:1]
    lines = lines_above(costs, lambda each: each.name.startswith(names) and each.file.startswith("torch/optim/"))
    claimed = frame_costs(lines)
    total = total_seconds(claimed)
    if in_groups and total < NAMED * costs.active:  # the update is a usual part of a step
        return None
    name = str(optimizer["class"]).rpartition(".")[2]
    made = Site.from_fact(optimizer) if "file" in optimizer else None
    if made and made.source and name not in made.source:  # a library makes the optimizer below that line
        made = None
    is_chosen = optimizer["foreach"] is False or optimizer["fused"] is False
    of_fused = _REMAINING if optimizer["fused"] else _OF_GROUPS
    return Claim(
        claimed,
        largest_sites([made, *frame_sites(lines)]),
        {
            "optimizer": name if settings == 1 or not in_groups else None,
            "tensors": optimizer["tensors"],
            "variable": optimizer.get("variable", "") if made and not in_groups else "",
            "parameters": "model.parameters(), " if in_groups else "",
            "grouped": ", each of which is a group of parameters" if in_groups else "",
            "groups": groups if in_groups else None,
            "settings": settings if in_groups and settings > 1 else None,
            "is_one_group": None if in_groups else True,
            "denormal": costs.fact("denormal") if has_denormal_numbers(costs.analysis.info.facts) else None,
        },
        remaining=(max(of_fused, settings / groups) if in_groups else _REMAINING) * total,
        method=GainMethod.ESTIMATE,
        has_gain=is_chosen or in_groups,
    )


_FEW_ROWS: Final = 0.25
"""Part of the rows of a table that a step looks up, at most, with which a gradient of these rows is smaller. A choice:
such a gradient has the numbers of the rows too, and is sorted."""


@rule(
    "table-gradient",
    "The gradient of a table has all of its rows, though a step looks up few",
    (
        "{share:share} of each step makes this gradient.",
        "A step looks up {taken:n row}, and the table has {rows:count}.",
        "The optimizer then updates all rows.",
    ),
    "Let the gradient hold only the rows that were looked up. Give this table an optimizer of its own that takes such "
    "gradients: SGD, Adagrad or SparseAdam, whose results differ from Adam's. They work neither with weight decay nor "
    "with clipping of gradients, and no other layer may use the same table.",
    code="nn.Embedding(..., sparse=True)",
)
def table_gradient(costs: StepCosts) -> Claim | None:
    """Claims the time in which gradients of embeddings are made, where a step looks up few rows."""
    few = [each for each in costs.analysis.tables if each.taken <= _FEW_ROWS * each.rows]
    phase, backward = costs.phase(BACKWARD), [row.seconds for row in costs.analysis.operators if row.is_backward]
    if not few or phase is None or costs.has_queue or not sum(backward):
        return None
    largest = few[0]
    objects = costs.analysis.made.get(largest.site.place, ()) if largest.site else ()
    made = next((each.site for each in objects if each.called.startswith("Embedding")), largest.site)
    part = min(1.0, sum(each.seconds for each in few) / sum(backward))
    claimed, _ = phase_costs(costs, phase)
    return Claim(
        {name: cost.part(part / costs.core_wait_factor) for name, cost in claimed.items()},
        largest_sites([made, phase.site]),
        {"rows": largest.rows, "taken": largest.taken},
        is_least=True,  # the update becomes cheaper too
    )


_LARGE: Final = 2 << 20
"""Elements of all gradients from which they do not stay in a core's cache: 8 MiB."""
_ADDING: Final = 2.0
"""Seconds of additions in the backward pass for each second of filling large gradients. An addition moves three times
the bytes. Measured: 2 to 2.8 with 2.8 to 13 million elements, 0.2 with a million (torch 2.13, one core of an EPYC)."""


@rule(
    "zero-filled-gradients",
    "Gradients are filled with zeros before each backward pass",
    (
        "{filling:share} of each step fills gradients with zeros, {fills:n time} per step.",
        "The backward pass then adds to them instead of writing them.",
    ),
    "Drop the gradients, which is torch's default.",
    code="optimizer.zero_grad(set_to_none=True)",
    knock_out=KnockOut.SETTINGS,
    settings={"set_to_none": True},
)
def zero_filled_gradients(costs: StepCosts) -> Claim | None:
    """The time in `zero_grad`, where it was called with `set_to_none=False`, and that of the additions. In older runs
    it is known by samples only."""
    fills = costs.analysis.value("zero_fills_per_step")
    if not fills or costs.has_queue:
        return None
    lines = lines_above(costs, lambda each: each.name.endswith("zero_grad") and each.file.startswith("torch/"))
    claimed = frame_costs(lines)
    recorded = costs.analysis.value("zero_fill_ns_per_step")
    if recorded is not None:  # what was recorded contains waits for a core
        claimed = {"compute": exactly(recorded / 1e9 / costs.core_wait_factor)}
    filling = total_seconds(claimed)
    if not filling:
        return None
    optimizers = costs.fact("optimizers") or ()
    if sum(optimizer["elements"] for optimizer in optimizers) >= _LARGE:
        computing = claimed.get("compute", exactly(0.0))
        claimed["compute"] = computing.part(1.0 + _ADDING)
    return Claim(
        claimed, frame_sites(lines), {"fills": fills, "filling": costs.share(filling)}, method=GainMethod.ESTIMATE
    )


_ASSUMED_SHARE: Final = 0.1
"""Assumed part of the cost from which it is an estimate: each gradient of a matrix is taken to need the same time."""


@rule(
    "unused-gradients",
    "Gradients are computed that no optimizer uses",
    (
        "They take {backward:share} of the backward passes.",
        "Of {discarded:count} parameters, zero_grad() resets the gradients before their optimizer steps.",
        "Number of their parameters: {tensors:count}, with {size:size} together.",
        "The shape of the largest one is {largest}.",
    ),
    "Call requires_grad_(False) on the modules that are not trained, or run them under torch.no_grad().",
    fixes=("Call detach() on what the modules with these {discarded:count} parameters give to the loss.",),
)
def unused_gradients(costs: StepCosts) -> Claim | Notice | None:
    """The share of the backward passes that was measured in a few of them. The forward pass becomes cheaper, too.
    Whether the program looks at these gradients itself is not known."""
    fact, phase = costs.fact("unused_gradients"), costs.phase("backward")
    if not isinstance(fact, dict) or phase is None or costs.has_queue or costs.fact("device") != "cpu":
        return None
    if "not_judged" in fact:
        return Notice(**fact["not_judged"])
    claimed, _ = phase_costs(costs, phase)
    discarded = fact.get("discarded") or None
    optimizers = [] if discarded else costs.fact("optimizers") or []
    is_alone = costs.analysis.ranks is None  # of several ranks, the end of the pass contains waits for others
    return Claim(
        {name: cost.part(fact["share"] / costs.core_wait_factor) for name, cost in claimed.items()},
        largest_sites(Site.from_fact(each) if "file" in each else None for each in (fact, *optimizers)),
        {
            "tensors": fact["tensors"],
            "discarded": discarded,
            "size": fact["bytes"],
            "largest": " × ".join(map(str, fact["largest"])) or "1",
            "backward": fact["share"],
        },
        method=GainMethod.ESTIMATE if fact["assumed"] > _ASSUMED_SHARE * fact["share"] else GainMethod.BOUND,
        is_least=is_alone,
        is_most=not is_alone,
        confidence=Confidence.MEDIUM,
    )


_FILE: Final = "torch/utils/checkpoint.py"
_MOST_MEMORY: Final = 0.25
"""Share of the machine's memory that the program may use at most. A choice: how much the activations take is not known
until they are kept, and checkpoints commonly save half to three quarters of the memory."""


@rule(
    "activation-checkpoints",
    "Activations are computed twice although there is memory to keep them",
    (
        "{share:share} of each step computes checkpointed activations again.",
        "The program uses {peak:size} of {memory:size} of memory.",
    ),
    "Checkpoint fewer layers, or none, as far as the memory allows.",
)
def activation_checkpoints(costs: StepCosts) -> Claim | Notice | None:
    """Finds the time in which checkpointed functions run again.

    Reentrant checkpoints are told by their first run, which is as long.
    """
    lines = [Site.from_fact(line) for line in costs.fact("activation_checkpoints") or ()]
    if not lines:
        return None
    if costs.has_queue or costs.fact("device") != "cpu":
        return Notice("no-activation-memory")
    sizes = [size for name in ("memory_bytes", "memory_limit") if (size := costs.number(name))]
    peak, memory = costs.analysis.value("peak_memory"), min(sizes, default=0.0)
    if not peak or peak > _MOST_MEMORY * memory:
        return None
    # the first is called for a tensor that was not kept, the second is the first run of a reentrant checkpoint
    of_torch = [(each.name.rpartition(".")[2], each.below) for each in costs.analysis.library if each.file == _FILE]
    runs = (tuple(line for name, line in of_torch if name == wanted) for wanted in ("unpack_hook", "forward"))
    claimed = frame_costs(next(filter(None, runs), ()))
    values = {"peak": peak, "memory": memory}
    # the first run is slower too: it notes the state of random numbers, and keeps the inputs
    return Claim(claimed, largest_sites(lines), values, is_least=True) if claimed else None


_PAGE_BYTES: Final = 4096
"""Of x86-64, and of most kernels for 64-bit Arm. With larger pages less memory is seen than there is."""
_LARGE_BYTES: Final = 32 << 20
"""glibc keeps freed blocks below this size, and gives larger ones back to the kernel at once
(DEFAULT_MMAP_THRESHOLD_MAX in malloc.c, for 64 bits)."""
_FAULT_S: Final = 2e-6
"""Seconds that the first use of a page takes at most: 1.4 µs were measured (virtual machine, AMD EPYC)."""
_COPIES: Final = frozenset(("cat", "clone", "contiguous", "hstack", "repeat", "stack", "vstack"))
"""Functions of torch that copy tensors into a new one."""


def _allocating_sites(costs: StepCosts, claimed: float) -> tuple[Site, ...]:
    """Return the lines that compute most, as many as must hold most of this time, since samples do not tell the
    kernel's time. Where those are too many, the lines that call functions which copy."""
    lines = sorted(costs.analysis.lines, key=lambda line: -line.categories.get("compute", 0.0))
    elsewhere = costs.cost("compute").seconds
    for number, line in enumerate(lines[:MAX_SITES], 1):
        elsewhere -= line.categories.get("compute", 0.0)
        if claimed - elsewhere >= MOST * claimed:
            return tuple(each.site for each in lines[:number])
    copying = (
        line for line in lines if {name.rpartition(".")[2] for name in called_functions(line.site.source)} & _COPIES
    )
    return largest_sites(line.site for line in copying if line.active >= NAMED * costs.active)


@rule(
    "allocation-churn",
    "Each step gets large tensors anew from the kernel",
    (
        "The kernel gives the training thread {new:size} of memory per step, in {pages:count} pages.",
        "In {kernel:time} of each step that thread is in the kernel.",
    ),
    "Make large tensors once and fill them in each step, or let glibc keep what the program frees; that memory stays "
    "with the program.",
    fixes=("Let glibc keep what the program frees in {passes}; that memory stays with the program.",),
    # a step with a fresh tensor of 64 MiB takes 0.34 of the CPU time, one of small convolutions 0.88 (tests/clinic,
    # cases printed_allocation_churn and array_workers)
    code="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 python ...",
    threshold=NAMED,  # some new memory per step is common
)
def allocation_churn(costs: StepCosts) -> Claim | None:
    """Claim the time in which the kernel hands out memory, from one large block per step on. Reads of mapped
    files look alike, and a compiler needs new memory too: nothing is claimed then."""
    pages, kernel = costs.analysis.value("page_faults"), costs.analysis.value("kernel_time")
    computing, new = costs.cost("compute"), (pages or 0.0) * _PAGE_BYTES
    if not pages or not kernel or costs.has_queue or costs.is_device_unseen or new < _LARGE_BYTES:
        return None
    grows = (costs.analysis.value("memory_growth") or 0.0) > MOST * new  # then the program keeps it
    is_other = costs.cost("input").seconds >= NAMED * costs.active or costs.phase(Stage.COMPILE) is not None
    if grows or is_other or not costs.is_known("compute"):
        return None
    seconds = min(kernel, pages * _FAULT_S, computing.seconds)
    claimed = computing.part(seconds / computing.seconds) if computing.seconds else computing
    sites = _allocating_sites(costs, claimed.seconds)
    phases = (costs.phase(name) for name in (BACKWARD, UPDATE))
    is_of_torch = bool(sites) and any(phase is not None and phase.site == sites[0] for phase in phases)
    values = {"new": new, "pages": pages, "kernel": kernel, "passes": "what this line runs" if is_of_torch else None}
    return Claim({"compute": claimed}, sites, values, method=GainMethod.ESTIMATE)
