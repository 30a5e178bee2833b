"""Records the lines at which the program changes settings of torch that may slow its steps, or makes processes.

The settings are the number of threads, anomaly detection, deterministic algorithms, float64, and torch's profiler.

The fact SETTINGS has the first line of each, of the number of threads the last one, and of processes the only one, with
file, number and function. Lines of libraries are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

from profiler.agent.hooks._profiler_window import ProfilerWindow
from profiler.agent.patching import STATE, Hook, caller, code_line, is_user_code, patch, user_frame
from profiler.run.tables import SETTINGS

_lines: Final[dict[str, dict[str, Any]]] = {}
_processes: Final[list[dict[str, Any]]] = []
"""The lines that make processes."""


def _install(module: ModuleType) -> None:
    _lines.clear()  # of an earlier recording in this process
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


def _install_processes(module: Any) -> None:
    _processes.clear()  # of an earlier recording in this process
    patch(module.BaseProcess, "__init__", _noting_process)


def _noting_process(original: Callable[..., None]) -> Callable[..., None]:
    """Note the line that makes processes, if there is only one: nothing tells which of several is slow."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        target = args[1] if len(args) > 1 else kwargs.get("target")
        # other records tell of the workers of a loader
        if STATE.recorder is None or (
            type(target) is FunctionType and target.__module__.startswith("torch.utils.data")
        ):
            return
        frame = caller(1)
        while frame is not None and frame.f_code.co_name == "__init__":  # of its own class
            frame = frame.f_back
        line = _user_line(frame)
        if line is not None and line not in _processes:
            _processes.append(line)
            _write()

    return initialize


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
    line = _user_line(caller(2))
    if line is not None:
        _lines[name] = line
        _write()


def _user_line(frame: FrameType | None) -> dict[str, Any] | None:
    """The innermost line of the user's code from a frame outward; None where there is none."""
    frame = user_frame(frame)
    return code_line(frame.f_code, frame.f_lineno) if frame is not None and is_user_code(frame.f_code) else None


def _write() -> None:
    if STATE.recorder is not None:
        only = {"processes": _processes[0]} if len(_processes) == 1 else {}
        STATE.recorder.add_hook_facts(**{SETTINGS: _lines | only})


PLUGIN = Hook(
    "settings",
    {
        "torch": _install,
        "multiprocessing.process": _install_processes,
        "torch.nn.modules.module": _install_module,
        "torch.profiler.profiler": _install_profiler,
        "torch.autograd.profiler": _install_profiler,
    },
)
