"""Optimizer steps, by torch's own hooks for all optimizers: where a training step ends.

An optimizer is named after its class and the user's line that made it: `AdamW (train.py:31)`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.hooks._syncs import OPEN
from profiler.agent.patching import STATE, caller, on_unpatch, patch, user_frame
from profiler.agent.recorder import Recorder, now
from profiler.run.tables import BoundaryKind

_REGION: Final = "optimizer"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Optimizers:
    """A boundary at the end of each step, and where GradScaler skips one; region `optimizer` without its closure.

    torch breaks the graph of a compiled step at its beginning, so these hooks run there as well. Should a compiler
    trace them, they do nothing.
    """

    name: ClassVar[str] = "optimizers"
    modules: ClassVar[tuple[str, ...]] = ("torch.optim.optimizer", "torch.amp.grad_scaler")
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def __init__(self) -> None:
        self._names = _OptimizerNames()
        self._steps = _OptimizerSteps(self._names)

    def install(self, module: ModuleType) -> None:
        """Optimizers that exist already are named after the line that steps them first."""
        if module.__name__.endswith("grad_scaler"):
            patch(module.GradScaler, "step", self._scaled)
            return
        patch(module.Optimizer, "__init__", self._created)
        self._steps.install(module)

    def _created(self, original: Callable[..., None]) -> Callable[..., None]:
        names = self._names

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if STATE.recorder is not None:
                names.add(self, caller(1))

        return init

    def _scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        names, steps = self._names, self._steps

        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before, nested = steps.ended, steps.stepping
            result = original(self, optimizer, *args, **kwargs)
            recorder = STATE.recorder
            if recorder is not None and steps.ended == before and not nested:
                skipped = _has_step_hooks(optimizer) or _found_inf(self, optimizer)
                recorder.record_boundary(BoundaryKind.OPTIMIZER, names.name(optimizer, 1), flag=int(skipped))
            return result

        return step


def _has_step_hooks(optimizer: Any) -> bool:
    """Whether torch calls hooks at each step of this optimizer: if it called none, the optimizer did not step."""
    return bool(getattr(getattr(type(optimizer), "step", None), "hooked", False))


def _found_inf(scaler: Any, optimizer: Any) -> bool:
    """Whether the scaler found gradients that are not finite. On a GPU that is not read: it would be a sync."""
    state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
    before, OPEN.inside = OPEN.inside, True  # not a sync of the program
    try:
        return any(flag.is_cpu and flag.item() for flag in state.get("found_inf_per_device", {}).values())
    finally:
        OPEN.inside = before


class _Thread(threading.local):
    """The optimizer step that a thread is in."""

    stepping = False
    nested = 0
    """Steps within it that have not ended: of an optimizer that it wraps."""
    begun = 0
    """ns; 0: no region is open."""
    depth = 0
    ended = 0
    """Steps so far."""


class _OptimizerSteps:
    """Records a boundary and a region for each outermost step; about 3 µs at level light."""

    def __init__(self, names: _OptimizerNames) -> None:
        self._names = names
        self._thread = _Thread()
        self._torch: Any = None

    def install(self, optimizers: ModuleType) -> None:
        """Register hooks for all optimizers with `optimizers`, which is torch.optim.optimizer."""
        self._torch = optimizers.torch  # half-imported as yet
        on_unpatch(optimizers.register_optimizer_step_pre_hook(self.begin).remove)
        on_unpatch(optimizers.register_optimizer_step_post_hook(self.end).remove)

    @property
    def ended(self) -> int:
        """Steps of this thread so far."""
        return self._thread.ended

    @property
    def stepping(self) -> bool:
        """Whether this thread is in a step."""
        return self._thread.stepping

    def begin(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """torch's hook before a step.

        :returns: other arguments for the step, where its closure must be wrapped.
        """
        if self._torch.compiler.is_compiling():
            return None
        recorder, here = STATE.recorder, self._thread
        if recorder is None:
            return None
        already = here.stepping
        if already and _is_nested_step(sys._getframe(1)):
            here.nested += 1
            return None
        here.stepping, here.nested = True, 0
        if not recorder.detailed:
            return None
        thread = recorder.thread
        if not already:  # else the step before raised, and torch did not call the hook at its end
            here.depth = thread.depth
        changed = self._wrap_closure(args, kwargs) if len(args) > 1 or kwargs else None
        thread.depth = here.depth + 1
        here.begun = now()
        return changed

    def end(self, optimizer: Any, *_: Any) -> None:
        """torch's hook behind a step."""
        if self._torch.compiler.is_compiling():
            return
        recorder, here = STATE.recorder, self._thread
        if recorder is None or not here.stepping:
            return
        if here.nested:
            here.nested -= 1
            return
        here.stepping = False
        here.ended += 1
        if here.begun:
            recorder.region(_REGION, here.begun, here.depth)
            here.begun = 0
        if recorder.index:  # the program marks its steps
            return
        name = self._names.name(optimizer, 1)
        at = recorder.begin_boundary(BoundaryKind.OPTIMIZER, name)
        if at is not None:
            recorder.end_boundary(BoundaryKind.OPTIMIZER, name, at)

    def _open_region(self, recorder: Recorder) -> None:
        here = self._thread
        recorder.thread.depth = here.depth + 1
        here.begun = now()

    def _close_region(self, recorder: Recorder) -> None:
        here = self._thread
        recorder.region(_REGION, here.begun, here.depth)
        here.begun = 0

    def _wrap_closure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The arguments of `step`, the optimizer first, with the closure wrapped; None if there is no closure."""
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._outside(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside(args[1]), *args[2:]), kwargs
        return None

    def _outside(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Forward and backward, which Lightning and LBFGS run within a step, are no work of the optimizer."""

        def closed(*args: Any, **kwargs: Any) -> Any:
            recorder = STATE.recorder
            if recorder is None or not self._thread.begun:
                return closure(*args, **kwargs)
            self._close_region(recorder)
            result = closure(*args, **kwargs)
            self._open_region(recorder)
            return result

        return closed


def _is_nested_step(wrapper: FrameType) -> bool:
    """Whether torch's frame around a step lies within another such frame."""
    frame = wrapper.f_back
    while frame is not None:
        if frame.f_code is wrapper.f_code:
            return True
        frame = frame.f_back
    return False


class _OptimizerNames:
    """Names optimizers by class and line; further ones of one line are numbered."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}

    def add(self, optimizer: Any, frame: FrameType | None) -> str:
        """Name `optimizer`, made by `frame`. The name of one that no longer exists is used again."""
        creator = user_frame(frame)
        line = f" ({Path(creator.f_code.co_filename).name}:{creator.f_lineno})" if creator else ""
        label = type(optimizer).__name__ + line
        in_use = {name for _, name in self._names.values()}
        number = 1
        while (name := label if number == 1 else f"{label} #{number}") in in_use:
            number += 1
        key = id(optimizer)
        self._names[key] = weakref.ref(optimizer, lambda reference: self._remove(key, reference)), name
        return name

    def name(self, optimizer: Any, depth: int) -> str:
        """The name of an optimizer; one made before recording began is named after the line `depth` callers out."""
        entry = self._names.get(id(optimizer))
        if entry is not None and entry[0]() is optimizer:
            return entry[1]
        return self.add(optimizer, caller(depth + 1))

    def _remove(self, key: int, reference: weakref.ref[Any]) -> None:
        if key in self._names and self._names[key][0] is reference:
            del self._names[key]


PLUGIN = Optimizers()
