"""Counts the operators that torch's dispatcher executes, in forward and backward passes, by the program's lines.

A torch dispatch mode gets every operator. An operator has the line of the innermost frame of the program. A backward
pass has no such frame. Autograd numbers gradient functions in the order in which the forward pass makes them, so the
operators of a gradient function have the line that made it.

The formulas of `torch.utils.flop_counter` give the floating-point operations of matrix products, convolutions and
attention, forward and backward. A multiplication with an addition counts as two. Other operators count as none.
"""

from __future__ import annotations

import itertools
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from time import monotonic_ns
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.exact import private_api
from profiler.exact.marks import MemoryModel, tensors_in

_OPERATOR: Final = 32
"""A call has the number of the operator from this bit on. The bits below have the number of the line, from 1 on."""
_SITES: Final = (1 << _OPERATOR) - 1
_MAX_CALLS: Final = 200_000
"""`on_full` is called after this many calls, because a program may never reach the end of a step."""
_MAX_STARTS: Final = 200_000
"""This many lines of gradient functions are remembered, because a program may keep the graph of an earlier step."""
_MAX_SHAPES: Final = 10_000
"""Combinations of shapes of an operator whose floating-point operations are remembered."""
_made: Final = private_api.gradient_functions_made
_node: Final = private_api.gradient_function
_has_function_modes: Final = private_api.has_function_modes
_without_function_modes: Final = private_api.without_function_modes
_frame: Final = sys._getframe
_LIBRARY, _PROGRAM, _ENGINE = range(3)
"""A source file belongs to a library or to the program, or it is the file of torch that calls the autograd engine."""


Amount = Callable[[tuple[Any, ...], Mapping[str, Any], Any], int]
"""Arguments and result of a call -> an amount."""


class OperatorKind(StrEnum):
    """What an operator does, as its schema tells."""

    OPERATOR = "operator"
    """It computes: a GPU would launch at least one kernel."""
    VIEW = "view"
    """It makes a view of a tensor, or allocates one: a GPU would launch nothing."""
    COLLECTIVE = "collective"
    """It communicates with other processes."""
    INTERNAL = "internal"
    """It marks something for torch's profiler, and is not counted."""
    FILE = "file"
    """It opens a file for writing. It is no operator of torch, but is counted as one."""


class Operator(NamedTuple):
    """What is known about an operator of torch."""

    name: str
    kind: OperatorKind
    allocates: bool
    """Whether its result may be new memory."""
    amount: Amount | None
    """It computes floating-point operations, or the bytes of a collective, from arguments and result. None: there are
    none."""

    reads: bool = False
    """Whether it gives the value of a tensor to the host."""


_Known = tuple[Any, int, bool, Amount | None, bool, Any]
"""It holds a faster way to call an operator, its number (in the bits of a call; -1: it does not count), `allocates`,
`amount` and `reads`, and torch's object for it, so that no other object has its id."""


class OperatorCount(NamedTuple):
    """What one line has executed."""

    operator: Operator
    site: int
    calls: int
    amount: int
    """The number of floating-point operations, or the bytes of a collective."""


