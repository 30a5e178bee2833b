"""Records the functions that are hooks of modules, tensors and optimizers, and the user's line that registers them.

torch calls such a hook in each pass or each step. For the user's hooks of modules, this also records how often they are
registered, and whether they look at results outside of the training. A hook that returns a value is a part of the
model: torch replaces the output, the inputs or the gradients by it.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks import exact
from profiler.agent.patching import DETAILED, PACKAGE, STATE, Hook, caller, code_line, is_user_code, patch, user_frame

_METHODS: Final = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
_OF_TENSORS: Final = ("register_hook", "register_post_accumulate_grad_hook")
_OF_OPTIMIZERS: Final = ("register_step_pre_hook", "register_step_post_hook")
_OUTSIDE: Final = frozenset({"no_grad", "inference_mode", "detach", "data", "item", "tolist", "numpy", "cpu"})
"""Names by which code leaves the graph of gradients: what it computes of them trains nothing."""
_DECORATOR: Final = "torch/utils/_contextlib.py"
"""File of the function that `@torch.no_grad()` and `@torch.inference_mode()` put around another one."""
_MAX_HOOKS: Final = 32
_TABLES: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes of a module that hold its hooks."""


@dataclass(eq=False, slots=True)
class _Known:
    """The facts about a hook."""

    code: CodeType
    """It is kept, so that its id is not reused."""
    fact: dict[str, Any]
    lines: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """The lines that register it, by the id of their code and the instruction: to ask for a number takes longer."""
    has_several: bool = False
    """Whether several lines register it, so that none of them stands for it."""

    def note_line(self, frame: FrameType) -> None:
        """Note the line of a registration, which a program may make in each step."""
        call = id(frame.f_code), frame.f_lasti
        if call not in self.lines:
            line = self.lines[call] = code_line(frame.f_code, frame.f_lineno)
            if self.fact.setdefault("registered", line) != line:
                self.has_several = True
                del self.fact["registered"]
            _write()

    def count(self, module: Any, hook: Any) -> None:
        """Count a registration, and note whether the hook looks at results outside of the training."""
        fact = self.fact
        if "is_outside" not in fact:
            leaves = _code(hook)[1] or not _OUTSIDE.isdisjoint(_names(self.code))
            fact |= {"is_outside": leaves and not _returns_value(self.code), "registrations": 0, "times": []}
        fact["registrations"] += 1
        if fact["registrations"].bit_count() == 1:  # a power of two: a loop that registers is not slowed down
            # what a module has tells whether hooks are removed again
            held = sum(len(getattr(module, name, ())) for name in _TABLES)
            fact["times"].append({"time": now(), "registrations": fact["registrations"], "held": held})
            _write()


_known: Final[dict[int, _Known]] = {}
"""The hooks by the id of their code."""


def _write() -> None:
    if STATE.recorder is not None:
        facts = [known.fact for known in list(_known.values())]  # other threads may add
        STATE.recorder.add_hook_facts(module_hooks=facts)


def _install(module: Any) -> None:
    _known.clear()  # of an earlier recording in this process
    for name in _METHODS:
        patch(module.Module, name, _counted)


def _install_tensors(module: Any) -> None:
    for name in () if exact.is_exact() else _OF_TENSORS:  # what counts exactly handles the function of torch itself
        patch(module.Tensor, name, _with_line)


def _install_optimizers(module: Any) -> None:
    for name in _OF_OPTIMIZERS:
        patch(module.Optimizer, name, _with_line)


def _with_line(original: Callable[..., Any]) -> Callable[..., Any]:
    """Note the line that registers a hook."""

    def register(self: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
        if STATE.recorder is not None:
            _known_hook(hook, caller(1))
        return original(self, hook, *args, **kwargs)

    return register


def _counted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Note the line that registers a hook of a module, and how often the user's hooks are registered."""

    def register(self: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
        known = _known_hook(hook, caller(1)) if STATE.recorder is not None else None
        handle = original(self, hook, *args, **kwargs)
        if known is not None and is_user_code(known.code):
            known.count(self, hook)
        return handle

    return register


def _known_hook(hook: Any, frame: FrameType | None) -> _Known | None:
    """Find or make the facts about a hook that a frame registers. None: it is built in or the profiler's, or there are
    too many hooks."""
    code, _ = _code(hook)
    if code is None or code.co_filename.startswith(PACKAGE):
        return None
    known = _known.get(id(code))
    if known is not None and known.has_several:
        return known
    frame = user_frame(frame)
    has_line = frame is not None and is_user_code(frame.f_code)
    if known is None:
        if len(_known) >= _MAX_HOOKS or not (has_line or is_user_code(code)):
            return None
        known = _known[id(code)] = _Known(code, code_line(code, code.co_firstlineno))
    if frame is not None and has_line:
        known.note_line(frame)
    return known


def _code(hook: Any) -> tuple[CodeType | None, bool]:
    """Return the code of a hook, None where it is built in; and whether torch's decorator `no_grad` is around it."""
    function = hook.func if isinstance(hook, partial) else hook  # no getattr: an object may answer to any name
    function = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(function, FunctionType):
        function = type(function).__call__ if callable(function) else None
    is_without_gradients = False
    while isinstance(function, FunctionType) and "__wrapped__" in function.__dict__:
        is_without_gradients = is_without_gradients or function.__code__.co_filename.endswith(_DECORATOR)
        function = function.__dict__["__wrapped__"]
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None, is_without_gradients


def _returns_value(code: CodeType) -> bool:
    """Tell whether a function returns something else than None somewhere; that of a lambda is most often a list's
    None."""
    before = None
    for each in dis.get_instructions(code):
        value = before if each.opname == "RETURN_VALUE" else each
        is_none = value is not None and value.opname in ("LOAD_CONST", "RETURN_CONST") and value.argval is None
        if each.opname in ("RETURN_VALUE", "RETURN_CONST") and not is_none:
            return code.co_name != "<lambda>"
        before = each
    return False


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, with those of functions and comprehensions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


PLUGIN = Hook(
    "module_hooks",
    {"torch": _install_tensors, "torch.nn.modules.module": _install, "torch.optim.optimizer": _install_optimizers},
    levels=DETAILED,
)
