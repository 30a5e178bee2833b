"""Records optimizer steps, by torch's own hooks for all optimizers: where a training step ends.

A boundary at the end of each step, and where GradScaler skips one; region `optimizer` without the step's closure. An
optimizer is named after its class and the user's line that made it, and numbered if others of that line exist:
`AdamW (train.py:31)`. torch breaks the graph of a compiled step at its beginning, so these hooks run there as well.
Should a compiler trace them, they do nothing. Calls of `zero_grad` that fill gradients with zeros are counted.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks.syncs import NESTED, OPEN
from profiler.agent.patching import STATE, Hook, caller, on_unpatch, patch, user_frame
from profiler.agent.recorder import Recorder
from profiler.run.tables import ZERO_FILL_NS, ZERO_FILLS, BoundaryKind

_REGION: Final = "optimizer"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


_MAX_PASSES: Final = 2000
_MAX_STEPS: Final = 100
"""Passes and steps of optimizers after which no more are followed: a few steps of a program have fewer."""

Call = tuple[tuple[str, int], ...]
"""Where a pass was started: file and line of the innermost frames."""


class GradientUses:
    """Which backward passes, by the lines that start them, gave gradients to a step of each optimizer, and which only
    to its `zero_grad`. It is filled during the first steps of a program, until `is_over`: at 1 µs a call, but where a
    module resets gradients, for which its parameters are listed."""

    def __init__(self) -> None:
        self.is_over = False
        self._passes: list[Call] = []
        self._steps = 0
        self._from: dict[int, int] = {}
        """How many passes there were at the last step or `zero_grad` of an optimizer, by its id."""
        self._used: dict[int, set[Call]] = {}
        self._zeroed: dict[int, set[Call]] = {}

    def passed(self, call: Call) -> None:
        """A pass begins."""
        if not self.is_over:
            self._passes.append(call)
            self.is_over = len(self._passes) >= _MAX_PASSES

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped, or its step was skipped because of gradients that are not finite."""
        if not self.is_over:
            self._steps += 1
            self.is_over = self._steps >= _MAX_STEPS
            self._used.setdefault(id(optimizer), set()).update(self._since(optimizer))

    def zeroed(self, owner: Any, optimizers: Collection[Any]) -> None:
        """An optimizer, or a module with all parameters of some of `optimizers`, resets its gradients."""
        if self.is_over or not self._passes:
            return
        reset = [optimizer for optimizer in optimizers if optimizer is owner]
        if not reset and hasattr(owner, "parameters"):
            own = {id(parameter) for parameter in owner.parameters()}
            reset = [each for each in optimizers if own.issuperset(map(id, parameters_of(each)))]
        for optimizer in reset:
            self._zeroed.setdefault(id(optimizer), set()).update(self._since(optimizer))

    def forget(self, key: int) -> None:
        """An optimizer with this id no longer exists: another one may get the id."""
        for each in (self._from, self._used, self._zeroed):
            each.pop(key, None)

    def is_discarded(self, optimizer: Any, call: Call) -> bool:
        """Tell whether all gradients that passes of this call gave to the parameters of an optimizer were reset before
        it stepped; not known once `is_over`."""
        key = id(optimizer)
        return not self.is_over and call in self._zeroed.get(key, ()) and call not in self._used.get(key, ())

    def _since(self, optimizer: Any) -> list[Call]:
        """Return the passes since the last call for this optimizer."""
        passes, key = len(self._passes), id(optimizer)
        since = self._passes[self._from.get(key, 0) : passes]
        self._from[key] = passes
        return since


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters of an optimizer."""
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]


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


class _Seen:
    """What this recording has seen of the optimizers of this process: of torch.optim, and DistributedOptimizer."""

    def __init__(self) -> None:
        self.steps = 0
        """Steps so far, whether or not GradScaler skipped them. Any thread may step: autograd's thread of a device does
        where a hook of a gradient steps an optimizer. Two threads may count one step together."""
        self.made = 0
        """Optimizers so far, whether or not they still exist."""
        self.uses = GradientUses()
        """What optimizers do with the gradients of passes."""
        self.names: dict[int, tuple[weakref.ref[Any], str]] = {}
        """The name of each optimizer, by its id."""


_thread = _Thread()
SEEN: Final = _Seen()


def _install_optimizers(module: Any) -> None:
    """Register hooks for all optimizers; those that exist already are named after the line that steps them first."""
    on_unpatch(_forget)
    steps = _OptimizerSteps(module.torch)  # half-imported as yet
    patch(module.Optimizer, "__init__", _created)
    patch(module.Optimizer, "zero_grad", _zeroed)
    on_unpatch(module.register_optimizer_step_pre_hook(steps.begin).remove)
    on_unpatch(module.register_optimizer_step_post_hook(steps.end).remove)


def parameters() -> set[int]:
    """Return the ids of all parameters that an optimizer has: 0.1 µs for each."""
    return {id(parameter) for parameter in _parameters()}


def has_sharded_parameters() -> bool:
    """Tell whether an optimizer has a DTensor, such as a shard of FSDP's: gradients are then computed for other
    parameters, which FSDP makes of all shards for each pass."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(parameter, module.DTensor) for parameter in _parameters())