class OperatorCounter:
    """The operators that all threads have executed since the last call of `take`.

    :param site_number: the number of the line that a frame of the program is at.
    :param is_user_file: whether a file belongs to the program.
    :param on_full: is called when much was executed since the last call of `take`, and calls it.
    """

    def __init__(
        self,
        site_number: Callable[[FrameType], int],
        is_user_file: Callable[[str], bool],
        on_full: Callable[[], object],
    ) -> None:
        self.site_number, self.is_user_file, self.on_full = site_number, is_user_file, on_full
        self.on_read: Callable[[], object] | None = None
        """Is called when an operator gives the value of a tensor to the host."""
        self.memory = MemoryModel()
        self.owners: dict[str, int] = {private_api.ENGINE_FILE: _ENGINE}
        """Each file that was met, and whose it is."""
        self.sites: dict[int, int] = {}
        """The number of each line. The key is `id(code)` plus the instruction. This is an address within the code,
        which no other object has while `codes` keeps the code alive."""
        self.codes: list[CodeType] = []
        self.operators: dict[int, _Known] = {}
        """By the id of torch's object for the operator."""
        self._known: dict[int, Operator] = {}
        """By number."""
        self._numbers = itertools.count()  # two threads never get one number
        self.calls: list[int] = []
        """Each number has the operator and the line of a call. Python's garbage collector does not visit numbers, as it
        would visit tuples."""
        self.amounts: list[tuple[int, int]] = []
        """Each pair has such a number, and floating-point operations or bytes."""
        self.forwards: set[int] = set()
        """Times (ns) at which lines began to make gradient functions that backward passes have executed."""

    def take(self) -> Iterator[OperatorCount]:
        """Yield what was executed since the last call."""
        calls, self.calls = self.calls, []
        amounts, self.amounts = self.amounts, []
        sums: dict[int, int] = {}
        for call, amount in amounts:
            sums[call] = sums.get(call, 0) + amount
        for call, count in Counter(calls).items():
            yield OperatorCount(self._known[call >> _OPERATOR], (call & _SITES) - 1, count, sums.get(call, 0))

    def add_call(self, number: int, site: int) -> None:
        """Count a call that is no operator of torch, by the number of what it does."""
        self.calls.append(number + site + 1)
        if len(self.calls) > _MAX_CALLS:
            self.on_full()

    def begin_anew(self) -> None:
        """Forget what was counted and number lines anew, as in a forked process with a record of its own."""
        self.calls, self.amounts = [], []
        self.memory = MemoryModel()
        self.sites.clear()
        self.codes.clear()

    def describe(self, function: Any) -> _Known:
        """Remember what is known about an operator."""
        operator = _describe(function)
        number = self.number(operator)
        bits = -1 if operator.kind is OperatorKind.INTERNAL else number
        call = private_api.binding(function)
        known = call, bits, operator.allocates, operator.amount, operator.reads, function
        self.operators[id(function)] = known
        return known

    def number(self, operator: Operator) -> int:
        """Return the number of an operator, in the bits of a call."""
        number = next(self._numbers)
        self._known[number] = operator
        return number << _OPERATOR

    def new_site(self, key: int, frame: FrameType) -> int:
        """Return the number of a line that has not been met before."""
        self.codes.append(frame.f_code)
        number = self.sites[key] = self.site_number(frame)
        return number

    def owner(self, file: str) -> int:
        """Whose a file is that has not been met before."""
        owner = self.owners[file] = _PROGRAM if self.is_user_file(file) else _LIBRARY
        return owner


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators of the thread that enters it."""

    supports_higher_order_operators = True

    def __init__(self, counter: OperatorCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counter = counter
        self.is_paused = False
        """Whether operators do not count for a while."""
        self._made = private_api.gradient_functions_made()
        self._starts: list[int] = []
        """The numbers of gradient functions ascend. From each number on, the line in `_origins` made them."""
        self._origins: list[int] = []
        self._times: list[int] = []
        """The time (ns) at which each number was made."""
        self._is_new = False
        """Whether a backward pass was seen since the last number."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper would cost more than the method

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counter = self.counter
        try:
            call, number, allocates, amount, reads, _ = counter.operators[id(func)]
        except KeyError:
            call, number, allocates, amount, reads, _ = counter.describe(func)
        if types or not _has_function_modes():
            result = call(*args, **kwargs) if kwargs else call(*args)
        else:  # autograd calls the operator: there a torch function mode has nothing to do
            with _without_function_modes():
                result = call(*args, **kwargs) if kwargs else call(*args)
        if number < 0 or self.is_paused:
            return result
        site = self._site(_frame(0).f_back)  # None: autograd runs a C++ node in a thread of its own
        calls, key = counter.calls, number + site + 1
        calls.append(key)
        if allocates:
            counter.memory.add(result, site)
        if amount is not None:
            counter.amounts.append((key, amount(args, kwargs or {}, result)))
        if reads and counter.on_read is not None:
            counter.on_read()
        if len(calls) > _MAX_CALLS:
            counter.on_full()
        return result

    def _site(self, frame: FrameType | None) -> int:
        """Return the number of the program's line at or above a frame; -1 if there is none."""
        counter = self.counter
        owners, sites = counter.owners, counter.sites
        site, is_backward = -1, False
        while frame is not None:
            code = frame.f_code
            try:  # most of the frames are of libraries: a subscript takes less time than a call of get
                owner = owners[code.co_filename]
            except KeyError:
                owner = counter.owner(code.co_filename)
            if owner:
                if owner == _PROGRAM:
                    key = id(code) + frame.f_lasti
                    line = sites.get(key)
                    site = counter.new_site(key, frame) if line is None else line
                    break
                if not is_backward and code is private_api.ENGINE_CODE:
                    is_backward = True
                    node = _node()  # None within a callback
                    origin = self._made if node is None else node._sequence_nr()
                    position = bisect_right(self._starts, origin) - 1 if origin < self._made else -1
                    if position >= 0:
                        site = self._origins[position]
                        counter.forwards.add(self._times[position])
                        self._is_new = True
                        break
            frame = frame.f_back
        made = _made()
        if made != self._made:
            if self._is_new or not self._origins or self._origins[-1] != site:
                self._start(site)
            self._made = made
        return site

    def _start(self, site: int) -> None:
        """Remember that from now on a line makes gradient functions."""
        self._is_new = False
        self._starts.append(self._made)
        self._origins.append(site)
        self._times.append(monotonic_ns())
        if len(self._starts) > _MAX_STARTS:
            for known in (self._starts, self._origins, self._times):
                del known[: _MAX_STARTS // 2]


@contextmanager
def uncounted() -> Iterator[None]:
    """In this context the operators of this thread do not count. They are still given to other modes and to the
    program's subclasses of tensors, whose results torch needs."""
    modes = [mode for mode in private_api.dispatch_modes() if isinstance(mode, OperatorMode)]
    for mode in modes:
        mode.is_paused = True
    try:
        yield
    finally:
        for mode in modes:
            mode.is_paused = False


# ---------------------------------------------------------------- what is known about an operator

_NO_KERNEL: Final = frozenset(
    {
        "aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided",
        "aten::_unsafe_view", "aten::resize_", "aten::set_", "aten::lift_fresh",
    }
)  # fmt: skip
"""Operators that compute nothing, although their schemas look as if they did."""
_COLLECTIVES: Final = ("c10d::", "_c10d_functional::")
_MARKS: Final = ("profiler::", "_c10d_functional::wait_tensor")
_READ: Final = "aten::_local_scalar_dense"
_ATTENTION: Final = "_scaled_dot_product_flash_attention"
_ATTENTION_OF_CPU: Final = "_scaled_dot_product_flash_attention_for_cpu"
"""torch has no formula for the CPU's operator; it computes the same as the one for CUDA, with other arguments after the
tensors."""


def _describe(function: Any) -> Operator:
    schema = getattr(function, "_schema", None)
    if schema is None:  # a higher-order operator
        return Operator(str(function), OperatorKind.OPERATOR, allocates=True, amount=None)
    name = schema.name
    if name.startswith(_MARKS):
        return Operator(name, OperatorKind.INTERNAL, allocates=False, amount=None)
    tensors = [each for each in schema.returns if "Tensor" in str(each.type)]
    if name.startswith(_COLLECTIVES):
        return Operator(name, OperatorKind.COLLECTIVE, allocates=False, amount=_communicated)
    is_view = bool(tensors) and all(each.alias_info is not None and not each.alias_info.is_write for each in tensors)
    kind = OperatorKind.VIEW if is_view or name in _NO_KERNEL else OperatorKind.OPERATOR
    allocates = any(each.alias_info is None for each in tensors)
    return Operator(name, kind, allocates, _flops(function), reads=name == _READ)


def _flops(function: Any) -> Amount | None:
    """Return torch's formula for an operator; None where it has none."""
    registry, packet = private_api.flop_formulas(), function._overloadpacket
    name, _, suffix = packet.__name__.partition(_ATTENTION_OF_CPU)
    if not name and suffix in ("", "_backward"):
        packet = getattr(torch.ops.aten, _ATTENTION + suffix)
    formula: Any = registry.get(packet)
    if formula is None:
        return None
    by_shape = getattr(formula, "__wrapped__", None)  # torch's wrapper takes 10 µs to replace tensors by shapes
    known: dict[Any, int] = {}
    """What a formula gave for shapes: it may call others with the wrapper."""

    def flops(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
        try:
            if by_shape is None:
                return int(formula(*args, **kwargs, out_val=result))
            shapes = tuple(map(_shape, args))
            key = shapes if not kwargs else (shapes, tuple((name, _shape(value)) for name, value in kwargs.items()))
            number = known.get(key)
            if number is None:
                if len(known) >= _MAX_SHAPES:
                    known.clear()
                options = {name: _shape(value) for name, value in kwargs.items()}
                number = known[key] = int(by_shape(*shapes, **options, out_shape=_shape(result)))
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError):  # shapes that the formula refuses
            return 0
        return number

    return flops


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, (tuple, list)):
        return tuple(map(_shape, value))
    return value


def _communicated(args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> int:
    """Return the bytes of the tensors that are the first argument of a collective."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(args[:1]))
