"""Gradients that DistributedDataParallel synchronizes although no optimizer has stepped since the last time.

A program that accumulates the gradients of several backward passes needs their sum only, so that the last pass of each
optimizer step is the only one that has to synchronize. Nothing is counted until a step of an optimizer was seen: torch
has no hook for an optimizer that is no torch.optim.Optimizer, and each of its steps would look like such a repetition.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from profiler.agent.hooks import optimizers
from profiler.agent.patching import STATE, Hook, patch
from profiler.run.tables import REPEATED_GRADIENT_SYNCS


def _install(module: ModuleType) -> None:
    is_grad_enabled = module.torch.is_grad_enabled
    passes: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
    """Model -> how many optimizer steps and backward passes there were before its last synchronized forward pass."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
            recorder = STATE.recorder
            if recorder is not None and self.require_backward_grad_sync and is_grad_enabled():
                steps, backwards = optimizers.steps_so_far(), recorder.backwards
                before = passes.get(self)
                if steps and before is not None and before[0] == steps and before[1] < backwards:
                    recorder.count(REPEATED_GRADIENT_SYNCS)
                passes[self] = steps, backwards
            return original(self, *inputs, **kwargs)

        return _pre_forward

    if hasattr(module.DistributedDataParallel, "_pre_forward"):
        patch(module.DistributedDataParallel, "_pre_forward", make)


PLUGIN = Hook("gradient_syncs", {"torch.nn.parallel.distributed": _install})
