"""What a program is, as far as torch knows: its version, the device, rank and world size, types of numbers, what it is
compiled by; and whose code lies where."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.patching import STATE, patch

_PACKAGE: Final = __file__.rpartition("/agent/")[0]
"""Our own folder."""
_LAUNCHERS: Final = ("torch", "accelerate", *sys.stdlib_module_names)
"""Packages that run the user's program and are not it."""


class Facts:
    """Facts of the process; what the program says of itself goes before them. Never initialises CUDA."""

    name: ClassVar[str] = "facts"
    modules: ClassVar[tuple[str, ...]] = ("torch", "torch.distributed.distributed_c10d", "torch.optim.optimizer")
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """The device is `cuda` from the moment on at which the program initialises it."""
        if module.__name__ == "torch":
            folder = str(module.__file__).rpartition("/")[0]
            _know(torch=str(module.__version__), device="cpu", package=_PACKAGE, torch_folder=folder)
            if main := _main_package():
                _know(main=main)
            module.cuda._lazy_call(_on_cuda)  # torch's list of what to do right after that; done already: at once
            if (size := os.environ.get("WORLD_SIZE", "")).isdecimal():
                _know(world_size=int(size))
            _watch_numbers(module)
        elif module.__name__ == "torch.optim.optimizer":
            patch(module.Optimizer, "add_param_group", _optimized)
        else:
            patch(module, "init_process_group", lambda original: _joined(original, module))


def _know(**facts: Any) -> None:
    if STATE.recorder is not None:
        STATE.recorder.add_hook_facts(**facts)


_seen: Final[dict[str, set[str]]] = {}


def _know_one_of(fact: str, value: str) -> None:
    """A fact that may have several values: all of them in their order."""
    seen = _seen.setdefault(fact, set())
    if value not in seen:
        seen.add(value)
        _know(**{fact: ", ".join(sorted(seen))})


def _watch_numbers(torch: ModuleType) -> None:
    """What autocast computes in, 0.7 µs each time that it is entered; and what torch.compile is asked for."""
    if hasattr(torch, "set_autocast_dtype"):
        patch(torch, "set_autocast_dtype", lambda original: _autocast(original, torch.is_autocast_enabled))
    if hasattr(torch, "compile"):
        patch(torch, "compile", _compiled)


def _autocast(original: Callable[..., None], enabled: Callable[[str], bool]) -> Callable[..., None]:
    """torch's context manager says whether before it says in what."""

    def set_autocast_dtype(device: str, dtype: Any) -> None:
        original(device, dtype)
        if STATE.recorder is not None and enabled(device):
            _know_one_of("autocast", str(dtype).removeprefix("torch."))

    return set_autocast_dtype


def _compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - the name that torch has for it
        if STATE.recorder is not None and not kwargs.get("disable"):
            backend = kwargs.get("backend") or "inductor"
            name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
            _know_one_of("compile", f"{name} {kwargs.get('mode') or ''}".strip())
        return original(*args, **kwargs)

    return compile


def _optimized(original: Callable[..., None]) -> Callable[..., None]:
    def add_param_group(self: Any, param_group: Any, *args: Any, **kwargs: Any) -> None:
        original(self, param_group, *args, **kwargs)
        if STATE.recorder is not None:
            for parameter in param_group["params"]:
                _know_one_of("parameter_dtype", str(getattr(parameter, "dtype", "")).removeprefix("torch."))

    return add_param_group


def _main_package() -> str:
    """Top-level package of a program that was started as a module or by a script that its installation made."""
    main: Any = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    name = ""
    if spec is not None:
        name = spec.name
    elif sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv[:-1]:  # its package is imported before it is known
        name = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    elif file and not file.endswith(".py"):
        name = _called_by(file)
    top = name.partition(".")[0]
    return "" if top in _LAUNCHERS else top


def _called_by(script: str) -> str:
    """The first module that `script` is in the middle of: it imports torch, or something below it does."""
    frame: FrameType | None = sys._getframe(1)
    called = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file == script:
            return called
        if not file.startswith("<"):
            called = str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return ""


def _on_cuda() -> None:
    _know(device="cuda")


def _joined(original: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """A program that starts its ranks itself says their numbers here, and in no environment variable."""

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        recorder = STATE.recorder
        if recorder is not None:
            recorder.rank = int(module.get_rank())
            recorder.add_hook_facts(world_size=int(module.get_world_size()))
        return result

    return init_process_group


PLUGIN = Facts()
