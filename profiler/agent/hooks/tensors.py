"""Methods of torch.Tensor that wait for the device or copy between its memory and the CPU's.

A wrapper costs about 0.3 µs. For a tensor with `__torch_function__` it does what torch's own Python functions do, with
itself as the called function, so that `func is torch.Tensor.item` stays true for the program.

Indexing is not wrapped: a `__getitem__` in Python would make a tensor a sequence for C code, and slow down the most
frequent method.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from profiler.agent.hooks import _syncs, counts
from profiler.agent.hooks._syncs import NESTED, OPEN
from profiler.agent.patching import STATE, Hook, caller, patch
from profiler.agent.recorder import now
from profiler.exact import waits

WAITS: Final = {method: name for name, methods in waits.READS.items() for method in methods}
"""Method of torch.Tensor -> its name in the run."""
LEAVES: Final = frozenset(
    {"item", "tolist", "numpy", "__bool__", "__int__", "__index__", "__float__", "__complex__", "is_nonzero"}
)
"""Methods of these in which torch calls no other one of them."""
COPIES: Final = ("to", "cpu", "cuda", "copy_")

Make = Callable[[Any], Callable[..., Any]]
Select = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def _install(module: ModuleType) -> None:
    if counts.is_exact():
        return
    tensor = module.Tensor
    makers: dict[str, Make] = {
        method: _leaf(module, name) if method in LEAVES else waiting(module, name) for method, name in WAITS.items()
    }
    makers |= {method: _copying(module, method) for method in COPIES}
    makers["repeat_interleave"] = waiting(module, "repeat_interleave", repeats(module))
    before = _is_sequence(module)
    for method, make in makers.items():
        if hasattr(tensor, method):
            patch(tensor, method, make)
    if _is_sequence(module) != before:
        raise TypeError("with its methods replaced, a tensor would count as a sequence")


def _install_step_count(module: ModuleType) -> None:
    _syncs.not_a_read = getattr(getattr(module, "_get_value", None), "__code__", None)


def _is_sequence(torch: ModuleType) -> bool:
    """Whether C code takes a tensor for a sequence, as any class with a `__getitem__` in Python.

    torch.tensor([a, b]) of two 0-d tensors would then fail.
    """
    return bool(ctypes.pythonapi.PySequence_Check(ctypes.py_object(torch.empty((), device="cpu"))))


def waiting(torch: ModuleType, name: str, select: Select | None = None) -> Make:
    """Make a wrapper of a function or method that needs the values of a tensor on the host.

    :param select: returns the tensor from the arguments; None if this call waits for nothing. Else it is the first one.
    """
    overridden, handle = torch._C._has_torch_function, torch.overrides.handle_torch_function

    def make(original: Any) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            arguments = (*args, *kwargs.values()) if kwargs else args
            if overridden(arguments):
                return handle(wrapper, arguments, *args, **kwargs)
            recorder, inside = STATE.recorder, OPEN.inside
            if recorder is None or inside == NESTED:
                return original(*args, **kwargs)
            tensor = select(arguments, kwargs) if select else arguments[0] if arguments else None
            if tensor is None:
                return original(*args, **kwargs)
            begin = now()
            OPEN.inside = NESTED
            try:
                result = original(*args, **kwargs)
            finally:
                OPEN.inside = inside
            _syncs.waited(recorder, name, tensor, begin, caller(1))
            return result

        return wrapper

    return make


def repeats(torch: ModuleType) -> Select:
    """Select the tensor of repeats that repeat_interleave waits for: none if they are a number, or with output_size."""
    tensor = torch.Tensor

    def select(arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [value for value in arguments if isinstance(value, tensor)]
        alone = len(arguments) == 1  # repeat_interleave(repeats)
        return tensors[-1] if kwargs.get("output_size") is None and len(tensors) + alone > 1 else None

    return select


def _leaf(torch: ModuleType, name: str) -> Make:
    """Make a wrapper like that of `waiting`, but a faster one, for methods called thousands of times a second.

    Our code is not in the CPU's caches then: each function called here would cost 1 µs more.
    """
    overridden, handle = torch._C._has_torch_function_unary, torch.overrides.handle_torch_function
    waited, tally_of, frame_at, plain = _syncs.waited, _syncs.tally_of, sys._getframe, torch.Tensor

    def make(original: Any) -> Callable[..., Any]:
        def wrapper(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if overridden(self):
                return handle(wrapper, (self,), self, *args, **kwargs)
            recorder, inside = STATE.recorder, OPEN.inside
            if recorder is None or (inside and (inside == NESTED or self.is_cpu)):
                return original(self, *args, **kwargs)
            try:
                frame = frame_at(1)  # what `caller` does, inlined
            except ValueError:
                frame = None
            if frame is None or type(self) is not plain or not self.is_cpu:
                begin = now()
                result = original(self, *args, **kwargs)
                waited(recorder, name, self, begin, frame)
                return result
            tally = recorder.lines.get(id(frame.f_code) + frame.f_lasti)
            if type(tally) is not list:
                tally = tally_of(recorder, frame, name)
            if not tally:
                return original(self, *args, **kwargs)
            if recorder.detailed:
                begin = now()
                result = original(self, *args, **kwargs)
                tally[1] += now() - begin
            else:
                result = original(self, *args, **kwargs)
            tally[0] += 1
            return result

        return wrapper

    return make


def _copying(torch: ModuleType, name: str) -> Make:
    overridden, any_overridden = torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic
    handle, on_device = torch.overrides.handle_torch_function, _syncs.on_device
    plain = frozenset({torch.device, torch.dtype, str})  # torch takes 0.4 µs to see that a dtype overrides nothing

    def make(original: Any) -> Callable[..., Any]:
        def wrapper(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if overridden(self) or (args and type(args[0]) not in plain and any_overridden(*args)):
                return handle(wrapper, (self, *args), self, *args, **kwargs)
            recorder, inside = STATE.recorder, OPEN.inside
            if recorder is None or inside == NESTED:
                return original(self, *args, **kwargs)
            begin = now()
            OPEN.inside = NESTED
            try:
                result = original(self, *args, **kwargs)
            finally:
                OPEN.inside = inside
            if result is self:
                if name == "cpu":  # where all is on the CPU, to(device) and to("cpu") look the same
                    _syncs.waited(recorder, name, self, begin, caller(1))
                return result
            source = self if name != "copy_" else args[0] if args else kwargs.get("src", self)
            if source is not result and on_device(source) is not on_device(result) and _syncs.has_values(source):
                _syncs.copied(recorder, name, (source, result), begin, waits=_blocks(args, kwargs, source, result))
            return result

        return wrapper

    return make


def _blocks(args: tuple[Any, ...], kwargs: dict[str, Any], source: Any, result: Any) -> bool:
    """Whether the host waits for a copy: unless it is non_blocking and the CPU's memory is pinned."""
    non_blocking = kwargs.get("non_blocking", next((value for value in args if value is True or value is False), False))
    return not non_blocking or not _syncs.pinned(result if _syncs.on_device(source) else source)


PLUGIN = Hook("tensors", {"torch": _install, "torch.optim.optimizer": _install_step_count})
