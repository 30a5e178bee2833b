"""Methods of torch.Tensor and functions of torch that wait for the device, copy, order its queues or communicate.

A wrapper costs about 0.3 µs. For a tensor with `__torch_function__` it does what torch's own Python functions do, with
itself as the called function, so that `func is torch.Tensor.item` stays true for the program.

Indexing is not wrapped: a `__getitem__` in Python would make a tensor a sequence for C code, and slow down the most
frequent method.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import warnings
from collections.abc import Callable
from functools import reduce
from types import FrameType, ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks import exact, syncs
from profiler.agent.hooks.syncs import NESTED, OPEN
from profiler.agent.patching import PACKAGE, STATE, Hook, caller, patch
from profiler.exact import waits
from profiler.run.tables import COLLECTIVE_METHODS, COLLECTIVES, CallKind

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
    if exact.is_exact():
        return
    tensor = module.Tensor
    syncs.begin_reads(module)
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
    syncs.not_a_read = getattr(getattr(module, "_get_value", None), "__code__", None)


def _is_sequence(torch: ModuleType) -> bool:
    """Tell whether C code takes a tensor for a sequence, as any class with a `__getitem__` in Python.

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
            syncs.waited(recorder, name, tensor, begin, caller(1))
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
    waited, tally_of, frame_at, plain = syncs.waited, syncs.tally_of, sys._getframe, torch.Tensor

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
    handle, on_device = torch.overrides.handle_torch_function, syncs.on_device
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
                    syncs.waited(recorder, name, self, begin, caller(1))
                return result
            source = self if name != "copy_" else args[0] if args else kwargs.get("src", self)
            if source is not result and on_device(source) is not on_device(result) and syncs.has_values(source):
                syncs.copied(recorder, name, (source, result), begin, waits=_blocks(args, kwargs, source, result))
            return result

        return wrapper

    return make


def _blocks(args: tuple[Any, ...], kwargs: dict[str, Any], source: Any, result: Any) -> bool:
    """Tell whether the host waits for a copy: unless it is non_blocking and the CPU's memory is pinned."""
    non_blocking = kwargs.get("non_blocking", next((value for value in args if value is True or value is False), False))
    return not non_blocking or not syncs.pinned(result if syncs.on_device(source) else source)


TENSORS = Hook("tensors", {"torch": _install, "torch.optim.optimizer": _install_step_count})


# ---------------------------------------------------------------- functions of torch


# class or module below torch, function: its name, and whether the host waits in it
EXPLICIT: Final = {
    ("cuda", "synchronize"): ("synchronize", CallKind.SYNC),
    ("accelerator", "synchronize"): ("synchronize", CallKind.SYNC),
    ("cuda.Stream", "synchronize"): ("stream synchronize", CallKind.SYNC),
    ("cuda.Event", "synchronize"): ("event synchronize", CallKind.SYNC),
    ("cuda.Stream", "wait_event"): ("wait event", CallKind.EVENT),
    ("cuda.Stream", "wait_stream"): ("wait stream", CallKind.EVENT),
    ("cuda.Event", "wait"): ("wait event", CallKind.EVENT),
}


def _install_functions(module: Any) -> None:
    if not exact.is_exact():  # what counts exactly counts these itself
        _install_waits(module)
    _install_collectives(module)


def _install_waits(module: Any) -> None:
    for function, name in WAITS.items():
        if not function.startswith("__"):  # a module has such methods too
            _replace_function(module, function, waiting(module, name))
    # torch.where(condition) is a nonzero, with three arguments it is none
    condition: Select = lambda arguments, _: arguments[0] if len(arguments) == 1 else None  # noqa: E731
    _replace_function(module, "where", waiting(module, "nonzero", condition))
    _replace_function(module, "repeat_interleave", waiting(module, "repeat_interleave", repeats(module)))
    patch(module.cuda, "empty_cache", _empty_cache(module))
    for (path, function), (name, kind) in EXPLICIT.items():
        owner = reduce(lambda owner, part: getattr(owner, part, None), path.split("."), module)
        if hasattr(owner, function):
            patch(owner, function, _explicit(name, kind))


