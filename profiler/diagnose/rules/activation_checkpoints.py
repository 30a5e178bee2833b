"""Activations that are computed a second time in the backward pass, though there is memory to keep them."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import LibraryFunction
from profiler.core.notice import Notice
from profiler.diagnose.rule import Claim, Rule, StepCosts, largest_sites
from profiler.diagnose.rules._frames import frame_costs, lines_above
from profiler.run.model import Site

_FILE: Final = "torch/utils/checkpoint.py"
_MOST_MEMORY: Final = 0.25
"""Share of the machine's memory that the program may use at most. A choice: how much the activations take is not known
until they are kept, and checkpoints commonly save half to three quarters of the memory."""


def judge(costs: StepCosts) -> Claim | Notice | None:
    """The time in which checkpointed functions run again. With `use_reentrant=True` that is not told from the backward
    pass within: their first run, which takes as long, stands for it."""
    lines = [Site.from_fact(line) for line in costs.fact("activation_checkpoints") or ()]
    if not lines:
        return None
    if costs.has_queue or costs.fact("device") != "cpu":
        return Notice("no-activation-memory")
    sizes = [size for name in ("memory_bytes", "memory_limit") if (size := costs.number(name))]
    peak, memory = costs.analysis.value("peak_memory"), min(sizes, default=0.0)
    if not peak or peak > _MOST_MEMORY * memory:
        return None
    again = lines_above(costs, lambda each: _is(each, "unpack_hook")) or lines_above(
        costs, lambda each: _is(each, "forward")
    )
    claimed = frame_costs(again)
    values = {"peak": peak, "memory": memory}
    # the first run is slower too: it notes the state of random numbers, and keeps the inputs
    return Claim(claimed, largest_sites(lines), values, is_least=True) if claimed else None


def _is(function: LibraryFunction, name: str) -> bool:
    """Whether it is this function of torch: the first one is called for a tensor that was not kept, the second one is
    the first run of a reentrant checkpoint."""
    return function.file == _FILE and function.name.rpartition(".")[2] == name


PLUGIN = Rule(
    "activation-checkpoints",
    "Activations are computed twice although there is memory to keep them",
    (
        "{share:share} of each step computes checkpointed activations again.",
        "The program uses {peak:size} of {memory:size} of memory.",
    ),
    "Checkpoint fewer layers, or none, as far as the memory allows.",
    judge,
    threshold_source="_MOST_MEMORY is a choice.",
)
