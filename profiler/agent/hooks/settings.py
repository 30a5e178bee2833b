"""Records the lines at which the program changes settings of torch, makes some objects, or registers hooks.

The settings are those that may slow its steps: the number of threads, anomaly detection, deterministic algorithms,
float64, and torch's profiler. The objects are threads, processes, and objects with arguments that advice may name, such
as TrainingArguments. The fact SETTINGS has the first line of each setting, of the number of threads the last one, of
each thread the line that started it, and of other objects the only one, with file, number and function. Lines of
libraries are left out. torch calls the hooks of modules, tensors and optimizers in each pass or step. For the user's
hooks of modules, this also records how often they are registered, and whether they look at results outside of the
training. A hook that returns a value is a part of the model: torch replaces the output, the inputs or the gradients by
it.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks import exact
from profiler.agent.hooks.torch_trace import ProfilerWindow
from profiler.agent.patching import (
    DETAILED,
    PACKAGE,
    STATE,
    Hook,
    caller,
    code_line,
    is_user_code,
    on_unpatch,
    patch,
    user_frame,
    user_line,
)
from profiler.run.tables import MADE_BY, OF_THREAD, SETTINGS

# ---------------------------------------------------------------- settings and objects


_lines: Final[dict[str, dict[str, Any]]] = {}
_makers: Final[dict[str, list[dict[str, Any]]]] = {}
"""Name of a class, or `processes` -> the lines that make such objects."""
_CONSTRUCTORS: Final = {
    "transformers.training_args": ("TrainingArguments", "__post_init__"),
    "transformers.trainer": ("Trainer", "__init__"),
    "lightning.pytorch.trainer.trainer": ("Trainer", "__init__"),
    "pytorch_lightning.trainer.trainer": ("Trainer", "__init__"),
    "lightning.pytorch.loggers.csv_logs": ("CSVLogger", "__init__"),
    "pytorch_lightning.loggers.csv_logs": ("CSVLogger", "__init__"),
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "__init__"),
    "torch.amp.grad_scaler": ("GradScaler", "__init__"),
    "torch.optim.optimizer": ("Optimizer", "__init__"),
    "datasets.arrow_dataset": ("Dataset", "set_format"),  # with_format() calls it
}
"""Module -> a class whose arguments advice may be about, and the method that makes its objects, also of a subclass."""


def _install(module: ModuleType) -> None:
    patch(module, "set_num_threads", partial(_noted, "threads"))
    if hasattr(module, "set_anomaly_enabled"):  # both context managers of torch call it
        patch(module, "set_anomaly_enabled", partial(_noted, "anomaly", is_slow=itemgetter(0)))
    patch(module, "use_deterministic_algorithms", partial(_noted, "deterministic", is_slow=itemgetter(0)))
    patch(module, "set_default_dtype", partial(_noted, "float64", is_slow=_has_float64))


def _install_module(module: Any) -> None:
    patch(module.Module, "double", partial(_noted, "float64"))
    patch(module.Module, "to", partial(_noted, "float64", is_slow=_has_float64))


def _install_profiler(module: Any) -> None:
    # not the sessions of this package
    is_program: Callable[[Sequence[Any]], object] = lambda _: not ProfilerWindow.is_starting  # noqa: E731
    patch(module.profile, "__init__", partial(_noted, "profiler", is_slow=is_program))


def _install_threads(module: Any) -> None:
    _lines.clear()  # of an earlier recording in this process
    _makers.clear()
    patch(module.Thread, "start", _noting_thread)


def _noting_thread(original: Callable[..., None]) -> Callable[..., None]:
    """Note the line that starts a thread, which may take the GIL from the one that trains."""

    def start(self: Any) -> None:
        original(self)
        if STATE.recorder is None or len(_lines) >= _MOST_LINES:
            return
        line = user_line(caller(1))
        if line is not None:
            _lines[f"{OF_THREAD}{self.native_id}"] = line
            STATE.recorder.add_frequent_hook_facts(**_facts())

    return start


_MOST_LINES: Final = 200
"""Lines after which no further thread is noted: a program may start one for each request."""


def _install_constructor(module: Any) -> None:
    name, method = _CONSTRUCTORS[module.__name__]
    on_unpatch(_makers.clear)
    patch(getattr(module, name), method, partial(_noting_maker, name))


def _noting_maker(name: str, original: Callable[..., None]) -> Callable[..., None]:
    """Note the line that makes such objects, if there is only one: nothing tells which of several is slow."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        target = args[1] if len(args) > 1 else kwargs.get("target")
        # other records tell of the workers of a loader; a function of exec() may have no module
        is_worker = type(target) is FunctionType and str(target.__module__).startswith("torch.utils.data")
        if STATE.recorder is None or (name == "processes" and is_worker):
            return
        frame, classes = caller(1), type(self).__mro__
        methods = {vars(each).get(method) for each in classes for method in ("__init__", "__post_init__")}
        own = {getattr(each, "__code__", None) for each in methods}
        while frame is not None and frame.f_code in own:
            frame = frame.f_back
        frame = user_frame(frame)
        _note_maker(name, user_line(frame))
        while frame is not None and frame.f_code.co_name.startswith("<"):  # a comprehension has a frame in Python 3.11
            frame = frame.f_back
        if frame is not None and frame.f_code.co_name == "__init__":  # the number is often an argument of this object
            _note_maker(f"{name}{MADE_BY}", user_line(frame.f_back))

    return initialize


