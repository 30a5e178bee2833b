"""Finds gradients of parameters that no optimizer has: the work of backward passes that trains nothing.

A few backward passes are looked at after the first steps of an optimizer. The first ones tell whether there are such
parameters; in most programs that ends the search. Some steps later, the functions of further passes are timed. A
parameter counts only if it is the same then: one that changed may have been updated by hand. Nothing of the program is
kept in between but ids and a few bytes of each such parameter.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Final

from profiler.agent.hooks import optimizers
from profiler.agent.patching import STATE, caller, code_line, user_frame
from profiler.agent.recorder import now

_STEPS: Final = 5
"""Steps of optimizers before the first passes that are looked at, and between these and the timed ones."""
_PASSES: Final = 4
"""Passes that are looked at each time: a program may have several in a step, such as those of a GAN."""
_MAX_NODES: Final = 50_000
"""Functions of a pass that are looked at, at 8 µs each with their parameters. A larger graph is left alone."""
_MAX_NS: Final = 100_000_000
_CHECKED: Final = 64
"""Bytes at the start, the middle and the end of a parameter that are compared."""
_UNSEEN: Final = ("CheckpointFunction", "BackwardHookFunction")
"""Functions whose gradients someone may want: the first computes parameters in a pass of its own, and the second gives
them to a hook of a module."""

_ARGUMENTS: Final = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
"""Arguments of torch.autograd.backward."""

Fingerprint = tuple[int, int, bytes]


@dataclass(slots=True)
class _Timed:
    """What a pass does."""

    shares: list[float]
    """The share of the work of each function that is unused."""
    assumed: set[int]
    """The functions of which only a part is."""
    thread: int = field(default_factory=threading.get_ident)
    begin: int = 0
    end: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Number of each function that ran, and when it began."""
    is_elsewhere: bool = False
    """Whether a function ran in another thread, as those of a GPU do."""

    def note(self, number: int, _: object) -> None:
        """torch calls it before a function of the pass. The accumulation of a gradient comes right after the function
        that computed it, and counts as a part of it."""
        self.marks.append((number, now()))
        self.is_elsewhere = self.is_elsewhere or threading.get_ident() != self.thread

    def unused(self, *, assumed: bool = False) -> float:
        """ns of unused work; only of functions of which a part is.

        :param assumed: whether to count only these functions.
        """
        ends = [begin for _, begin in self.marks[1:]] + [self.end]
        return sum(
            (end - begin) * self.shares[number]
            for (number, begin), end in zip(self.marks, ends, strict=True)
            if not assumed or number in self.assumed
        )


@dataclass(slots=True)
class _Graph:
    """The functions of a pass, apart from those that accumulate gradients."""

    nodes: list[Any]
    shares: list[float]
    """The share of the work of each one that is for gradients of unused parameters only."""
    is_judged: bool
    """Whether a parameter of an optimizer is among those whose gradients it computes."""
    unused: list[Any]
    """Parameters that no optimizer has."""


