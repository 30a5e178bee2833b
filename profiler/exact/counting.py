"""Counts what a program makes torch do by its lines, in all threads of a process: operators, memory, files and reads.

Two runs of a program that does the same have equal counts. Times of a program that is counted tell nothing. Steps of
torch's own optimizers run without the mode that counts reads, which makes counted steps 8% shorter (1.96 instead of
2.13 times the time of a plain step, docs/log.md): no code of the program runs there, and no value that would lie on a
device is read. The optimizer's state is marked after the step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter

from profiler.exact import private_api
from profiler.exact.files import FileCounter
from profiler.exact.mode import starting
from profiler.exact.model import EventSink
from profiler.exact.operators import OperatorCounter, OperatorMode
from profiler.exact.reads import ReadMode


class Counting:
    """Counts operators, memory, written files and, where `sink` is given, reads of values on the CPU."""

    def __init__(self, counter: OperatorCounter, sink: EventSink | None) -> None:
        self._counter = counter
        self.reads = ReadMode(sink) if sink is not None else None
        """The mode that counts reads."""
        counter.on_read = self.reads.read if self.reads is not None else None
        self._files = FileCounter(counter)
        self._stack = ExitStack()

    def install(self) -> None:
        """Count what this thread and those that it starts make torch do."""
        self._stack.callback(setattr, threading.Thread, "start", threading.Thread.start)
        threading.Thread.start = starting(self._modes)  # type: ignore[assignment, method-assign]
        self._files.install(self._stack)
        self._stack.enter_context(self._modes())

    def _modes(self) -> ExitStack:
        """The modes of one thread, entered."""
        stack = ExitStack()
        if self.reads is not None:
            stack.enter_context(self.reads)
        mode: Any = OperatorMode(self._counter)
        stack.enter_context(mode)
        return stack

    def remove(self) -> None:
        """Count no more in this thread."""
        self._stack.close()


# ---------------------------------------------------------------- steps of torch's optimizers

OPTIMIZERS: Final = (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop)  # AdamW inherits the method of Adam
"""Optimizers that read no value in a step but their own number of steps, which lies on the CPU."""
_OTHER_WAYS: Final = ("capturable", "differentiable", "fused")
"""With these options the number of steps lies on the device, or the step is a part of a graph."""
_ON_CPU: Final = "step"
"""The entry of an optimizer's state that lies on the CPU: its number of steps."""


def step_optimizer(reads: ReadMode, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `original`, the method `step` of one of `OPTIMIZERS`, without the mode if it would count nothing."""
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
        _mark(reads, optimizer)
    return result


def _is_plain(optimizer: Any) -> bool:
    """Whether a step takes the usual way, and neither the optimizer nor a parameter is of a class of the program."""
    return type(optimizer).__module__.startswith("torch.") and all(
        not any(map(group.get, _OTHER_WAYS))
        and not isinstance(group["lr"], Tensor)
        and all(type(parameter) in (Parameter, Tensor) for parameter in group["params"])
        for group in optimizer.param_groups
    )


def _mark(reads: ReadMode, optimizer: Any) -> None:
    """Mark the state of each parameter as lying where the parameter does. What else a program keeps in the state stays
    as it is."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            device = reads.device(parameter)
            if device is not None:
                state = optimizer.state.get(parameter, {})
                reads.mark([value for name, value in state.items() if name != _ON_CPU], device)
