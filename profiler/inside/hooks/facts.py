"""What a program is, as far as torch knows: its version, the device, rank and world size."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from profiler.inside.hook import STATE, patch


class Facts:
    """Facts of the process; what the program says of itself goes before them. Never initialises CUDA."""

    name: ClassVar[str] = "facts"
    modules: ClassVar[tuple[str, ...]] = ("torch", "torch.distributed.distributed_c10d")
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """The device is `cuda` from the moment on at which the program initialises it."""
        if module.__name__ == "torch":
            _know(torch=str(module.__version__), device="cpu")
            module.cuda._lazy_call(_on_cuda)  # torch's list of what to do right after that; done already: at once
            if (size := os.environ.get("WORLD_SIZE", "")).isdecimal():
                _know(world_size=int(size))
        else:
            patch(module, "init_process_group", lambda original: _joined(original, module))


def _know(**facts: Any) -> None:
    if STATE.recorder is not None:
        STATE.recorder.know(**facts)


def _on_cuda() -> None:
    _know(device="cuda")


def _joined(original: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """A program that starts its ranks itself says their numbers here, and in no environment variable."""

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        recorder = STATE.recorder
        if recorder is not None:
            recorder.rank = int(module.get_rank())
            recorder.know(world_size=int(module.get_world_size()))
        return result

    return init_process_group


PLUGIN = Facts()