def _empty_cache(torch: Any) -> Make:
    """Make a wrapper of `torch.cuda.empty_cache`, which waits in cudaFree, once CUDA is initialized."""
    recording = _explicit("empty_cache", CallKind.SYNC)

    def make(original: Any) -> Callable[..., Any]:
        recorded = recording(original)

        def wrapper() -> None:
            (recorded if torch.cuda.is_initialized() else original)()

        return wrapper

    return make


def _install_collectives(module: Any) -> None:
    distributed = getattr(module, "distributed", None)
    if distributed is not None and distributed.is_available():
        for function in COLLECTIVES:
            if hasattr(distributed, function):
                patch(distributed, function, _explicit(function, CallKind.OTHER))
        for path, name in COLLECTIVE_METHODS.items():
            owner_path, _, method = path.rpartition(".")
            owner = reduce(lambda owner, part: getattr(owner, part, None), owner_path.split("."), module)
            if hasattr(owner, method):
                patch(owner, method, _explicit_method(name, CallKind.OTHER, method))


_wrappers: Final[list[Any]] = []
"""Wrappers stay alive, because torch.jit identifies functions by id, which another object could get otherwise."""


def _replace_function(torch: ModuleType, name: str, make: Make) -> None:
    """Patch a function of torch, and register the wrapper with torch.jit.script as the same builtin."""
    original = getattr(torch, name, None)
    if original is None:
        return
    patch(torch, name, make)
    wrapper = getattr(torch, name)
    register_builtin(original, wrapper)
    dispatched = torch._jit_internal.boolean_dispatched
    if inspect.isfunction(original) and original in dispatched:
        dispatched[wrapper] = dispatched[original]


def register_builtin(original: Any, wrapper: Any) -> None:
    """Have torch.jit.script compile a call of `wrapper` as it compiles one of `original`."""
    _wrappers.append(wrapper)
    builtins = getattr(sys.modules.get("torch.jit._builtins"), "_builtin_table", None)  # None until torch is imported
    if builtins is not None and id(original) in builtins:
        builtins[id(wrapper)] = builtins[id(original)]


def _explicit(name: str, kind: CallKind) -> Make:
    def make(original: Any) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            recorder, inside = STATE.recorder, OPEN.inside
            if recorder is None or inside == NESTED:
                return original(*args, **kwargs)
            begin = now()
            OPEN.inside = NESTED
            try:
                result = original(*args, **kwargs)
            finally:
                OPEN.inside = inside
            syncs.explicit(recorder, kind, name, begin)
            return result

        return wrapper

    return make


def _explicit_method(name: str, kind: CallKind, method: str) -> Make:
    """Make a wrapper like that of `_explicit` for a method that C++ may dispatch to a subclass in Python.

    pybind11 ends the dispatch when the innermost frame of Python bears the method's name and has the object as its
    first argument. Otherwise a subclass that calls `super().wait()` would recurse without end.
    """

    def make(original: Any) -> Callable[..., Any]:
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return original(self, *args, **kwargs)

        call.__code__ = call.__code__.replace(co_name=method)
        return _explicit(name, kind)(call)

    return make


FUNCTIONS = Hook("functions", {"torch": _install_functions})


# ---------------------------------------------------------------- lines of warnings


def _at_program_line(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap the function of `warnings` through which every shown or recorded warning goes."""

    def _showwarnmsg(message: Any) -> None:
        if str(message.filename).startswith(PACKAGE):
            frame = _caller_of_wrapper(sys._getframe(1), message.filename)
            if frame is not None:
                message.filename, message.lineno, message.line = frame.f_code.co_filename, frame.f_lineno, None
        original(message)

    return _showwarnmsg


def _caller_of_wrapper(frame: FrameType | None, file: str) -> FrameType | None:
    """Return the frame that called into the package where the warning names `file` of it; None without one."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


WARNING_SITES = Hook("warning-sites", {"torch": lambda _: patch(warnings, "_showwarnmsg", _at_program_line)})


PLUGINS = (TENSORS, FUNCTIONS, WARNING_SITES)
