"""Tells which lines compute metrics, and other values that the host reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from profiler.analyse.model import AFTER_OPTIMIZER, CallSite, LibraryFunction, LineCost, Phase, Stage
from profiler.core.syntax import called_functions, line_nodes
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import StepCosts
from profiler.diagnose.rules._frames import lines_above
from profiler.run.model import Site

_LIBRARIES: Final = (
    "torchmetrics/",
    "torcheval/metrics/",
    "sklearn/metrics/_classification.py",
    "sklearn/metrics/_ranking.py",
    "sklearn/metrics/_regression.py",
    "sklearn/metrics/cluster/",
    "scipy/stats/_stats_py.py",
)
"""Files and folders of libraries whose functions compute metrics; others of them compute distances, or draw numbers."""
_TRAINING: Final = ("torch/amp/", "torch/autograd/", "torch/nn/utils/clip_grad.py", "torch/optim/")
"""Files and folders of functions below which lines train a model."""
_NUMBERS: Final = ("item", "float", "tolist")
"""Operations by which the host reads numbers. Arrays and indices are often used in the same step."""
_CHOICES: Final = re.compile(r"(sample|multinomial|rand)\w*\(|\brandom\.")
"""Calls by which a program that acts or generates text chooses what it does next."""
_SCALED: Final = re.compile(r"^(?=.*\bgrads?\b).*((mul|div|clamp|copy)_\(|[*/]=)")
"""A line that changes gradients."""
_NEAR: Final = 8
"""Lines below one that computes a result at which it is read at most: what is read farther below is used for more."""
_OFTEN: Final = 0.5
"""Calls per step from which a line reads a value in each step. A choice: fewer are work of every so many steps."""
_KINDS: Final = ("sync", "might_sync")
"""Kinds of calls by which the host reads a result: `item()`, `tolist()`, `float()`."""


def metric_lines(costs: StepCosts) -> tuple[tuple[LineCost, ...], float]:
    """The lines with time in functions of libraries for metrics, and those that compute numbers without gradients which
    the host reads, the most time first; and how many numbers it reads there per step. None where they take less than a
    tenth of a step."""
    if costs.has_queue:
        return (), 0.0
    rows = [row for row in costs.analysis.operators if row.site is not None]
    learning = [row.site for row in rows if row.is_backward and row.site]
    using = [*learning, *(line.site for line in lines_above(costs, _uses_model))]
    calls = [
        call
        for call in host_reads(costs)
        if call.operation in _NUMBERS and call.calls_per_step >= _OFTEN and not _is_used(call.site, using)
    ]
    reading, computing = lines_read(_own_lines(costs, using), calls)
    chosen = {line.site: line for line in computing}
    judged = {site.place for site in learning} | _lines_in(costs, Stage.EVALUATION)
    for line in lines_above(costs, lambda each: each.file.startswith(_LIBRARIES)):
        if line.site.place in judged:  # some losses are functions of these libraries
            continue
        # of several functions above one another, the outermost takes most
        if line.site not in chosen or line.seconds_per_step > chosen[line.site].seconds_per_step:
            chosen[line.site] = line
    lines = sorted(chosen.values(), key=lambda line: -line.seconds_per_step)
    is_told = sum(line.active for line in lines) >= NAMED * costs.active
    return (tuple(lines), sum(call.calls_per_step for call in reading)) if is_told else ((), 0.0)


def _uses_model(function: LibraryFunction) -> bool:
    """Whether a function calls a module or trains one. Functions of modules that list parameters do neither."""
    is_call = function.name.rpartition(".")[2] in ("_wrapped_call_impl", "_call_impl", "forward")
    return function.file.startswith(_TRAINING) or (is_call and function.file.startswith("torch/nn/modules/"))


def _own_lines(costs: StepCosts, using: Collection[Site]) -> Iterator[LineCost]:
    """Lines of the program that call operators without gradients, but for those that use the model or train it, or
    whose results such lines use; those of simulators and optimizers of the program's own; and those of other rules.

    :param using: the lines that use the model or train it.
    """
    rows = costs.analysis.operators
    own = {row.site.place for row in rows if row.site and not row.is_backward and not row.caller}
    own -= {site.place for site in using}
    own -= _lines_in(costs, AFTER_OPTIMIZER, Stage.EVALUATION)
    scaled = [line.site for line in costs.analysis.lines if _SCALED.search(line.site.source)]
    for line in costs.analysis.lines:
        is_own = line.site.place in own and not line.is_outside_torch
        if is_own and not _is_needed(line.site, scaled) and not _is_used(line.site, using):
            yield line


def _is_needed(site: Site, scaled: Iterable[Site]) -> bool:
    """Whether a line belongs to a simulator or an optimizer, makes a choice, or tells how much to scale gradients."""
    functions = [site.function, *called_functions(site.source)]
    is_step = any(name.rpartition(".")[2] == "step" for name in functions)
    is_clipping = "grad" in site.source and any(_is_same_function(each, site) for each in scaled)
    return is_step or is_clipping or bool(_CHOICES.search(site.source))


def _is_used(site: Site, using: Iterable[Site]) -> bool:
    """Whether a line assigns what one of these lines of the same function uses."""
    assigned = _names(site.source, ast.Store)
    return any(_is_same_function(site, each) and assigned & _names(each.source, ast.Load) for each in using)


def _lines_in(costs: StepCosts, *phases: str) -> set[tuple[str, int]]:
    return {
        line.site.place
        for name in phases
        if (phase := costs.phase(name)) is not None
        for line in lines_of(costs, phase)
    }


def host_reads(costs: StepCosts) -> list[CallSite]:
    return [call for call in costs.analysis.call_sites if call.kind in _KINDS]


def lines_read(lines: Iterable[LineCost], calls: Collection[CallSite]) -> tuple[set[CallSite], list[LineCost]]:
    """Which of the calls that read results are at some of these lines, and the lines that compute such results: they
    have such a call, or one reads them a few lines below, or they have no operators of torch in a function that reads
    results, such as a metric by NumPy."""
    reading: set[CallSite] = set()
    computing: list[LineCost] = []
    for line in lines:
        near = [call for call in calls if _is_same_function(call.site, line.site)]
        here = {call for call in near if call.site.line == line.site.line}
        reading |= here
        below = (call for call in near if 0 <= call.site.line - line.site.line <= _NEAR)
        read = {name for call in below for name in _names(call.site.source, ast.Load)}
        # what a line adds to, such as an average, is needed in the next step
        assigned = _names(line.site.source, ast.Store) - _names(line.site.source, ast.Load)
        if here or assigned & read or (near and line.is_outside_torch):
            computing.append(line)
    return reading, computing


def lines_of(costs: StepCosts, phase: Phase) -> list[LineCost]:
    """Return the lines of a phase: the lines that enter it, and the lines of the function that they call."""
    own = {site.place for site in (phase.site, *phase.further) if site}
    return [
        line
        for line in costs.analysis.lines
        if line.site.place in own or (phase.calls and line.site.function == phase.calls)
    ]


def _is_same_function(call: Site, line: Site) -> bool:
    """Whether a call is in the function of a line, of which a comprehension is an inner one before Python 3.12."""
    functions = [site.function.partition(".<locals>.<")[0] for site in (call, line)]
    return call.is_in_file_of(line) and functions[0] == functions[1]


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    """The variables that a line of source uses, or assigns; none where the line is only a part of a statement."""
    return {node.id for node in line_nodes(source) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
