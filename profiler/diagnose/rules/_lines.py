"""Tells what takes time at lines: functions of libraries, metrics and other values that are read, small operators."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.model.device import CallSite
from profiler.analyse.model.host import AFTER_OPTIMIZER, LibraryFunction, LineCost, OperatorLine, Phase, Stage
from profiler.core.syntax import called_functions, line_nodes, parsed_line
from profiler.diagnose.model import MOST, NAMED
from profiler.diagnose.rule import NO_WORK, NOTHING, Cost, StepCosts, largest_sites, line_cost, spread, whole_cost
from profiler.run.model import Site

_TORCH: Final = ("cat", "concat", "concatenate", "hstack", "vstack")
_ARRAYS: Final = ("append", "concat", "concatenate", "hstack", "insert", "vstack")
"""Functions of torch, and of NumPy and pandas, that copy their arguments into a new, longer object."""


def lines_above(costs: StepCosts, chosen: Callable[[LibraryFunction], bool]) -> tuple[LineCost, ...]:
    """Return the user's lines above the functions that `chosen` selects, by the time in these. None of them calls
    another."""
    return tuple(function.below for function in costs.analysis.library if chosen(function))


def appended(site: Site) -> str:
    """Return what a line replaces by a longer copy of it; empty where it does something else.

    A model may join tensors in this way, as a DenseNet does: of tensors, only attributes count, and not in `forward`.
    """
    match parsed_line(site.source):
        case ast.Module(body=[ast.Assign(targets=[target], value=value)]):
            is_model = isinstance(target, ast.Name) or site.function.rpartition(".")[2] == "forward"
            name = ast.unparse(target)
            return name if any(_joins(call, name, is_model) for call in ast.walk(value)) else ""
    return ""


def _joins(call: ast.AST, name: str, is_model: bool) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=module, attr=function), args=args):
            match ast.unparse(module):
                case "torch":
                    is_join = not is_model and function in _TORCH
                case "np" | "numpy" | "pd" | "pandas":
                    is_join = function in _ARRAYS
                case _:  # it may be another name of torch
                    is_join = False
            return is_join and any(ast.unparse(part) == name for each in args for part in ast.walk(each))
    return False


def frame_costs(lines: tuple[LineCost, ...], category: str = "") -> dict[str, Cost]:
    """This time by category, without waits for a core or for other ranks. No rule asks for it beside a device with a
    queue: samples do not tell what of it leaves the device idle.

    :param category: the category that all of it is in; empty: it is divided as the stack samples are.
    """
    totals: dict[str, Cost] = {}
    for line in (each for each in lines if each.share):
        for name, seconds in line.categories.items():
            if name not in NO_WORK:
                totals[category or name] = totals.get(category or name, NOTHING) + line_cost(line, seconds)
    return totals


def own_work(lines: Iterable[LineCost]) -> dict[str, Cost]:
    """Return what those of these lines compute that call hardly any operator of torch, by category."""
    work = frame_costs(tuple(line for line in lines if line.is_outside_torch))
    return {name: work[name] for name in ("compute", "python") if name in work and work[name].seconds > 0}


def mostly_waits(line: LineCost) -> bool:
    """Return whether a line mostly waits, but for a core: what else it takes, as to start a program, goes with the
    wait."""
    waiting = line.categories.get("waiting", 0.0)
    own = line.seconds_per_step - sum(line.categories.get(name, 0.0) for name in NO_WORK)
    return waiting > MOST * own


def frame_sites(lines: tuple[LineCost, ...]) -> tuple[Site, ...]:
    return largest_sites(line.site for line in lines)


# ---------------------------------------------------------------- metrics, and other values that the host reads

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
    """Return the lines with time in functions of libraries for metrics, and those that compute numbers without
    gradients which the host reads, the most time first; and how many numbers it reads there per step. None where they
    take less than a tenth of a step."""
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
    """Return whether a function calls a module or trains one. Functions of modules that list parameters do neither."""
    is_call = function.name.rpartition(".")[2] in ("_wrapped_call_impl", "_call_impl", "forward")
    return function.file.startswith(_TRAINING) or (is_call and function.file.startswith("torch/nn/modules/"))


def _own_lines(costs: StepCosts, using: Collection[Site]) -> Iterator[LineCost]:
    """Yield the lines of the program that call operators without gradients, but for those that use the model or train
    it, or whose results such lines use; those of simulators and optimizers of the program's own; and those of other
    rules.

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
    """Return whether a line belongs to a simulator or an optimizer, makes a choice, or tells how much to scale
    gradients."""
    functions = [site.function, *called_functions(site.source)]
    is_step = any(name.rpartition(".")[2] == "step" for name in functions)
    is_clipping = "grad" in site.source and any(_is_same_function(each, site) for each in scaled)
    return is_step or is_clipping or bool(_CHOICES.search(site.source))


