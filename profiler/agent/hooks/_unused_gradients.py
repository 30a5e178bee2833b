"""Finds gradients that no optimizer uses: the work of backward passes that trains nothing.

They are those of parameters that no optimizer has, and those that `zero_grad` discards before the optimizer steps.

A few backward passes are looked at after the first steps of an optimizer. The first ones tell whether there are such
parameters; in most programs that ends the search. Some steps later, the functions of further passes are timed. A
parameter counts only if it is the same then: one that changed may have been updated by hand. Nothing of the program is
kept in between but ids and a few bytes of each such parameter. Gradients that are discarded count only where a function
of the pass computes nothing else. Only programs on the CPU are searched: on another device, a parameter that was
updated by hand could not be told from one that was not. Where the search gives up, the fact has the reason. Where it
finds nothing, a new one begins when the program makes a further optimizer.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks import optimizers
from profiler.agent.hooks.optimizers import Call
from profiler.agent.patching import STATE, caller, code_line, is_user_code, user_frame

_STEPS: Final = 5
"""Steps of optimizers before the first passes that are looked at, and between these and the timed ones."""
_PASSES: Final = 4
"""Passes that are looked at each time: a program may have several in a step, such as those of a GAN."""
_MAX_SEARCHES: Final = 3
"""Searches of a program at most. A new one begins where it makes a further optimizer, as for a second phase."""
_MAX_SKIPPED: Final = 20
"""Passes of a kind that is not looked at after which the search ends."""
_MAX_NODES: Final = 12_000
"""Functions of a pass that are looked at, at 8 µs each with their parameters: 0.1 s. A larger graph is left alone."""
_FRAMES: Final = 2
"""Frames by which passes are told apart."""
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
    line: Mapping[str, Any]
    """The line that starts it."""
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
        if not self.marks:
            return 0.0
        ends = [begin for _, begin in self.marks[1:]] + [self.end]
        return sum(
            (end - begin) * self.shares[number]
            for (number, begin), end in zip(self.marks, ends, strict=True)
            if not assumed or self.shares[number] < 1.0
        )


@dataclass(slots=True)
class _Graph:
    """The functions of a pass, apart from those that accumulate gradients."""

    nodes: list[Any]
    shares: list[float]
    """The share of the work of each one that is for gradients of unused parameters only."""
    is_judged: bool
    """Whether a parameter of an optimizer is among those whose gradients it computes."""
    unused: list[tuple[Any, Fingerprint]]
    """Parameters that no optimizer has."""
    discarded: list[Any]
    """Parameters whose optimizer does not use the gradients of this pass."""


class Search:
    """The search in one process."""

    def __init__(self) -> None:
        self._searches = 0
        self._is_told = False
        """Whether what was found, or why nothing can be, was recorded."""
        self._lock = threading.Lock()
        """Threads may be in backward passes at once."""
        self._running = 0
        """Timed passes that have not ended."""
        self._start()

    def _start(self) -> None:
        self._searches += 1
        self._is_over = False
        self._made = 0
        """Optimizers that the program had made when the search ended."""
        self._is_sharding_known = False
        """Whether the optimizers' parameters were searched for shards."""
        self._skipped = 0
        self._left = _PASSES
        self._from = optimizers.SEEN.steps + _STEPS
        self._before: dict[int, Fingerprint] | None = None
        """What the first passes found, by the id of the parameter; None: they are not over yet."""
        self._found: dict[int, Fingerprint] = {}
        self._has_discarded = False
        """Whether a pass has gradients that its optimizer does not use."""
        self._discarded: set[int] = set()
        """Parameters with such gradients."""
        self._sizes: dict[int, tuple[int, list[int]]] = {}
        """Bytes and shape of each unused parameter of the timed passes."""
        self._timed: list[_Timed] = []

    @property
    def is_over(self) -> bool:
        """Whether no further pass is looked at."""
        if not self._is_over:
            return False
        if self._running or self._is_told or self._searches >= _MAX_SEARCHES:
            return True
        return optimizers.SEEN.made <= self._made

    def _finish(self) -> None:
        self._is_over = optimizers.SEEN.uses.is_over = True
        self._made = optimizers.SEEN.made

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], None] | None:
        """Look at a backward pass that is about to begin with these arguments.

        :returns: what is to be called at its end; None: nothing.
        """
        recorder = STATE.recorder
        if self.is_over or recorder is None:
            return None
        if self._is_over:
            with self._lock:
                if self._is_over:
                    self._start()
                    optimizers.SEEN.uses = optimizers.GradientUses()
        call = _call(caller(2))
        optimizers.SEEN.uses.passed(call)
        if not recorder.detailed or optimizers.SEEN.steps < self._from:
            return None
        began = now()
        try:
            torch = sys.modules["torch"]
            arguments = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
            with self._lock:
                if self._is_over or self._left < 1:
                    return None
                if _is_special(torch, arguments):
                    self._skipped += 1
                    if self._skipped >= _MAX_SKIPPED:
                        self._finish()
                    return None
                with torch._C.DisableTorchFunction():
                    return self._look(torch, arguments.get("tensors"), call)
        except Exception as error:  # noqa: BLE001 - the edge to the program, which goes on; the run's status reports it
            self._fail(error)
            return None
        finally:
            recorder.record_overhead(began)

    def _look(self, torch: Any, tensors: Any, call: Call) -> Callable[[], None] | None:
        if not self._is_sharding_known:
            self._is_sharding_known = True
            if optimizers.has_sharded_parameters():
                self._give_up("sharded-parameters")
                return None
        roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        graph = _graph(
            [function for root in roots if (function := getattr(root, "grad_fn", None)) is not None],
            partial(self._unused, torch.nn.Parameter),
            optimizers.parameters(),
            optimizers.discarded_parameters(call),
        )
        if graph is None:
            self._give_up("large-graph", functions=_MAX_NODES)
            return None
        if not graph.nodes:
            return None
        self._left -= 1
        if not graph.is_judged:
            graph.shares = [0.0] * len(graph.nodes)
        if self._before is None:
            self._has_discarded = self._has_discarded or bool(graph.discarded)
            if graph.is_judged:
                self._found |= {id(parameter): fingerprint for parameter, fingerprint in graph.unused}
            if not self._left:
                self._before, self._left, self._from = self._found, _PASSES, optimizers.SEEN.steps + _STEPS
                if not self._before and not self._has_discarded:
                    self._finish()
            return None
        if graph.is_judged:
            self._sizes |= {
                id(parameter): (parameter.numel() * parameter.element_size(), list(parameter.shape))
                for parameter in (*(parameter for parameter, _ in graph.unused), *graph.discarded)
            }
            self._discarded |= {id(parameter) for parameter in graph.discarded}
        frame = user_frame(caller(3))
        timed = _Timed(graph.shares, code_line(frame.f_code, frame.f_lineno) if frame else {})
        handles = [node.register_prehook(partial(timed.note, number)) for number, node in enumerate(graph.nodes)]
        self._timed.append(timed)
        self._running += 1
        timed.begin = now()
        return partial(self._end, timed, handles)

    def _unused(self, kind: Any, parameter: Any) -> Fingerprint | None:
        """Return the fingerprint of a parameter that no optimizer has, if nothing is known that would use its
        gradient."""
        if type(parameter) is not kind or hasattr(parameter, "_is_flat_param") or _has_hooks(parameter):
            return None
        fingerprint = _fingerprint(parameter)
        return fingerprint if self._before is None or self._before.get(id(parameter)) == fingerprint else None

    def _end(self, timed: _Timed, handles: list[Any]) -> None:
        timed.end = now()
        recorder = STATE.recorder
        try:
            for handle in handles:
                handle.remove()
            with self._lock:
                self._running -= 1
                if self._left or self._running or self._is_over:
                    return
                self._is_told = recorder is not None and any(share for each in self._timed for share in each.shares)
                self._finish()
            if recorder is not None and self._is_told:
                recorder.add_hook_facts(unused_gradients=self._fact())
                recorder.record_overhead(timed.end)
            self._timed.clear()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _give_up(self, code: str, **values: int) -> None:
        """End the search for a reason that the rule `unused-gradients` tells."""
        self._finish()
        self._is_told = True
        if STATE.recorder is not None:
            STATE.recorder.add_hook_facts(unused_gradients={"not_judged": {"code": code, "values": values}})

    def _fail(self, error: Exception) -> None:
        self._finish()
        self._is_told = True
        if STATE.recorder is not None:
            STATE.recorder.hook_errors["unused_gradients"] = f"{type(error).__name__}: {error}"

    def _fact(self) -> dict[str, Any] | None:
        whole = sum(each.end - each.begin for each in self._timed)
        if not whole or any(each.is_elsewhere for each in self._timed):
            return None
        _, shape = max(self._sizes.values())
        return {
            **max(self._timed, key=_Timed.unused).line,
            "tensors": len(self._sizes),
            "bytes": sum(size for size, _ in self._sizes.values()),
            "largest": shape,
            "discarded": len(self._discarded),
            "share": sum(each.unused() for each in self._timed) / whole,
            "assumed": sum(each.unused(assumed=True) for each in self._timed) / whole,
        }


