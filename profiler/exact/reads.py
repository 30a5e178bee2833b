"""Counts the reads of values for which a program on the CPU would wait if its device were a GPU.

A read counts only if its tensor would lie on the device: if it descends from a parameter, or from what the program
moves to its device or makes there. What waits is the same as for virtual CUDA devices.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch import Tensor

from profiler.agent.patching import is_user_file
from profiler.exact import private_api, waiting  # noqa: F401 - it has handlers
from profiler.exact.marks import CPU, Machine, device_of, storage_of, tensors_in
from profiler.exact.mode import READS, Arguments, VirtualMode, same
from profiler.exact.model import CARDS, EventSink

_HOST: Final = re.compile(r"""(\.to\(\s*|device\s*=\s*)(torch\.device\()?["']cpu["']""")
"""Source text that names the CPU itself, and not the device that the program has chosen."""
_MAX_LINES: Final = 10_000
_cpu, _to, _get_item = Tensor.cpu, Tensor.to, Tensor.__getitem__  # reading an attribute of Tensor takes 50 ns


class _Parts:
    """The mark of memory that a program has moved without a copy: each of its tensors has a mark `virtual_place`.

    :param rest: the mark of the tensors without one.
    """

    __slots__ = ("rest",)

    def __init__(self, rest: torch.device | None) -> None:
        self.rest = rest


class _Compiled(threading.local):
    depth = 0
    """Number of compiled functions that this thread is in."""


class ReadMode(VirtualMode):
    """Marks the tensors that would lie on a device, without changing anything that the program sees."""

    def __init__(self, sink: EventSink) -> None:
        super().__init__(Machine(1, CARDS["h100"], sink))
        self._marker: torch.device = self.machine.devices[0]
        self._compiled = _Compiled()
        self._host_lines: dict[int, tuple[CodeType, bool]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        handler = READS.get(func)
        if handler is same:
            return func(*args, **kwargs) if kwargs else func(*args)
        if handler is not None:
            result = handler(self, func, args, dict(kwargs) if kwargs else {})
            if func is _get_item:
                self._keep_place(args, result)
            return result
        result = self.call(func, args, kwargs)
        if func is _cpu or (func is _to and _names_device(args, kwargs or {})):
            self._move(func, args[0], result)
        elif not (args and result is args[0]) and isinstance(result, (Tensor, tuple, list)):
            # neither a function that changes a tensor, nor one that tells about one
            place: Any = device_of(result) if isinstance(result, Tensor) else None
            if not isinstance(place, torch.device) and self._would_lie_on_device(args, kwargs):
                self.mark(result, self._marker)
            if isinstance(place, _Parts) or not isinstance(result, Tensor):
                self._keep_place(args, result)
        return result

    def _keep_place(self, args: Arguments, result: Any) -> None:
        """Views of a tensor that was moved to the CPU, of whose memory the program has moved parts, are there too."""
        if args and getattr(args[0], "virtual_place", None) is CPU:
            for view in tensors_in((result,)):
                if isinstance(device_of(view), _Parts):
                    view.virtual_place = CPU  # type: ignore[attr-defined]

    def _would_lie_on_device(self, args: Arguments, options: Mapping[str, Any] | None) -> bool:
        """Whether the result of a function with these arguments would."""
        if self.device_among(args):
            return True
        if not options:
            return False
        if self.device_among(options.values()):
            return True
        return options.get("device") is not None and not self._names_host()

    def device(self, tensor: Tensor) -> torch.device | None:
        """The marker, of a tensor that would lie on the device."""
        device: Any = device_of(tensor)
        if isinstance(device, _Parts):
            place = getattr(tensor, "virtual_place", device.rest)
            device = None if place is CPU else place
        elif device is None:
            device = self.thread.backward_device
        if device is None and issubclass(type(tensor), torch.nn.Parameter):  # isinstance takes longer
            self.mark(tensor, self._marker)
            return self._marker
        return device  # type: ignore[no-any-return]

    def mark(self, result: Any, device: torch.device) -> None:
        """Mark the tensors in a result."""
        if isinstance(result, Tensor):
            try:
                owner: Any = storage_of(result)
            except (RuntimeError, NotImplementedError):
                owner = result
            if isinstance(getattr(owner, "virtual_device", None), _Parts):
                result.virtual_place = device  # type: ignore[attr-defined]
            else:
                owner.virtual_device = None if device is CPU else device
        elif isinstance(result, (list, tuple)):
            for value in result:
                self.mark(value, device)

    def call_compiled(self, function: Callable[..., Any], args: Arguments, kwargs: Mapping[str, Any]) -> Any:
        """Call a compiled function without this mode, which torch.compile would compile too. What it reads between two
        graphs counts, as its tensors would lie on the device; so would its results."""
        if private_api.active_modes()[-1:] != [self]:
            return function(*args, **kwargs)
        self._compiled.depth += 1
        try:
            with private_api.without_innermost_mode():
                result = function(*args, **kwargs)
        finally:
            self._compiled.depth -= 1
        self.mark(result, self._marker)
        return result

    def read(self) -> None:
        """Count a read that torch's dispatcher executes within a compiled function."""
        if self._compiled.depth:
            self.wait("item")

    def copied(self, name: str, source: Tensor, ends: tuple[Any, Any], *, pinned: bool, non_blocking: bool) -> None:
        """Count no copies: on the CPU a program makes none, and what it would copy is not certain."""

    def _move(self, func: Any, tensor: Tensor, result: Tensor) -> None:
        """Count a copy to the host; mark what is moved to the program's device."""
        to_device = func is not _cpu and not self._names_host()
        if not to_device:
            if self.device(tensor) is None:
                return
            self.wait("cpu" if func is _cpu else "to")
        if result is tensor:  # other tensors in its memory stay where they are
            with suppress(RuntimeError, NotImplementedError):  # a sparse layout
                memory: Any = storage_of(tensor)
                rest = getattr(memory, "virtual_device", None)
                memory.virtual_device = rest if isinstance(rest, _Parts) else _Parts(rest)
        self.mark(result, self._marker if to_device else CPU)

    def _names_host(self) -> bool:
        """Whether the program's line that calls this function names the CPU itself, or a library's line in between."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ and frame.f_back is not None:
            frame = frame.f_back
        outer: FrameType | None = frame
        while outer is not None:
            if self._line_names_host(outer):
                return True
            if is_user_file(outer.f_code.co_filename):
                return False
            outer = outer.f_back
        return False

    def _line_names_host(self, frame: FrameType) -> bool:
        code = frame.f_code
        key = id(code) + frame.f_lasti
        known = self._host_lines.get(key)
        if known is None:
            if len(self._host_lines) >= _MAX_LINES:
                self._host_lines.clear()
            text = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals)
            known = self._host_lines[key] = code, bool(_HOST.search(text))
        return known[1]


def _names_device(args: Arguments, options: Mapping[str, Any]) -> bool:
    """Whether a call of `to` names a device, or a tensor on one, and not only a dtype."""
    target = args[1] if len(args) > 1 else options.get("device", options.get("other"))
    return isinstance(target, (str, torch.device))