class Search:
    """The search in one process."""

    def __init__(self) -> None:
        self.is_over = False
        self._left = _PASSES
        self._from = _STEPS
        self._before: dict[int, Fingerprint] | None = None
        """What the first passes found, by the id of the parameter; None: they are not over yet."""
        self._found: dict[int, Fingerprint] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        """Elements and bytes of each unused parameter of the timed passes."""
        self._timed: list[_Timed] = []

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], None] | None:
        """Look at a backward pass that is about to begin with these arguments.

        :returns: what is to be called at its end; None: nothing.
        """
        recorder = STATE.recorder
        if self.is_over or recorder is None or not recorder.detailed or optimizers.steps_so_far() < self._from:
            return None
        began = now()
        try:
            torch = sys.modules["torch"]
            arguments = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
            if _is_special(torch, arguments):
                return None
            with torch._C.DisableTorchFunction():
                return self._look(torch, arguments.get("tensors"))
        except Exception as error:  # noqa: BLE001 - the edge to the program, which goes on; the run's status reports it
            self._fail(error)
            return None
        finally:
            recorder.record_overhead(began)

    def _look(self, torch: Any, tensors: Any) -> Callable[[], None] | None:
        roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        graph = _graph(
            [function for root in roots if (function := getattr(root, "grad_fn", None)) is not None],
            partial(self._is_unused, torch.nn.Parameter),
            optimizers.parameters(),
        )
        if graph is None:
            self.is_over = True
            return None
        self._left -= 1
        if not graph.is_judged:
            graph.shares = [0.0] * len(graph.nodes)
        if self._before is None:
            if graph.is_judged:
                self._found |= {id(parameter): _fingerprint(parameter) for parameter in graph.unused}
            if not self._left:
                self._before, self._left, self._from = self._found, _PASSES, optimizers.steps_so_far() + _STEPS
                self.is_over = not self._before
            return None
        if graph.is_judged:
            self._sizes |= {
                id(parameter): (parameter.numel(), parameter.numel() * parameter.element_size())
                for parameter in graph.unused
            }
        timed = _Timed(graph.shares, {number for number, share in enumerate(graph.shares) if 0.0 < share < 1.0})
        handles = [node.register_prehook(partial(timed.note, number)) for number, node in enumerate(graph.nodes)]
        self._timed.append(timed)
        timed.begin = now()
        return partial(self._end, timed, handles)

    def _is_unused(self, kind: Any, parameter: Any) -> bool:
        """Whether nothing is known that would use the gradient of a parameter that no optimizer has."""
        if type(parameter) is not kind or parameter._backward_hooks:
            return False
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            return False
        return self._before is None or self._before.get(id(parameter)) == _fingerprint(parameter)

    def _end(self, timed: _Timed, handles: list[Any]) -> None:
        timed.end = now()
        recorder = STATE.recorder
        try:
            for handle in handles:
                handle.remove()
            if self._left or self.is_over:
                return
            self.is_over = True
            if recorder is not None and any(share for each in self._timed for share in each.shares):
                recorder.add_hook_facts(unused_gradients=self._fact(user_frame(caller(1))))
                recorder.record_overhead(timed.end)
            self._timed.clear()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.is_over = True
        if STATE.recorder is not None:
            STATE.recorder.hook_errors["unused_gradients"] = f"{type(error).__name__}: {error}"

    def _fact(self, frame: FrameType | None) -> dict[str, Any]:
        whole = sum(each.end - each.begin for each in self._timed)
        is_timed = whole > 0 and not any(each.is_elsewhere for each in self._timed)
        shares = [share for each in self._timed for share in each.shares]
        return {
            **(code_line(frame.f_code, frame.f_lineno) if frame else {}),
            "tensors": len(self._sizes),
            "bytes": sum(size for _, size in self._sizes.values()),
            "module": _largest_module(self._sizes),
            "functions": sum(shares) / len(shares),
            "share": sum(each.unused() for each in self._timed) / whole if is_timed else None,
            "assumed": sum(each.unused(assumed=True) for each in self._timed) / whole if is_timed else None,
        }


