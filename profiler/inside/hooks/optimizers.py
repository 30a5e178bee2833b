"""Optimizer steps, by torch's own hooks for all optimizers: where a step of the training ends."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, ClassVar, Final

from profiler.inside.hook import STATE, patch, user_frame
from profiler.inside.recorder import now
from profiler.run.tables import BoundaryKind

_REGION: Final = "optimizer"


class Names:
    """What each optimizer is called: its class and the user's line that made it, as in `AdamW (train.py:31)`."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._taken: dict[str, int] = {}

    def made(self, optimizer: Any, frame: FrameType | None) -> str:
        """Name `optimizer` after the line of the user's that `frame` comes from."""
        at = user_frame(frame)
        line = f" ({os.path.basename(at.f_code.co_filename)}:{at.f_lineno})" if at else ""
        label = type(optimizer).__name__ + line
        number = self._taken[label] = self._taken.get(label, 0) + 1
        name = label if number == 1 else f"{label} #{number}"
        key = id(optimizer)
        self._of[key] = weakref.ref(optimizer, lambda gone: self._forget(key, gone)), name
        return name

    def of(self, optimizer: Any) -> str:
        """The name of an optimizer; one that was made before we watched is named after the line that steps it."""
        known = self._of.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        return self.made(optimizer, sys._getframe(1))

    def _forget(self, key: int, gone: weakref.ref[Any]) -> None:
        if key in self._of and self._of[key][0] is gone:
            del self._of[key]


class Optimizers:
    """A boundary at the end of each step, region `optimizer` around it; a boundary too where GradScaler skips one."""

    name: ClassVar[str] = "optimizers"
    modules: ClassVar[tuple[str, ...]] = ("torch.optim.optimizer", "torch.amp.grad_scaler")
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def __init__(self) -> None:
        self._names = Names()
        self._begun = 0

    def install(self, module: ModuleType) -> None:
        """Forked workers inherit it."""
        if module.__name__ == "torch.amp.grad_scaler":
            patch(module.GradScaler, "_maybe_opt_step", self._scaled)
            return
        patch(module.Optimizer, "__init__", self._made)
        module.register_optimizer_step_pre_hook(self._before)
        module.register_optimizer_step_post_hook(self._after)

    def _made(self, original: Callable[..., None]) -> Callable[..., None]:
        names = self._names

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if STATE.recorder is not None:
                names.made(self, sys._getframe(1))

        return init

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._begun = now()

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder = STATE.recorder
        if recorder is None:
            return
        if recorder.detailed:
            thread = recorder.thread
            recorder.regions.write(self._begun, now(), thread.tid, recorder.name(_REGION), thread.depth)
        recorder.found(BoundaryKind.OPTIMIZER, self._names.of(optimizer))

    def _scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        names = self._names

        def step(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            stepped = now()
            result = original(self, optimizer, state, *args, **kwargs)
            return result

        return step


PLUGIN = Optimizers()
