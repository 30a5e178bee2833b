"""Counts what a program makes torch do by its lines, in all threads of a process: operators, memory, files and reads.

Two runs of a program that does the same have equal counts. Times of a program that is counted tell nothing. Steps of
torch's own optimizers run without the mode that counts reads, which makes counted steps 8% shorter (1.96 instead of
2.13 times the time of a plain step, docs/log.md): no code of the program runs there, and no value that would lie on a
device is read. The optimizer's state is marked after the step.

A read of a value on the CPU counts only if its tensor would lie on the device: if it descends from a parameter, or from
what the program moves to its device or makes there. What waits is the same as for virtual CUDA devices.

Python's `open` and `os.open` are replaced, and torch's writer of files, which opens them in C++. Files that other
native code opens by itself are not counted. An audit hook of Python would cost more: it is called for each frame that
counting operators reads.
"""

from __future__ import annotations

import builtins
import io
import linecache
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from operator import index
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter

from profiler.agent.patching import STATE, Patch, caller, is_user_file
from profiler.exact import private_api, waiting  # noqa: F401 - it has handlers
from profiler.exact.marks import CPU, Machine, device_of, storage_of, tensors_in
from profiler.exact.mode import READS, Arguments, VirtualMode, same, starting
from profiler.exact.model import CARDS, EventSink
from profiler.exact.operators import Operator, OperatorCounter, OperatorKind, OperatorMode

# ---------------------------------------------------------------- reads on the CPU


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
        """Tell whether the result of a function with these arguments would."""
        if self.device_among(args):
            return True
        if not options:
            return False
        if self.device_among(options.values()):
            return True
        return options.get("device") is not None and not self._names_host()

    def device(self, tensor: Tensor) -> torch.device | None:
        """Return the marker, of a tensor that would lie on the device."""
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
        """Tell whether the program's line that calls this function names the CPU itself, or a library's line in
        between."""
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
    """Tell whether a call of `to` names a device, or a tensor on one, and not only a dtype."""
    target = args[1] if len(args) > 1 else options.get("device", options.get("other"))
    return isinstance(target, (str, torch.device))


# ---------------------------------------------------------------- files


_WRITES: Final = os.O_WRONLY | os.O_RDWR
_NO_FILES: Final = ("/dev/", "/proc/", "/sys/")
_COMPILERS: Final = ("torch._inductor.", "torch._vendor.quack.", "triton.", "numba.")
"""Packages that write compiled code where there is none of an earlier run. Their source files may lie in any folder:
`numba.cuda` lies in that of the distribution numba-cuda."""


class FileCounter:
    """Counts the files that a process opens for writing, from `install` on."""

    def __init__(self, counter: OperatorCounter) -> None:
        self._counter = counter
        self._number = counter.number(Operator("", OperatorKind.FILE, allocates=False, amount=None))
        self._thread = _OpeningThread()
        self._is_installed = False
        """A program may keep the functions, and call them afterwards."""

    def install(self, stack: ExitStack) -> None:
        """Replace the functions, until the stack is closed."""
        writers, name = private_api.file_writer()
        writer: Any = getattr(writers, name)
        opened = self.opened

        class FileWriter(writer):  # type: ignore[misc]
            def __init__(self, file: Any, *args: Any, **kwargs: Any) -> None:
                super().__init__(file, *args, **kwargs)
                frame = caller(1)
                if isinstance(file, io.FileIO):
                    if frame is not None and frame.f_code.co_qualname == private_api.OPENS_FOR_WRITER:
                        opened(file.name, frame)
                else:  # the program has opened other objects, or keeps them in memory
                    opened(file, frame)

        in_python, in_system = _Open(io.open, _writes, self), _Open(os.open, _writes_low, self)
        for functions in vars(os).values():
            if isinstance(functions, set) and os.open in functions:  # such as os.supports_dir_fd
                functions.add(in_system)
                stack.callback(functions.discard, in_system)
        replacements: list[tuple[Any, str, Any]] = [(writers, name, FileWriter), (os, "open", in_system)]
        if builtins.open is io.open:  # else the program has replaced it
            replacements.append((builtins, "open", in_python))
        replacements.append((io, "open", in_python))
        for module, attribute, replacement in replacements:
            patch = Patch(module, attribute, False, getattr(module, attribute), replacement)
            setattr(module, attribute, replacement)
            stack.callback(patch.undo)
        self._is_installed = True
        stack.callback(setattr, self, "_is_installed", False)

    def opened(self, file: object, frame: FrameType | None) -> None:
        """Count a file at the line of the program at or above a frame; None: nothing of Python opened it.

        An object that is no name, such as a number of an open file, does not count.
        """
        if not self._is_installed or not isinstance(file, (str, bytes, os.PathLike)):
            return
        path = os.fsdecode(file)
        recorder = STATE.recorder
        if path.startswith(_NO_FILES) or (recorder and path.startswith(f"{recorder.directory.parent}{os.sep}")):
            return
        while frame is not None and not self._counter.is_user_file(frame.f_code.co_filename):
            if f"{frame.f_globals.get('__name__')}.".startswith(_COMPILERS):
                return
            frame = frame.f_back
        site = -1 if frame is None else self._counter.site_number(frame)
        self._counter.add_call(self._number, site)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that opens a file for writing, for the caller of the caller. It may call others: `open`
        calls what the program gives as its opener."""
        if self._thread.is_inside:
            return function(*args, **kwargs)
        self._thread.is_inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._thread.is_inside = False
        self.opened(args[0] if args else kwargs.get("file", kwargs.get("path")), caller(2))
        return result


class _OpeningThread(threading.local):
    is_inside = False


class _Open:
    """Stands for a function that opens files. It is no function of Python, as these become methods of classes that have
    them as attributes."""

    def __init__(
        self,
        original: Callable[..., Any],
        is_writing: Callable[[tuple[Any, ...], dict[str, Any]], bool],
        counter: FileCounter,
    ) -> None:
        self._original, self._is_writing, self._counter = original, is_writing, counter
        self.__name__ = self.__qualname__ = original.__name__
        self.__doc__, self.__wrapped__ = original.__doc__, original
        self.__module__ = "io" if original is io.open else "os"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_writing(args, kwargs):
            return self._counter.call(self._original, args, kwargs)
        return self._original(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__name__  # pickled by its name, as a function is


def _writes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether `open` opens a file for writing. It refuses itself what is no mode."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode")
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _writes_low(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return the same for `os.open`."""
    flags: Any = args[1] if len(args) > 1 else kwargs.get("flags")
    return hasattr(flags, "__index__") and bool(index(flags) & _WRITES)


# ---------------------------------------------------------------- all of it


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
        """Return the modes of one thread, entered."""
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
    """Tell whether a step takes the usual way, and neither the optimizer nor a parameter is of a class of the
    program."""
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
