"""Optimizer steps, by torch's own hooks for all optimizers: where a step of the training ends."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from profiler.agent.hooks._optimizer_names import OptimizerNames
from profiler.agent.hooks._optimizer_steps import OptimizerSteps
from profiler.agent.hooks._syncs import OPEN
from profiler.agent.patching import STATE, caller, patch
from profiler.run.tables import BoundaryKind


class Optimizers:
    """A boundary at the end of each step, and where GradScaler skips one; region `optimizer` without its closure.

    torch breaks the graph of a step that is compiled at its beginning, so that these run as they are there too; should
    a compiler ever trace them, they are nothing to it.
    """

    name: ClassVar[str] = "optimizers"
    modules: ClassVar[tuple[str, ...]] = ("torch.optim.optimizer", "torch.amp.grad_scaler")
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def __init__(self) -> None:
        self._names = OptimizerNames()
        self._steps = OptimizerSteps(self._names)

    def install(self, module: ModuleType) -> None:
        """Optimizers that exist already get the line that steps them first."""
        if module.__name__.endswith("grad_scaler"):
            patch(module.GradScaler, "step", self._scaled)
            return
        patch(module.Optimizer, "__init__", self._made)
        self._steps.install(module)

    def _made(self, original: Callable[..., None]) -> Callable[..., None]:
        names = self._names

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if STATE.recorder is not None:
                names.made(self, caller(1))

        return init

    def _scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        names, steps = self._names, self._steps

        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before, within = steps.ended, steps.stepping
            result = original(self, optimizer, *args, **kwargs)
            recorder = STATE.recorder
            if recorder is not None and steps.ended == before and not within:
                flag = _announced(optimizer) or _found_inf(self, optimizer)
                recorder.record_boundary(BoundaryKind.OPTIMIZER, names.of(optimizer, 1), flag=int(flag))
            return result

        return step


def _announced(optimizer: Any) -> bool:
    """Whether torch tells of each step of this optimizer: where it told of none, there was none."""
    return bool(getattr(getattr(type(optimizer), "step", None), "hooked", False))


def _found_inf(scaler: Any, optimizer: Any) -> bool:
    """Whether the scaler knows that the gradients were no numbers. On a GPU that is not asked: it would be a wait."""
    state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer), {})
    before, OPEN.inside = OPEN.inside, True  # no wait of the program's
    try:
        return any(found.is_cpu and found.item() for found in state.get("found_inf_per_device", {}).values())
    finally:
        OPEN.inside = before


PLUGIN = Optimizers()
