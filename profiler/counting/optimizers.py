"""Leaves the mode that counts reads out of the steps of torch's own optimizers: 0.9 of the time of a counted step.

In such a step no code of the program runs, and no value that would lie on a device is read. What the optimizer
remembers for a parameter is marked after the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter

from profiler.counting.reads import ReadMode
from profiler.virtual import private_api

CLASSES: Final = (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop)  # AdamW inherits the method of Adam
"""Optimizers that read no value in a step but their own number of steps, which lies on the CPU."""
_OTHER_WAYS: Final = ("capturable", "differentiable")
"""With these options the number of steps lies on the device, or the step is a part of a graph."""
_OF_HOST: Final = "step"
"""What an optimizer remembers on the CPU."""


def step(reads: ReadMode, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `original`, the method `step` of one of `CLASSES`, without the mode if it would count nothing."""
    if (
        args
        or kwargs  # a closure is code of the program
        or private_api.active_modes()[-1:] != [reads]
        or not _is_plain(optimizer)
    ):
        return original(optimizer, *args, **kwargs)
    states = len(optimizer.state)
    with private_api.without_innermost_mode():
        result = original(optimizer)
    if len(optimizer.state) != states:
        _mark(reads, optimizer.state)
    return result


def _is_plain(optimizer: Any) -> bool:
    """Whether a step takes the usual way, and no parameter is of a class with code of its own."""
    return all(
        not any(map(group.get, _OTHER_WAYS))
        and not isinstance(group["lr"], Tensor)
        and all(type(parameter) in (Parameter, Tensor) for parameter in group["params"])
        for group in optimizer.param_groups
    )


def _mark(reads: ReadMode, state: Mapping[Tensor, Mapping[str, Any]]) -> None:
    """Mark what an optimizer remembers for parameters as lying where they do."""
    for parameter, values in state.items():
        device = reads.device(parameter)
        if device is not None:
            reads.mark([value for name, value in values.items() if name != _OF_HOST], device)
