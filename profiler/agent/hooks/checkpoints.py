"""Checkpoints: saving and loading by torch and safetensors."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.patching import STATE, patch
from profiler.agent.recorder import Region

_FUNCTIONS: Final = {
    "torch": ("save", "load"),
    "torch.distributed.checkpoint": ("save", "load"),
    "safetensors.torch": ("save_file", "load_file", "save_model", "load_model"),
}


class Checkpoints:
    """Region `checkpoint` around each call."""

    name: ClassVar[str] = "checkpoints"
    modules: ClassVar[tuple[str, ...]] = tuple(_FUNCTIONS)
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def install(self, module: ModuleType) -> None:
        for function in _FUNCTIONS[module.__name__]:
            if callable(getattr(module, function, None)):
                patch(module, function, _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def checkpoint(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed:
            return original(*args, **kwargs)
        with Region(recorder, "checkpoint"):
            return original(*args, **kwargs)

    return checkpoint


PLUGIN = Checkpoints()