def _is_used(site: Site, using: Iterable[Site]) -> bool:
    """Return whether a line assigns what one of these lines of the same function uses."""
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
    """Return which of the calls that read results are at some of these lines, and the lines that compute such results:
    they have such a call, or one reads them a few lines below, or they have no operators of torch in a function that
    reads results, such as a metric by NumPy."""
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
    """Return the lines that enter a phase, and the lines of the function that they call."""
    own = {site.place for site in (phase.site, *phase.further) if site}
    return [
        line
        for line in costs.analysis.lines
        if line.site.place in own or (phase.calls and line.site.function == phase.calls)
    ]


def _is_same_function(call: Site, line: Site) -> bool:
    """Return whether a call is in the function of a line, of which a comprehension is an inner one before Python
    3.12."""
    functions = [site.function.partition(".<locals>.<")[0] for site in (call, line)]
    return call.is_in_file_of(line) and functions[0] == functions[1]


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    """Return the variables that a line of source uses, or assigns; none where the line is only a part of a
    statement."""
    return {node.id for node in line_nodes(source) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


# ---------------------------------------------------------------- calls of small operators

CALLING: Final = ("compute", "framework", "python")
"""Categories of the time in which a line calls operators: torch reads the arguments of each while it holds the GIL."""
_MOST_CALL_S: Final = 5e-6
"""Most seconds around an operator that its call is taken to need; what a line takes beyond is other work. A call takes
0.5 to 1.3 µs in the traps of tests/clinic (Xeon), some 2 µs on an AMD EPYC."""
_MOST_GRADIENT_S: Final = 10e-6
"""The same around a gradient function: the engine finds it, adds up gradients and frees them. With the function itself
this takes 7.6 µs in a loop of small operators (tests/clinic, trap_trainer, on a Xeon), 5 to 10 µs on an AMD EPYC."""
_NEARLY_ALL: Final = 0.9
"""Share of a line's operators, or gradient functions, from which the small ones are those of a loop. A choice: 9 of 10.
In a hand-written LSTM, one of a loop's 192 operators took 1.5 ms, and the others took 0.8 ms together."""
_MOST_SLOWER: Final = 2.0
"""Most times as long as when they were counted that operators are taken to be on average. They were counted in a few
steps, each at its shortest. Computing beyond that is not theirs: samples tell it from Python at a line only roughly."""


def small_operators(costs: StepCosts) -> dict[Site, dict[str, Cost]]:
    """For each line that calls small operators, what these take, by category: their own time, and the time around all
    operators by their number. Where operators are of no line, as with very many, all lines with computing divide them.
    """
    rows = called_by_program(costs)
    backward = costs.phase("backward")
    in_backward = backward.site.place if backward and backward.site else None
    places: dict[object, list[OperatorLine]] = {}
    for row in rows:
        places.setdefault(in_backward if row.is_backward else row.site and row.site.place, []).append(row)
    if rows and all(row.site is None for row in costs.analysis.operators):
        explained = sum(row.seconds + row.count * _most_around(row) for row in rows)
        if explained < NAMED * costs.cost("compute").seconds:  # steps do much more than the one that was counted
            return {}
        share = _small(rows) / sum(row.seconds for row in rows)
        return {
            line.site: {"compute": line_cost(line, share * line.categories["compute"])}
            for line in costs.analysis.lines
            if line.categories.get("compute") and share
        }
    lines: dict[tuple[str, int], list[LineCost]] = {}
    for line in costs.analysis.lines:  # a comprehension is a function of its own on the same line
        lines.setdefault(line.site.place, []).append(line)
    parts = {}
    for at, here in lines.items():
        called = places.get(at, [])
        seconds = {name: sum(line.categories.get(name, 0.0) for line in here) for name in CALLING}
        whole = sum(seconds.values())
        small = _small_seconds(called, whole, seconds["compute"])
        for line in here if small else ():
            parts[line.site] = {
                name: line_cost(line, line.categories[name] * small / whole)
                for name in CALLING
                if name in line.categories
            }
    return parts


def called_by_program(costs: StepCosts) -> list[OperatorLine]:
    """Return the operators that neither a loader nor an optimizer calls.

    Some gradient functions are small only within torch, and count as large. They belong to a line with mostly large
    operators, such as a recurrent network's. Or they belong to no line although lines are known: they add up the
    gradient of each parameter. A loop of small operators may have a few large ones, which go with the loop.
    """
    rows = [row for row in costs.analysis.operators if not row.caller]
    has_lines = any(row.site for row in rows)
    is_small: dict[Site | None, bool] = {
        row.site: _is_mostly_small(row) for row in rows if row.site and not row.is_backward
    }
    return [
        _with_loop(row, is_small.get(row.site, row.site is not None or not has_lines)) if row.is_backward else row
        for row in rows
    ]


def _is_nearly_all_small(row: OperatorLine) -> bool:
    return row.small_count > 0 and row.small_count >= _NEARLY_ALL * row.count


def _with_loop(row: OperatorLine, is_small: bool) -> OperatorLine:
    if not is_small:
        return replace(row, small_count=0, small_seconds=0.0)
    is_loop = row.site is not None and _is_nearly_all_small(row)
    return replace(row, small_seconds=row.seconds) if is_loop else row


def _is_mostly_small(row: OperatorLine) -> bool:
    """By their time or, in a loop, by their number: a few large ones do not hide that. Beside more large ones there is
    little to gain from calling fewer."""
    return row.small_seconds >= MOST * row.seconds or (row.site is not None and _is_nearly_all_small(row))


def _small_seconds(rows: Sequence[OperatorLine], whole: float, computing: float) -> float:
    """Return the seconds of small operators among those of a line, which takes `whole` to compute and to call."""
    seconds = sum(row.seconds for row in rows)
    mostly = [row for row in rows if _is_mostly_small(row)]
    small = _small(mostly)
    if not small:
        return 0.0
    most = sum(row.count * _most_around(row) for row in rows)
    around = min(max(0.0, whole - seconds), most)
    small += around * sum(row.small_count * _most_around(row) for row in mostly) / most
    explained = seconds + around
    return small * min(1.0, whole / explained) * min(max(1.0, computing / explained), _MOST_SLOWER)


def _most_around(row: OperatorLine) -> float:
    return _MOST_GRADIENT_S if row.is_backward else _MOST_CALL_S


def _small(rows: Iterable[OperatorLine]) -> float:
    return sum(row.small_seconds for row in rows)


def called_from(parts: Mapping[Site, Mapping[str, Cost]], *names: str) -> dict[str, Cost]:
    here = {name: [by_name[name] for by_name in parts.values() if name in by_name] for name in names}
    return {name: whole_cost(costs) for name, costs in here.items() if costs}


def within_step(costs: StepCosts, claimed: Mapping[str, Cost]) -> dict[str, Cost]:
    """Return what is claimed of the categories of calls. What exceeds one of them counts as another: samples tell
    Python from computing at a line only roughly."""
    fits, excess = dict[str, Cost](), NOTHING
    for name, cost in claimed.items():
        share = min(1.0, costs.cost(name).seconds / cost.seconds) if cost.seconds else 1.0
        fits[name], excess = cost.part(share), excess + cost.part(1.0 - share)
    more = spread(excess, {name: costs.cost(name).seconds - fits.get(name, NOTHING).seconds for name in CALLING})
    return fits | {name: fits.get(name, NOTHING) + cost for name, cost in more.items()}
