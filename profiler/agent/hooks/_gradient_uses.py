"""Follows what optimizers do with the gradients of backward passes: a GAN whose generator is not detached computes
gradients of the generator for the discriminator's loss, and `zero_grad` discards them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

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
        """Whether all gradients that passes of this call gave to the parameters of an optimizer were reset before it
        stepped; not known once `is_over`."""
        key = id(optimizer)
        return not self.is_over and call in self._zeroed.get(key, ()) and call not in self._used.get(key, ())

    def _since(self, optimizer: Any) -> list[Call]:
        """The passes since the last call for this optimizer."""
        passes, key = len(self._passes), id(optimizer)
        since = self._passes[self._from.get(key, 0) : passes]
        self._from[key] = passes
        return since


def parameters_of(optimizer: Any) -> list[Any]:
    """The parameters of an optimizer."""
    return [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]
