"""The optimizer steps of each thread as torch announces them: which are within another, which never ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, Final

from profiler.agent.hooks._optimizer_names import OptimizerNames
from profiler.agent.patching import STATE, on_unpatch
from profiler.agent.recorder import Recorder, now
from profiler.run.tables import BoundaryKind

_REGION: Final = "optimizer"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class _Open(threading.local):
    """The step that this thread is in."""

    def __init__(self) -> None:
        self.stepping = False
        self.inner = 0
        """Steps within it that have not ended: of an optimizer that it wraps."""
        self.begun = 0
        """ns; 0: no region is open."""
        self.depth = 0
        self.ended = 0
        """Steps so far."""


class OptimizerSteps:
    """A boundary and a region for each outermost step; about 3 µs at level light."""

    def __init__(self, names: OptimizerNames) -> None:
        self._names = names
        self._open = _Open()
        self._torch: Any = None

    def install(self, optimizers: ModuleType) -> None:
        """Ask torch for every step; `optimizers` is torch.optim.optimizer."""
        self._torch = optimizers.torch  # half-imported as yet
        on_unpatch(optimizers.register_optimizer_step_pre_hook(self.begin).remove)
        on_unpatch(optimizers.register_optimizer_step_post_hook(self.end).remove)

    @property
    def ended(self) -> int:
        """Steps of this thread so far."""
        return self._open.ended

    @property
    def stepping(self) -> bool:
        """Whether this thread is in a step."""
        return self._open.stepping

    def begin(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """A step begins: torch's hook before it.

        :returns: the arguments for the step where they are to be others.
        """
        if self._torch.compiler.is_compiling():
            return None
        recorder, here = STATE.recorder, self._open
        if recorder is None:
            return None
        stale = here.stepping
        if stale and _within_a_step(sys._getframe(1)):
            here.inner += 1
            return None
        here.stepping, here.inner = True, 0
        if not recorder.detailed:
            return None
        thread = recorder.thread
        if not stale:  # else a step before raised, and torch never told of its end
            here.depth = thread.depth
        changed = self._with_closure(args, kwargs) if len(args) > 1 or kwargs else None
        thread.depth = here.depth + 1
        here.begun = now()
        return changed

    def end(self, optimizer: Any, *_: Any) -> None:
        """A step has ended: torch's hook behind it."""
        if self._torch.compiler.is_compiling():
            return
        recorder, here = STATE.recorder, self._open
        if recorder is None or not here.stepping:
            return
        if here.inner:
            here.inner -= 1
            return
        here.stepping = False
        here.ended += 1
        if here.begun:
            recorder.region(_REGION, here.begun, here.depth)
            here.begun = 0
        if recorder.index:  # the program marks its steps
            return
        name = self._names.of(optimizer, 1)
        at = recorder.begin_boundary(BoundaryKind.OPTIMIZER, name)
        if at is not None:
            recorder.end_boundary(BoundaryKind.OPTIMIZER, name, at)

    def _open_region(self, recorder: Recorder) -> None:
        here = self._open
        recorder.thread.depth = here.depth + 1
        here.begun = now()

    def _close_region(self, recorder: Recorder) -> None:
        here = self._open
        recorder.region(_REGION, here.begun, here.depth)
        here.begun = 0

    def _with_closure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The arguments of `step`, the optimizer first, with their closure wrapped; None where there is none."""
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._outside(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside(args[1]), *args[2:]), kwargs
        return None

    def _outside(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Forward and backward, which Lightning and LBFGS do within a step, are no work of the optimizer's."""

        def closed(*args: Any, **kwargs: Any) -> Any:
            recorder = STATE.recorder
            if recorder is None or not self._open.begun:
                return closure(*args, **kwargs)
            self._close_region(recorder)
            result = closure(*args, **kwargs)
            self._open_region(recorder)
            return result

        return closed


def _within_a_step(wrapper: FrameType) -> bool:
    """Whether torch's frame around a step stands within another such."""
    frame = wrapper.f_back
    while frame is not None:
        if frame.f_code is wrapper.f_code:
            return True
        frame = frame.f_back
    return False
