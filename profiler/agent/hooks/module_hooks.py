"""Records the user's functions that are hooks of modules: where and how often they are registered, and whether they
look at results outside of the training.

torch calls such a hook in each forward or backward pass of its module. Those of libraries are left out. A hook that
returns a value is a part of the model: torch replaces the output, the inputs or the gradients by it.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from profiler.agent.patching import DETAILED, STATE, Hook, caller, code_line, is_user_code, patch, user_frame
from profiler.agent.recorder import now

_METHODS: Final = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
_OUTSIDE: Final = frozenset({"no_grad", "inference_mode", "detach", "data", "item", "tolist", "numpy", "cpu"})
"""Names by which code leaves the graph of gradients: what it computes of them trains nothing."""
_DECORATOR: Final = "torch/utils/_contextlib.py"
"""File of the function that `@torch.no_grad()` and `@torch.inference_mode()` put around another one."""
_MAX_HOOKS: Final = 32
_TABLES: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes of a module that hold its hooks."""
_known: Final[dict[int, tuple[CodeType, dict[str, Any]]]] = {}
"""What is known of each hook, by the id of its code, which is kept, so that the id is not reused."""


def _install(module: Any) -> None:
    _known.clear()  # of an earlier recording in this process
    for name in _METHODS:
        patch(module.Module, name, _registered)


def _registered(original: Callable[..., Any]) -> Callable[..., Any]:
    def register(self: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
        recorder, (code, is_without_gradients) = STATE.recorder, _code(hook)
        if recorder is None or code is None or (id(code) not in _known and len(_known) >= _MAX_HOOKS):
            return original(self, hook, *args, **kwargs)
        if id(code) not in _known:
            leaves = is_without_gradients or not _OUTSIDE.isdisjoint(_names(code))
            is_outside = leaves and not _returns_value(code)
            line = code_line(code, code.co_firstlineno) | {"is_outside": is_outside, "registrations": 0, "times": []}
            frame = user_frame(caller(1))
            if frame is not None and is_user_code(frame.f_code):
                line["registered"] = code_line(frame.f_code, frame.f_lineno)
            _known[id(code)] = code, line
        handle = original(self, hook, *args, **kwargs)
        fact = _known[id(code)][1]
        fact["registrations"] += 1
        if fact["registrations"].bit_count() == 1:  # a power of two: a loop that registers is not slowed down
            # what a module has tells whether hooks are removed again
            held = sum(len(getattr(self, name, ())) for name in _TABLES)
            fact["times"].append({"time": now(), "registrations": fact["registrations"], "held": held})
            recorder.add_hook_facts(module_hooks=[line for _, line in list(_known.values())])  # other threads may add
        return handle

    return register


def _code(hook: Any) -> tuple[CodeType | None, bool]:
    """The code of a hook, None where it is none of the user's; and whether torch's decorator `no_grad` is around it."""
    function = hook.func if isinstance(hook, partial) else hook  # no getattr: an object may answer to any name
    function = function.__func__ if isinstance(function, MethodType) else function
    function = function if isinstance(function, FunctionType) else type(function).__call__
    is_without_gradients = False
    while isinstance(function, FunctionType) and "__wrapped__" in function.__dict__:
        is_without_gradients = is_without_gradients or function.__code__.co_filename.endswith(_DECORATOR)
        function = function.__dict__["__wrapped__"]
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) and is_user_code(code) else None, is_without_gradients


def _returns_value(code: CodeType) -> bool:
    """Whether a function returns something else than None somewhere; that of a lambda is most often a list's None."""
    before = None
    for each in dis.get_instructions(code):
        value = before if each.opname == "RETURN_VALUE" else each
        is_none = value is not None and value.opname in ("LOAD_CONST", "RETURN_CONST") and value.argval is None
        if each.opname in ("RETURN_VALUE", "RETURN_CONST") and not is_none:
            return code.co_name != "<lambda>"
        before = each
    return False


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function uses, with those of functions and comprehensions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


PLUGIN = Hook("module_hooks", {"torch.nn.modules.module": _install}, levels=DETAILED)
