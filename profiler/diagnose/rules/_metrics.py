"""Tells which lines compute metrics, and other values that the host reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from profiler.analyse.model import AFTER_OPTIMIZER, CallSite, LibraryFunction, LineCost, Phase, Stage
from profiler.core.syntax import line_nodes
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import StepCosts, total_seconds
from profiler.diagnose.rules._frames import lines_above
from profiler.diagnose.rules._operators import small_operators
from profiler.run.model import Site

_LIBRARIES: Final = ("torchmetrics/", "torcheval/metrics/", "sklearn/metrics/", "scipy/stats/")
"""Folders of libraries whose functions compute metrics."""
_TRAINING: Final = ("torch/nn/modules/", "torch/autograd/", "torch/optim/")
"""Folders of functions below which lines use the model, or train it."""
_NUMBERS: Final = ("item", "float", "tolist")
"""Operations by which the host reads numbers. A result that is read as an array, or as an index, is often used in the
same step."""
_CHOICES: Final = re.compile(r"sample|multinomial|rand")
"""What a program that acts or generates text computes to choose what it does next."""
_MOSTLY: Final = 0.5
"""Share of a line's time from which its operators are mostly small. A choice: half."""
_NEAR: Final = 8
"""Lines below one that computes a result at which it is read at most: what is read farther below is used for more."""
_OFTEN: Final = 0.5
"""Reads per step from which a value is read in each step. A choice: less is work of every so many steps."""

_KINDS: Final = ("sync", "would_sync", "might_sync")
"""Kinds of calls by which the host reads a result: `item()`, `tolist()`, `float()`."""


def metric_lines(costs: StepCosts) -> tuple[tuple[LineCost, ...], float]:
    """The lines with time in functions of libraries for metrics, and those that compute numbers without gradients which
    the host reads, the most time first; and how many numbers it reads there per step. None where they take less than a
    tenth of a step, and none beside a device with a queue: `hidden-sync` judges the reads then. Of lines that call
    mostly small operators, `many-small-operators` tells."""
    if costs.has_queue:
        return (), 0.0
    reading, computing = lines_read(costs, _own_lines(costs), _NUMBERS)
    reads = sum(call.calls_per_step for call in reading)
    small = {site: total_seconds(parts) for site, parts in small_operators(costs).items()}
    chosen = {line.site: line for line in computing if small.get(line.site, 0.0) < _MOSTLY * line.active}
    if reads < _OFTEN:
        chosen = {}
    for line in lines_above(costs, _is_metric):  # of several functions above one another, the outermost takes most
        if line.site not in chosen or line.seconds_per_step > chosen[line.site].seconds_per_step:
            chosen[line.site] = line
    lines = sorted(chosen.values(), key=lambda line: -line.seconds_per_step)
    is_told = sum(line.active for line in lines) >= NAMED * costs.active
    return (tuple(lines), reads) if is_told else ((), 0.0)


def _is_metric(function: LibraryFunction) -> bool:
    return function.file.startswith(_LIBRARIES)


def _own_lines(costs: StepCosts) -> Iterator[LineCost]:
    """Lines of the program that call operators without gradients: not those that use the model or train it, and those
    of evaluations, or after the optimizer's step, which other rules judge."""
    rows = [row for row in costs.analysis.operators if row.site is not None]
    learning = {_place(row.site) for row in rows if row.is_backward and row.site}
    calling = {_place(row.site) for row in rows if not row.is_backward and not row.caller and row.site}
    training = {_place(line.site) for line in lines_above(costs, lambda each: each.file.startswith(_TRAINING))}
    judged = {
        _place(line.site)
        for name in (AFTER_OPTIMIZER, Stage.EVALUATION, Stage.NO_GRADIENTS)
        if (phase := costs.phase(name)) is not None
        for line in lines_of(costs, phase)
    }
    for line in costs.analysis.lines:
        is_step = line.site.function.rpartition(".")[2] == "step"  # of an optimizer of the program's own
        is_known = _place(line.site) in learning | training | judged
        is_own = _place(line.site) in calling and not line.is_outside_torch
        if is_own and not is_known and not is_step and not _CHOICES.search(line.site.source):
            yield line


def _place(site: Site) -> tuple[str, int]:
    return site.file, site.line


def lines_read(
    costs: StepCosts, lines: Iterable[LineCost], operations: Collection[str] = ()
) -> tuple[set[CallSite], list[LineCost]]:
    """The calls by which the host reads results at some of these lines, and the lines that compute such results: those
    with such a call, and those whose results one reads a few lines below. Where a function reads results, its lines
    without operators of torch count too, such as those that compute a metric with NumPy.

    :param operations: the operations that count as reads, such as `item`; empty: all that wait for a device.
    """
    calls = [
        call
        for call in costs.analysis.call_sites
        if call.kind in _KINDS and (not operations or call.operation in operations)
    ]
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
    """The lines of a phase: those by which it is entered, and those of the function that they call."""
    own = {(site.file, site.line) for site in (phase.site, *(place.site for place in phase.further)) if site}
    return [
        line
        for line in costs.analysis.lines
        if (line.site.file, line.site.line) in own or (phase.calls and line.site.function == phase.calls)
    ]


def _is_same_function(call: Site, line: Site) -> bool:
    """Whether a recorded call is in the function of a sampled line. Before Python 3.12 a comprehension is a function of
    its own within another one."""
    functions = [site.function.partition(".<locals>.<")[0] for site in (call, line)]
    return call.is_in_file_of(line) and functions[0] == functions[1]


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    """The variables that a line of source uses, or assigns; none where the line is only a part of a statement."""
    return {node.id for node in line_nodes(source) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
