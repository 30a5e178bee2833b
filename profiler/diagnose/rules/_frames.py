"""Tells what a function of a library costs, by the stack samples in it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Final

from profiler.analyse.model.host import LibraryFunction, LineCost
from profiler.core.syntax import parsed_line
from profiler.diagnose.model import MOST
from profiler.diagnose.rule import NO_WORK, NOTHING, Cost, StepCosts, largest_sites, line_cost
from profiler.run.model import Site

_TORCH: Final = ("cat", "concat", "concatenate", "hstack", "vstack")
_ARRAYS: Final = ("append", "concat", "concatenate", "hstack", "insert", "vstack")
"""Functions of torch, and of NumPy and pandas, that copy their arguments into a new, longer object."""


def lines_above(costs: StepCosts, chosen: Callable[[LibraryFunction], bool]) -> tuple[LineCost, ...]:
    """The user's lines above the functions that `chosen` selects, by the time in these. None of them calls another."""
    return tuple(function.below for function in costs.analysis.library if chosen(function))


def appended(site: Site) -> str:
    """What a line replaces by a longer copy of it; empty where it does something else.

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
    """What those of these lines compute that call hardly any operator of torch, by category."""
    work = frame_costs(tuple(line for line in lines if line.is_outside_torch))
    return {name: work[name] for name in ("compute", "python") if name in work and work[name].seconds > 0}


def mostly_waits(line: LineCost) -> bool:
    """Whether a line mostly waits, but for a core: what else it takes, as to start a program, goes with the wait."""
    waiting = line.categories.get("waiting", 0.0)
    own = line.seconds_per_step - sum(line.categories.get(name, 0.0) for name in NO_WORK)
    return waiting > MOST * own


def frame_sites(lines: tuple[LineCost, ...]) -> tuple[Site, ...]:
    return largest_sites(line.site for line in lines)