def discarded_parameters(call: Call) -> set[int]:
    """Return the ids of parameters whose gradients of passes of this call were reset before any of their optimizers
    stepped: some optimizers, such as SAM, step by another one that has the same parameters."""
    ids: dict[bool, set[int]] = {True: set(), False: set()}
    for optimizer in _alive():
        ids[SEEN.uses.is_discarded(optimizer, call)].update(map(id, parameters_of(optimizer)))
    return ids[True] - ids[False]


def _alive() -> list[Any]:
    return [optimizer for reference, _ in list(SEEN.names.values()) if (optimizer := reference()) is not None]


def _parameters() -> Iterator[Any]:
    return (parameter for optimizer in _alive() for parameter in parameters_of(optimizer))


def _forget() -> None:
    """Forget the optimizers and, in every thread, the step of a recording that ends."""
    global _thread
    _thread = _Thread()
    vars(SEEN).update(vars(_Seen()))


class _OptimizerSteps:
    """Records a boundary and a region for each outermost step; about 3 µs at level light."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch: Any = torch

    def begin(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """torch's hook before a step.

        :returns: other arguments for the step, where its closure must be wrapped.
        """
        if self._torch.compiler.is_compiling():
            return None
        recorder, here = STATE.recorder, _thread
        if recorder is None:
            return None
        already = here.stepping
        if already and _is_nested_step(sys._getframe(1)):
            here.nested += 1
            return None
        here.stepping, here.nested = True, 0
        if not recorder.detailed:
            return None
        if not already:  # else the step before raised, and torch did not call the hook at its end
            here.depth = recorder.thread.depth
        changed = _wrap_closure(args, kwargs) if len(args) > 1 or kwargs else None
        recorder.thread.depth = here.depth + 1
        here.begun = now()
        return changed

    def end(self, optimizer: Any, *_: Any) -> None:
        """torch's hook behind a step."""
        if self._torch.compiler.is_compiling():
            return
        recorder, here = STATE.recorder, _thread
        if recorder is None or not here.stepping:
            return
        if here.nested:
            here.nested -= 1
            return
        here.stepping = False
        here.ended += 1
        SEEN.steps += 1
        SEEN.uses.stepped(optimizer)
        if here.begun:
            recorder.region(_REGION, here.begun, here.depth)
            here.begun = 0
        if recorder.index:  # the program marks its steps
            return
        name = _name(optimizer, 1)
        at = recorder.begin_boundary(BoundaryKind.OPTIMIZER, name)
        if at is not None:
            recorder.end_boundary(BoundaryKind.OPTIMIZER, name, at)


def _zeroed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Count and time calls that fill gradients with zeros: by default `zero_grad` sets them to None, which is nearly
    free."""

    # with *args and **kwargs it would take 0.4 µs instead of 0.1 µs, and more where the caches are cold
    def zero_grad(self: Any, set_to_none: Any = True) -> Any:
        recorder = STATE.recorder
        if recorder is not None and not SEEN.uses.is_over:
            _note_zeroed(self, recorder)
        if set_to_none or recorder is None:
            return original(self, set_to_none)
        recorder.count(ZERO_FILLS)
        begin = now()
        try:
            return original(self, set_to_none)
        finally:
            if recorder.detailed:
                recorder.count(ZERO_FILL_NS, now() - begin)

    return zero_grad


def _note_zeroed(owner: Any, recorder: Recorder) -> None:
    try:
        SEEN.uses.zeroed(owner, _alive())
    except Exception as error:  # noqa: BLE001 - the edge to the program, which goes on; the run's status reports it
        SEEN.uses.is_over = True
        recorder.hook_errors["unused_gradients"] = f"{type(error).__name__}: {error}"


def _wrap_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """Return the arguments of `step`, the optimizer first, with the closure wrapped; None if there is no closure."""
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _outside(kwargs["closure"])}
    if len(args) > 1 and callable(args[1]):
        return (args[0], _outside(args[1]), *args[2:]), kwargs
    return None


def _outside(closure: Callable[..., Any]) -> Callable[..., Any]:
    """Forward and backward, which Lightning and LBFGS run within a step, are no work of the optimizer."""

    def closed(*args: Any, **kwargs: Any) -> Any:
        recorder, here = STATE.recorder, _thread
        if recorder is None or not here.begun:
            return closure(*args, **kwargs)
        recorder.region(_REGION, here.begun, here.depth)
        here.begun = 0
        result = closure(*args, **kwargs)
        recorder.thread.depth = here.depth + 1
        here.begun = now()
        return result

    return closed


def _is_nested_step(wrapper: FrameType) -> bool:
    """Tell whether torch's frame around a step lies within another such frame."""
    frame = wrapper.f_back
    while frame is not None:
        if frame.f_code is wrapper.f_code:
            return True
        frame = frame.f_back
    return False


