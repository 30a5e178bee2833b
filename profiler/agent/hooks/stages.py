"""Records backward passes, and what shows in which stage a program is: evaluation mode, time without gradients.

A backward pass is the time of the thread that starts it and waits for it. One within another (checkpointed activations,
with `use_reentrant`) is a part of it. The boundary is named after the user's line that calls it: `backward
(train.py:31)`. Once an optimizer steps, backward passes are no boundaries any more. Calls of `torch.autograd.grad`,
which torch.func makes too, are boundaries called `gradients (train.py:31)`: they end steps only in programs without
`backward()` and without an optimizer of torch.

Only changes of mode of the outermost module are recorded, and only `no_grad` and `inference_mode` blocks that are
outermost and long enough to hold work.

Also records the lines that checkpoint activations, which torch computes a second time in the backward pass. Functions
that torch calls within `checkpoint` are replaced, and not that function itself, which torch.compile knows by its
identity. Under a compiler they are not called.

Also counts gradients that DistributedDataParallel synchronizes although no optimizer has stepped since the last time.
A program that accumulates the gradients of several passes needs their sum only, so that the last pass of each optimizer
step is the only one that has to synchronize. Nothing is counted until a step of an optimizer was seen: torch has no
hook for an optimizer that is no torch.optim.Optimizer, and each of its steps would look like such a repetition.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from types import CodeType, ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks import optimizers
from profiler.agent.hooks._unused_gradients import Search
from profiler.agent.hooks.tensors import register_builtin
from profiler.agent.patching import STATE, Hook, caller, code_line, patch, user_frame
from profiler.run.tables import GRADIENTS, REPEATED_GRADIENT_SYNCS, BoundaryKind, StageKind

# ---------------------------------------------------------------- backward passes


_REGION: Final = "backward"
_BOUNDARIES: Final = {"backward": _REGION, "grad": GRADIENTS}
"""Functions of torch.autograd, and what a boundary at the end of them is called."""


class _PassThread(threading.local):
    is_open = False
    """Whether this thread is in a backward pass."""


_passing: Final = _PassThread()
_open_passes: Final[set[int]] = set()
"""Threads that are in a backward pass, by their identifier."""
_MAX_NAMES: Final = 1000  # that are remembered: a program may make code without end
_names: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
"""Names of boundaries, by the code that calls and its instruction: making one takes 3 µs. The code is kept, so that its
id is not reused."""


def _install_autograd(module: Any) -> None:
    for name, boundary in _BOUNDARIES.items():
        original = getattr(module, name)
        search = Search() if name == "backward" else None
        patch(module, name, partial(_recorded, boundary=boundary, search=search))
        register_builtin(original, getattr(module, name))


def _recorded(original: Callable[..., Any], *, boundary: str, search: Search | None) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        recorder, here = STATE.recorder, _passing
        if recorder is None or here.is_open or (_open_passes and _is_autograd_thread()):
            return original(*args, **kwargs)
        end_search = None
        if search is not None and not search.is_over:
            end_search = search.begin(args, kwargs)
        detailed, thread, identifier = recorder.detailed, recorder.thread, threading.get_ident()
        depth, begin = thread.depth, 0
        if detailed:
            thread.depth = depth + 1
            begin = now()
        here.is_open = True
        _open_passes.add(identifier)
        try:
            result = original(*args, **kwargs)
        finally:
            here.is_open = False
            _open_passes.discard(identifier)
            if detailed:
                recorder.region(_REGION, begin, depth)
            if end_search is not None:
                end_search()
        if recorder.count_backward():
            recorder.record_boundary(BoundaryKind.BACKWARD, _name(boundary))
        return result

    return backward


def _is_autograd_thread() -> bool:
    """Tell whether C++ started this thread: autograd has one for each GPU, in which checkpointed activations start
    backward passes within the one that waits for them."""
    return threading.get_ident() not in threading._active  # type: ignore[attr-defined]


def _name(boundary: str) -> str:
    frame = user_frame(caller(2))
    if frame is None:
        return boundary
    code = frame.f_code
    key = id(code), frame.f_lasti
    named = _names.get(key)
    if named is None:
        if len(_names) >= _MAX_NAMES:
            _names.clear()
        name = f"{boundary} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
        named = _names[key] = code, name
    return named[1]


BACKWARD = Hook("backward", {"torch.autograd": _install_autograd})


# ---------------------------------------------------------------- evaluation mode, and time without gradients


_MIN_NS: Final = 20_000
"""Shorter blocks change a parameter or read a value: a forward pass of a small model takes 30 µs and more."""
_SWITCHED_ALONE: Final = ("BatchNorm", "SyncBatchNorm", "Dropout", "FrozenBatchNorm")
"""Classes of layers that programs switch to evaluation mode within training (beginnings of their names)."""


class _Thread(threading.local):
    is_switching = False
    """Whether this thread is in `Module.train`, which calls itself for each submodule."""
    depth = 0
    """Open blocks without gradients."""
    begun = 0
    """ns: the begin of the outermost one."""


_thread: Final = _Thread()


def _switched(original: Callable[..., Any]) -> Callable[..., Any]:
    def train(self: Any, mode: bool = True) -> Any:
        here = _thread
        if here.is_switching or STATE.recorder is None:
            return original(self, mode)
        before = vars(self).get("training")
        here.is_switching = True
        try:
            return original(self, mode)
        finally:
            here.is_switching = False
            recorder, name = STATE.recorder, type(self).__name__
            if recorder is not None and before is not mode and not name.startswith(_SWITCHED_ALONE):
                recorder.change_mode(StageKind.TRAIN_MODE if mode else StageKind.EVAL_MODE, name, id(self))

    return train


def _install_grad_mode(module: Any) -> None:
    for owner in (module.no_grad, module.inference_mode):  # inference_mode(False) enables gradients: it is rare
        patch(owner, "__enter__", _entered)
        patch(owner, "__exit__", _left)


def _entered(original: Callable[..., Any]) -> Callable[..., Any]:
    def __enter__(self: Any) -> Any:  # noqa: N807 - the method that it replaces
        here = _thread
        if not here.depth:
            recorder = STATE.recorder
            here.begun = recorder.split() if recorder is not None and recorder.on_mode else now()
        here.depth += 1
        return original(self)

    return __enter__


def _left(original: Callable[..., Any]) -> Callable[..., Any]:
    def __exit__(self: Any, *error: Any) -> Any:  # noqa: N807 - the method that it replaces
        result, here = original(self, *error), _thread
        here.depth = max(0, here.depth - 1)
        if not here.depth and here.begun and STATE.recorder is not None:
            end = now()
            if end - here.begun > _MIN_NS:
                recorder = STATE.recorder
                if recorder.on_mode:  # what the block did is counted apart
                    end = recorder.split()
                recorder.stage(StageKind.NO_GRAD, "no_grad", here.begun, end, recorder.backwards)
            here.begun = 0
        return result

    return __exit__


STAGES = Hook(
    "stages",
    {
        "torch.nn.modules.module": lambda module: patch(module.Module, "train", _switched),
        "torch.autograd.grad_mode": _install_grad_mode,
    },
)


# ---------------------------------------------------------------- checkpoints of activations


_FUNCTIONS: Final = ("_checkpoint_without_reentrant_generator", "check_backward_validity")
"""Functions of torch.utils.checkpoint that the two ways of checkpointing call once for each checkpoint."""
_MAX_LINES: Final = 8
_known: Final[dict[tuple[int, int], tuple[CodeType, dict[str, Any]]]] = {}
"""Calling code and its instruction -> its line: file, number, function. The code is kept, so that its id is not
reused."""


def _install_checkpoint(module: ModuleType) -> None:
    _known.clear()  # of an earlier recording in this process
    for name in _FUNCTIONS:
        if hasattr(module, name):
            patch(module, name, _noted)


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is not None and len(_known) < _MAX_LINES:
            frame = user_frame(caller(1))
            if frame is not None and (id(frame.f_code), frame.f_lasti) not in _known:
                code = frame.f_code
                _known[id(code), frame.f_lasti] = code, code_line(code, frame.f_lineno)
                recorder.add_hook_facts(activation_checkpoints=[line for _, line in _known.values()])
        return original(*args, **kwargs)

    return noted


CHECKPOINTING = Hook("checkpointing", {"torch.utils.checkpoint": _install_checkpoint})


# ---------------------------------------------------------------- repeated synchronization of gradients


def _install_parallel(module: ModuleType) -> None:
    is_grad_enabled = module.torch.is_grad_enabled
    passes: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
    """Model -> how many optimizer steps and backward passes there were before its last synchronized forward pass."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
            recorder = STATE.recorder
            if recorder is not None and self.require_backward_grad_sync and is_grad_enabled():
                steps, backwards = optimizers.SEEN.steps, recorder.backwards
                before = passes.get(self)
                if steps and before is not None and before[0] == steps and before[1] < backwards:
                    recorder.count(REPEATED_GRADIENT_SYNCS)
                passes[self] = steps, backwards
            return original(self, *inputs, **kwargs)

        return _pre_forward

    if hasattr(module.DistributedDataParallel, "_pre_forward"):
        patch(module.DistributedDataParallel, "_pre_forward", make)


GRADIENT_SYNCS = Hook("gradient_syncs", {"torch.nn.parallel.distributed": _install_parallel})


PLUGINS = (BACKWARD, STAGES, CHECKPOINTING, GRADIENT_SYNCS)
