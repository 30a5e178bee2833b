"""Records what shows in which stage a program is: modules in evaluation mode, and time without gradients.

Only changes of mode of the outermost module are recorded, and only `no_grad` and `inference_mode` blocks that are
outermost and long enough to hold work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from profiler.agent.patching import STATE, Hook, patch
from profiler.agent.recorder import now
from profiler.run.tables import StageKind

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


def _install_module(module: Any) -> None:
    patch(module.Module, "train", _switched)


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


PLUGIN = Hook("stages", {"torch.nn.modules.module": _install_module, "torch.autograd.grad_mode": _install_grad_mode})