def _call(frame: FrameType | None) -> Call:
    """Return the innermost frames of the user's code: a function may do the steps of several optimizers."""
    places: list[tuple[str, int]] = []
    while frame is not None and len(places) < _FRAMES:
        if is_user_code(frame.f_code):
            places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(places)


def _has_hooks(parameter: Any) -> bool:
    """Tell whether something else than an optimizer may use the gradient of a parameter."""
    return bool(parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))


def _is_special(torch: Any, further: Mapping[str, Any]) -> bool:
    """Tell whether a pass is one whose gradients are differentiated again, or computed for chosen tensors, or one that
    a compiler follows."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(
        further.get("create_graph")
        or further.get("inputs") is not None
        or torch.compiler.is_compiling()
        or getattr(compiler, "compiled_autograd_enabled", False)
    )


def _fingerprint(parameter: Any) -> Fingerprint | None:
    """Return what changes with a parameter on the CPU: how often it was changed in place, where it lies, and some
    bytes. They are read without an operator of torch.

    :returns: None if the parameter lies on another device, or if its memory is released, as FSDP does between uses.
    """
    place, size = parameter.data_ptr(), parameter.numel() * parameter.element_size()
    if not place or parameter.device.type != "cpu" or not parameter.is_contiguous():
        return None
    if parameter.untyped_storage().nbytes() < parameter.storage_offset() * parameter.element_size() + size:
        return None
    length = min(_CHECKED, size)
    data = b"".join(ctypes.string_at(place + at, length) for at in (0, (size - length) // 2, size - length))
    return parameter._version, place, data


def _graph(
    roots: list[Any],
    fingerprint_of_unused: Callable[[Any], Fingerprint | None],
    optimized: set[int],
    discarded: set[int],
) -> _Graph | None:
    """Return the functions of a backward pass; None if there are too many.

    :param fingerprint_of_unused: gives the fingerprint of a parameter without an optimizer, or None if the program may
        use its gradient.
    :param optimized: ids of the parameters that an optimizer has.
    :param discarded: ids of those of them whose optimizer does not use the gradients of this pass.
    """
    graph = _Graph([], [], False, [], [])
    numbers: dict[int, int] = {}
    leaves: dict[int, tuple[float, bool]] = {}
    """For each function that accumulates a gradient: 1 if that is unused, else 0; and whether it needs time."""
    reset: dict[int, Any] = {}
    """Parameters that are discarded, by their function and by those that only transpose or convert them."""
    kept: list[Any] = []  # ids stay unique meanwhile
    stack: list[tuple[Any, bool]] = [(root, False) for root in roots]
    while stack:
        node, is_ready = stack.pop()
        key = id(node)
        if is_ready:
            others = [id(other) for other in _next(node)]
            is_unseen = type(node).__name__.startswith(_UNSEEN)
            if len(others) == 1 and others[0] in reset and not is_unseen:
                leaves[key], reset[key] = (1.0, False), reset[others[0]]
                continue
            edges = [leaves.get(other) or (graph.shares[numbers[other]], True) for other in others]
            share = 0.0 if is_unseen else _unused_share(edges)
            graph.shares[numbers[key]] = share
            if share == 1.0:
                graph.discarded.extend(reset[other] for other in others if other in reset)
        elif key in numbers or key in leaves:
            continue
        elif type(node).__name__ == "AccumulateGrad":
            kept.append(node)
            variable = node.variable
            has_optimizer = id(variable) in optimized
            is_discarded = id(variable) in discarded and variable.is_cpu and not _has_hooks(variable)
            graph.is_judged = graph.is_judged or (has_optimizer and not is_discarded)
            fingerprint = None if has_optimizer else fingerprint_of_unused(variable)
            leaves[key] = float(is_discarded or fingerprint is not None), variable.dim() > 1
            if is_discarded:  # a loss may need the gradients of the inputs of a module that it does not train
                leaves[key], reset[key] = (1.0, False), variable
            if fingerprint is not None:
                graph.unused.append((variable, fingerprint))
        else:
            numbers[key] = len(graph.nodes)
            graph.nodes.append(node)
            graph.shares.append(0.0)
            stack.append((node, True))
            stack.extend((other, False) for other in _next(node))
            if len(graph.nodes) > _MAX_NODES:
                return None
    return graph


def _next(node: Any) -> Iterator[Any]:
    return (other for other, _ in node.next_functions if other is not None)


def _unused_share(edges: list[tuple[float, bool]]) -> float:
    """Return the share of a function's work that is for unused gradients: all if nobody needs what it computes, else
    the share of those gradients of a matrix or of an input that nobody needs. Those of a product take about the same
    time; those of a bias or of a scale take little.
    """
    if not edges:
        return 0.0
    if all(share == 1.0 for share, _ in edges):
        return 1.0
    large = [share == 1.0 for share, is_large in edges if is_large]
    return sum(large) / len(large) if large else 0.0
