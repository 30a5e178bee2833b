"""Functions of torch that wait for the device, streams and events, and collectives of torch.distributed.

A collective is recorded as a call (OTHER) with its time on the host and no wait: the host only queues it, and how long
it takes on the device is not known here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import reduce
from types import ModuleType
from typing import Any, Final

from profiler.agent.hooks import _syncs, counts
from profiler.agent.hooks._syncs import NESTED, OPEN
from profiler.agent.hooks.tensors import WAITS, Make, repeats, waiting
from profiler.agent.patching import STATE, Hook, patch
from profiler.agent.recorder import now
from profiler.run.tables import COLLECTIVE_METHODS, COLLECTIVES, CallKind

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


def _install(module: Any) -> None:
    if not counts.is_exact():  # what counts exactly counts these itself
        _install_waits(module)
    _install_collectives(module)


def _install_waits(module: Any) -> None:
    for function, name in WAITS.items():
        if not function.startswith("__"):  # a module has such methods too
            _replace_function(module, function, waiting(module, name))
    _replace_function(module, "where", waiting(module, "nonzero", _condition))
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


def _condition(arguments: tuple[Any, ...], _: dict[str, Any]) -> Any:
    """The tensor that torch.where waits for: torch.where(condition) is a nonzero, with three arguments it is none."""
    return arguments[0] if len(arguments) == 1 else None


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
            _syncs.explicit(recorder, kind, name, begin)
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


PLUGIN = Hook("functions", {"torch": _install})