def _scaled(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before, nested = _thread.ended, _thread.stepping
        result = original(self, optimizer, *args, **kwargs)
        recorder = STATE.recorder
        if recorder is not None and _thread.ended == before and not nested:
            SEEN.steps += 1
            SEEN.uses.stepped(optimizer)
            # where torch calls hooks at each step of this optimizer and called none, the optimizer did not step
            has_hooks = getattr(getattr(type(optimizer), "step", None), "hooked", False)
            skipped = bool(has_hooks) or _found_inf(self, optimizer)
            recorder.record_boundary(BoundaryKind.OPTIMIZER, _name(optimizer, 1), flag=int(skipped))
        return result

    return step


def _distributed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record the step of torch's DistributedOptimizer, which is no torch.optim.Optimizer: those on the workers step in
    threads of RPC, or as TorchScript, which calls no hook."""

    def step(self: Any, context_id: Any) -> Any:
        recorder = STATE.recorder
        begin, depth = now(), recorder.thread.depth if recorder is not None else 0
        result = original(self, context_id)
        if recorder is not None:
            SEEN.steps += 1
            if recorder.detailed:
                recorder.region(_REGION, begin, depth)
            if not recorder.index:
                recorder.record_boundary(BoundaryKind.OPTIMIZER, _name(self, 1))
        return result

    return step


def _found_inf(scaler: Any, optimizer: Any) -> bool:
    """Tell whether the scaler found gradients that are not finite. On a GPU that is not read: it would be a sync."""
    state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
    before, OPEN.inside = OPEN.inside, NESTED  # not a sync of the program
    try:
        return any(flag.is_cpu and flag.item() for flag in state.get("found_inf_per_device", {}).values())
    finally:
        OPEN.inside = before


# ---------------------------------------------------------------- names


def _created(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if STATE.recorder is not None:
            _add_name(self, caller(1))

    return init


def _add_name(optimizer: Any, frame: FrameType | None) -> str:
    """Name `optimizer`, made by `frame`. The name of one that no longer exists is used again."""
    creator = user_frame(frame)
    line = f" ({Path(creator.f_code.co_filename).name}:{creator.f_lineno})" if creator else ""
    label = type(optimizer).__name__ + line
    in_use = {name for _, name in SEEN.names.values()}
    number = 1
    while (name := label if number == 1 else f"{label} #{number}") in in_use:
        number += 1
    SEEN.made += 1
    key = id(optimizer)

    def remove(reference: weakref.ref[Any]) -> None:
        if key in SEEN.names and SEEN.names[key][0] is reference:
            del SEEN.names[key]
            SEEN.uses.forget(key)

    SEEN.names[key] = weakref.ref(optimizer, remove), name
    return name


def _name(optimizer: Any, depth: int) -> str:
    """Return the name of an optimizer; one made before recording began is named after the line `depth` callers out."""
    entry = SEEN.names.get(id(optimizer))
    if entry is not None and entry[0]() is optimizer:
        return entry[1]
    return _add_name(optimizer, caller(depth + 1))


PLUGIN = Hook(
    "optimizers",
    {
        "torch.optim.optimizer": _install_optimizers,
        "torch.nn.modules.module": lambda module: patch(module.Module, "zero_grad", _zeroed),
        "torch.distributed.optim.optimizer": lambda module: patch(module.DistributedOptimizer, "step", _distributed),
        "torch.amp.grad_scaler": lambda module: patch(module.GradScaler, "step", _scaled),
    },
)
