"""Records the lines at which the program changes settings of torch that may slow its steps, or makes some objects.

The settings are the number of threads, anomaly detection, deterministic algorithms, float64, and torch's profiler. The
objects are threads, processes, and those of classes whose arguments advice may be about, such as TrainingArguments.

The fact SETTINGS has the first line of each setting, of the number of threads the last one, of each thread the line
that started it, and of other objects the only one, with file, number and function. Lines of libraries are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Final

from profiler.agent.hooks._profiler_window import ProfilerWindow
from profiler.agent.patching import STATE, Hook, caller, patch, user_frame, user_line
from profiler.run.tables import MADE_BY, OF_THREAD, SETTINGS

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
    patch(module, "set_num_threads", lambda original: _noted("threads", original))
    if hasattr(module, "set_anomaly_enabled"):  # both context managers of torch call it
        patch(
            module, "set_anomaly_enabled", lambda original: _noted("anomaly", original, lambda values: bool(values[0]))
        )
    patch(
        module,
        "use_deterministic_algorithms",
        lambda original: _noted("deterministic", original, lambda values: bool(values[0])),
    )
    patch(module, "set_default_dtype", lambda original: _noted("float64", original, _has_float64))


def _install_module(module: Any) -> None:
    patch(module.Module, "double", lambda original: _noted("float64", original))
    patch(module.Module, "to", lambda original: _noted("float64", original, _has_float64))


def _install_profiler(module: Any) -> None:
    # not the sessions of this package
    patch(
        module.profile,
        "__init__",
        lambda original: _noted("profiler", original, lambda _: not ProfilerWindow.is_starting),
    )


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


def _install_processes(module: Any) -> None:
    patch(module.BaseProcess, "__init__", partial(_noting_maker, "processes"))


def _install_constructor(module: Any) -> None:
    name, method = _CONSTRUCTORS[module.__name__]
    patch(getattr(module, name), method, partial(_noting_maker, name))


def _noting_maker(name: str, original: Callable[..., None]) -> Callable[..., None]:
    """Note the line that makes such objects, if there is only one: nothing tells which of several is slow."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        target = args[1] if len(args) > 1 else kwargs.get("target")
        # other records tell of the workers of a loader
        is_worker = type(target) is FunctionType and target.__module__.startswith("torch.utils.data")
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
    name: str, original: Callable[..., Any], is_slow: Callable[[Sequence[Any]], bool] = lambda _: True
) -> Callable[..., Any]:
    """Note the line of the first call whose arguments slow the program; of the number of threads, the last one."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        if (
            STATE.recorder is not None
            and (name not in _lines or name == "threads")
            and is_slow((*args, *kwargs.values()))
        ):
            _note(name)
        return original(*args, **kwargs)

    return noted


def _note(name: str) -> None:
    line = user_line(caller(2))
    if line is not None:
        _lines[name] = line
        _write()


def _write() -> None:
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(**_facts())


def _facts() -> dict[str, Any]:
    only = {name: lines[0] for name, lines in _makers.items() if len(lines) == 1}
    return {SETTINGS: _lines | only}


PLUGIN = Hook(
    "settings",
    {
        "torch": _install,
        "threading": _install_threads,
        "multiprocessing.process": _install_processes,
        "torch.nn.modules.module": _install_module,
        "torch.profiler.profiler": _install_profiler,
        "torch.autograd.profiler": _install_profiler,
        **dict.fromkeys(_CONSTRUCTORS, _install_constructor),
    },
)
