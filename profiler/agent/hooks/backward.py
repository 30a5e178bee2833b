"""Backward passes: the time of the thread that starts one and waits for it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from profiler.agent.patching import STATE, patch
from profiler.agent.recorder import now


class Backward:
    """Region `backward` around torch.autograd.backward, which Tensor.backward calls, and torch.autograd.grad."""

    name: ClassVar[str] = "backward"
    modules: ClassVar[tuple[str, ...]] = ("torch.autograd",)
    levels: ClassVar[tuple[str, ...]] = ("standard", "full")

    def install(self, module: ModuleType) -> None:
        """torch's own code looks both up in `module` at each call."""
        for name in ("backward", "grad"):
            patch(module, name, _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed:
            return original(*args, **kwargs)
        thread = recorder.thread
        depth = thread.depth
        thread.depth = depth + 1
        begin = now()
        try:
            return original(*args, **kwargs)
        finally:
            recorder.region("backward", begin, depth)

    return backward


PLUGIN = Backward()