def _note_maker(name: str, line: dict[str, Any] | None) -> None:
    lines = _makers.setdefault(name, [])
    if line is not None and line not in lines:
        lines.append(line)
        _write()


def _has_float64(values: Sequence[Any]) -> bool:
    return any(str(value) == "torch.float64" for value in values if type(value).__name__ == "dtype")


def _noted(
    name: str, original: Callable[..., Any], is_slow: Callable[[Sequence[Any]], object] = lambda _: True
) -> Callable[..., Any]:
    """Note the line of the first call whose arguments slow the program; of the number of threads, the last one."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        if (
            STATE.recorder is not None
            and (name not in _lines or name == "threads")
            and is_slow((*args, *kwargs.values()))
            and (line := user_line(caller(1))) is not None
        ):
            _lines[name] = line
            _write()
        return original(*args, **kwargs)

    return noted


def _write() -> None:
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(**_facts())


def _facts() -> dict[str, Any]:
    only = {name: lines[0] for name, lines in _makers.items() if len(lines) == 1}
    return {SETTINGS: _lines | only}


SETTINGS_HOOK = Hook(
    "settings",
    {
        "torch": _install,
        "threading": _install_threads,
        "multiprocessing.process": lambda module: patch(
            module.BaseProcess, "__init__", partial(_noting_maker, "processes")
        ),
        "torch.nn.modules.module": _install_module,
        "torch.profiler.profiler": _install_profiler,
        "torch.autograd.profiler": _install_profiler,
        **dict.fromkeys(_CONSTRUCTORS, _install_constructor),
    },
)


# ---------------------------------------------------------------- hooks of modules, tensors and optimizers


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
            _write_hooks()

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
            _write_hooks()


_known: Final[dict[int, _Known]] = {}
"""The hooks by the id of their code."""


def _write_hooks() -> None:
    if STATE.recorder is not None:
        facts = [known.fact for known in list(_known.values())]  # other threads may add
        STATE.recorder.add_hook_facts(module_hooks=facts)


def _install_registrations(module: Any) -> None:
    if module.__name__ == "torch.nn.modules.module":
        _known.clear()  # of an earlier recording in this process
        for name in _METHODS:
            patch(module.Module, name, _counted)
    elif module.__name__ == "torch.optim.optimizer":
        for name in _OF_OPTIMIZERS:
            patch(module.Optimizer, name, _with_line)
    elif not exact.is_exact():  # what counts exactly handles the function of torch itself
        for name in _OF_TENSORS:
            patch(module.Tensor, name, _with_line)


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


MODULE_HOOKS = Hook(
    "module_hooks",
    dict.fromkeys(("torch", "torch.nn.modules.module", "torch.optim.optimizer"), _install_registrations),
    levels=DETAILED,
)


PLUGINS = (SETTINGS_HOOK, MODULE_HOOKS)