def _is_special(torch: Any, further: Mapping[str, Any]) -> bool:
    """Whether a pass is one whose gradients are differentiated again, or computed for chosen tensors, or one that a
    compiler follows."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(
        further.get("create_graph")
        or further.get("inputs") is not None
        or torch.compiler.is_compiling()
        or getattr(compiler, "compiled_autograd_enabled", False)
    )


def _fingerprint(parameter: Any) -> Fingerprint:
    """What changes with a parameter: how often it was changed in place, where it lies and, on the CPU, some bytes. They
    are read without an operator of torch."""
    place, size, data = parameter.data_ptr(), parameter.numel() * parameter.element_size(), b""
    if place and parameter.device.type == "cpu" and parameter.is_contiguous():
        length = min(_CHECKED, size)
        data = b"".join(ctypes.string_at(place + at, length) for at in (0, (size - length) // 2, size - length))
    return parameter._version, place, data


def _graph(roots: list[Any], is_unused: Callable[[Any], bool], optimized: set[int]) -> _Graph | None:
    """The functions of a backward pass; None if there are too many.

    :param optimized: ids of the parameters that an optimizer has.
    """
    graph, deadline = _Graph([], [], False, []), now() + _MAX_NS
    numbers: dict[int, int] = {}
    leaves: dict[int, tuple[float, bool]] = {}
    """Of the functions that accumulate gradients: whether that is unused, and whether it takes time to compute."""
    kept: list[Any] = []  # ids stay unique meanwhile
    stack: list[tuple[Any, bool]] = [(root, False) for root in roots]
    while stack:
        node, is_ready = stack.pop()
        key = id(node)
        if is_ready:
            edges = [leaves.get(id(other)) or (graph.shares[numbers[id(other)]], True) for other in _next(node)]
            graph.shares[numbers[key]] = _unused_share(edges) if not type(node).__name__.startswith(_UNSEEN) else 0.0
        elif key in numbers or key in leaves:
            continue
        elif type(node).__name__ == "AccumulateGrad":
            kept.append(node)
            variable = node.variable
            has_optimizer = id(variable) in optimized
            graph.is_judged = graph.is_judged or has_optimizer
            unused = not has_optimizer and is_unused(variable)
            leaves[key] = float(unused), variable.dim() > 1
            if unused:
                graph.unused.append(variable)
        else:
            numbers[key] = len(graph.nodes)
            graph.nodes.append(node)
            graph.shares.append(0.0)
            stack.append((node, True))
            stack.extend((other, False) for other in _next(node))
            if len(graph.nodes) > _MAX_NODES or (len(graph.nodes) % 1024 == 0 and now() > deadline):
                return None
    return graph


def _next(node: Any) -> Iterator[Any]:
    return (other for other, _ in node.next_functions if other is not None)


def _unused_share(edges: list[tuple[float, bool]]) -> float:
    """The share of a function's work that is for unused gradients: all if nobody needs what it computes, else the share
    of those gradients of a matrix or of an input that nobody needs. Those of a product take about the same time; those
    of a bias or of a scale take little.
    """
    if not edges:
        return 0.0
    if all(share == 1.0 for share, _ in edges):
        return 1.0
    large = [share == 1.0 for share, is_large in edges if is_large]
    return sum(large) / len(large) if large else 0.0


def _largest_module(sizes: Mapping[int, tuple[int, int]]) -> str:
    """The largest module that has only such parameters, as `class of its owner.attribute`, or `variable`; empty:
    there is none.

    All objects of the program are looked at: 0.3 s in a program with 1,500 modules, once.
    """
    base = sys.modules["torch"].nn.Module
    modules = [each for each in gc.get_objects() if issubclass(type(each), base)]
    whole = {id(module): size for module in modules if (size := _unused_elements(module, sizes))}
    within = {id(child) for module in modules if id(module) in whole for child in _attributes(module, "_modules")}
    tops = [module for module in modules if id(module) in whole and id(module) not in within]
    if not tops:
        return ""
    largest = max(tops, key=lambda module: whole[id(module)])
    return _attribute(largest, modules) or _attribute(largest, gc.get_referrers(largest)) or type(largest).__name__


def _attribute(module: Any, owners: Iterable[Any]) -> str:
    """The attribute or the variable that one of these objects has a module in; empty: none has."""
    for owner in owners:
        attributes = owner if type(owner) is dict else getattr(owner, "__dict__", None)
        if isinstance(attributes, dict):
            for name, value in (*attributes.items(), *(attributes.get("_modules") or {}).items()):
                if value is module:
                    return str(name) if owner is attributes else f"{type(owner).__name__}.{name}"
    return ""


def _attributes(module: Any, name: str) -> Iterable[Any]:
    """The parameters or modules of a module, without its own code: one may be made only in part."""
    return tuple(each for each in (vars(module).get(name) or {}).values() if each is not None)


def _unused_elements(module: Any, sizes: Mapping[int, tuple[int, int]]) -> int:
    """Elements of a module and those in it, if no gradient of them is used; else 0."""
    total, stack, seen = 0, [module], set[int]()
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for parameter in _attributes(each, "_parameters"):
            if id(parameter) in sizes:
                total += sizes[id(parameter)][0]
            elif parameter.requires_grad:
                return 0
        stack.extend(_attributes(each, "_modules"))
    return total
