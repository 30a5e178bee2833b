"""Shows a program virtual devices, by a torch function mode that gets every call of torch's Python API.

It answers questions about devices from the marks of storages, moves tensors by copying them within the CPU's memory,
and marks what a function returns. Everything below the Python API, such as autograd, works with tensors of the CPU, so
that results equal those of the CPU. Operations that make the host wait for a GPU, and copies between memories, are
reported as events. The handlers of functions are in `moves` and `waiting`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.exact import private_api, waits
from profiler.exact.marks import (
    CPU,
    Allocation,
    Machine,
    device_of,
    is_mask,
    is_on_host,
    keep_on_host,
    lock_pages,
    named_cuda,
    storage_of,
)
from profiler.exact.model import DeviceEvent, EventKind

Arguments = tuple[Any, ...]
Options = dict[str, Any]
Handler = Callable[["VirtualMode", Any, Arguments, Options], Any]


class _ThreadState(threading.local):
    """What the mode knows about the current thread."""

    backward_device: torch.device | None = None
    """While a backward pass of tensors on a virtual device runs: that device. Gradients, which C++ code makes, are not
    marked; they are on it."""
    silent: bool = False
    watch: _Watch | None = None
    """The innermost watch of operators that the dispatcher executes."""


class VirtualMode(TorchFunctionMode):
    """Makes torch's Python API work with virtual devices, in every thread that enters it."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.thread: Final = _ThreadState()
        self.default_device: torch.device | None = None
        """The virtual device on which functions make tensors where the program names none."""
        self.capturing = False
        """Whether a CUDA graph is captured. The host may not wait then."""

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func` with the CPU's tensors, and mark what it returns."""
        handler = _HANDLERS.get(func)
        if handler is same:  # without a call, as it is frequent
            return func(*args, **kwargs) if kwargs else func(*args)
        if handler is not None:
            return handler(self, func, args, dict(kwargs) if kwargs else {})
        if not kwargs and self.default_device is None:  # most calls
            device = self.device_among(args)
            result = self.call(func, args)
        else:
            options = dict(kwargs) if kwargs else {}
            if self.default_device is not None and options.get("device") is None and func in private_api.constructors():
                options["device"] = self.default_device
            if "device" in options or "pin_memory" in options:
                return make(self, func, args, options)
            device = self.device_among(args) or self.device_among(options.values())
            result = self.call(func, args, options)
        if device is not None:
            self.mark(result, device)
        elif self.thread.backward_device is not None:
            keep_on_host(result)
        return result

    def call(self, func: Any, args: Arguments, options: Mapping[str, Any] | None = None, name: str = "") -> Any:
        """Call a function, and count the values on a device that it reads as numbers.

        :param name: of these waits; else it is the function's.
        """
        if self.has_number(args) or (options and self.has_number(options.values())):
            with _Reads(self, name or func.__name__):
                return func(*args, **options) if options else func(*args)
        return func(*args, **options) if options else func(*args)

    def has_number(self, values: Iterable[Any]) -> bool:
        """Tell whether a value on a device is among these, in a sequence or a slice of them, that torch may take a
        number from."""
        for value in values:
            if isinstance(value, Tensor):
                if not value.dim() and self.device(value) is not None:
                    return True
            elif isinstance(value, (list, tuple)):
                if self.has_number(value):
                    return True
            elif isinstance(value, slice) and self.has_number((value.start, value.stop, value.step)):
                return True
        return False

    def device_among(self, values: Iterable[Any]) -> torch.device | None:
        """Return the virtual device of the first tensor that has one."""
        for value in values:
            if isinstance(value, Tensor):
                device = self.device(value)
            elif isinstance(value, (list, tuple)):
                device = self.device_among(value)
            else:
                continue
            if device is not None:
                return device
        return None

    def device(self, tensor: Tensor) -> torch.device | None:
        """Return the virtual device of a tensor, also of gradients in a backward pass."""
        device = device_of(tensor)
        if device is None and self.thread.backward_device is not None and not is_on_host(tensor):
            return self.thread.backward_device
        return device

    def mark(self, result: Any, device: torch.device) -> None:
        """Mark the tensors in a result as lying on a virtual device."""
        if isinstance(result, Tensor):
            try:
                storage: Any = storage_of(result)
                if getattr(storage, "virtual_device", None) is not device:
                    storage.virtual_device = device
                    storage.virtual_allocation = Allocation(self.machine.memory[device.index], storage.nbytes())
            except (RuntimeError, NotImplementedError):
                inner = private_api.unwrapped(result)
                if inner is not result:
                    self.mark(inner, device)
                result.virtual_device = device  # type: ignore[attr-defined]
        elif isinstance(result, (list, tuple)):
            for value in result:
                self.mark(value, device)
        elif isinstance(result, dict):
            for value in result.values():
                self.mark(value, device)

    def report(self, event: DeviceEvent) -> None:
        """Count an event of the program.

        :raises RuntimeError: the host would wait while a CUDA graph is captured.
        """
        if self.capturing and event.waits:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if not self.thread.silent:
            self.machine.sink(event, sys._getframe(1))

    def wait(self, name: str) -> None:
        """Count a wait of the host for the device."""
        self.report(DeviceEvent(EventKind.SYNC, name))

    def copied(self, name: str, source: Tensor, ends: tuple[Any, Any], *, pinned: bool, non_blocking: bool) -> None:
        """Count a copy of `source` between two memories; the ends are virtual devices, or None for the CPU."""
        if source.layout is not torch.strided:
            for part in _parts(source):
                self.copied(name, part, ends, pinned=pinned, non_blocking=non_blocking)
            return
        begin, end = ends
        size = source.numel() * source.element_size()
        if begin is not None and end is not None:
            self.report(DeviceEvent(EventKind.DEVICE_TO_DEVICE, name, size, waits=False))
        else:
            kind = EventKind.HOST_TO_DEVICE if begin is None else EventKind.DEVICE_TO_HOST
            waits = not (non_blocking and pinned)
            self.report(DeviceEvent(kind, name, size, pinned, waits))

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """Count nothing meanwhile: the calls are part of one that has been counted."""
        before, self.thread.silent = self.thread.silent, True
        try:
            yield
        finally:
            self.thread.silent = before


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gets the operators that torch's dispatcher executes, to count waits that no function of torch's Python API tells.
    Only the innermost one of a thread counts."""

    supports_higher_order_operators = True

    def __init__(self, mode: VirtualMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode = mode

    def __enter__(self) -> Any:
        thread = self._mode.thread
        self._outer, thread.watch = thread.watch, self
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: object) -> None:
        self._mode.thread.watch = self._outer
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper would cost more than the method

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _WATCHED and self._mode.thread.watch is self:
            with private_api.without_function_modes():
                self.count(func, args)
        if types or not private_api.has_function_modes():
            return func(*args, **kwargs) if kwargs else func(*args)
        with private_api.without_function_modes():  # autograd calls the operator: they have nothing to do there
            return func(*args, **kwargs) if kwargs else func(*args)

    def count(self, operator: Any, args: Arguments) -> None:
        """Count the waits of one of the operators that may need a value of a tensor."""
        raise NotImplementedError


class _Reads(_Watch):  # type: ignore[no-untyped-call]
    """Counts the values on a device that the host reads within a function of torch. It costs 5 µs a call."""

    def __init__(self, mode: VirtualMode, name: str) -> None:
        super().__init__(mode)
        self._name = name

    def count(self, operator: Any, args: Arguments) -> None:
        """Count a read."""
        if operator is _READ and self._mode.device(args[0]) is not None:
            self._mode.wait(self._name)


class BackwardWaits(_Watch):  # type: ignore[no-untyped-call]
    """Counts the waits of torch's gradient functions. Those of hooks and autograd functions in Python count as
    elsewhere, since these call torch's Python API. It costs 3 µs an operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if private_api.has_function_modes():  # autograd calls the operator
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **kwargs) if kwargs else func(*args)

    def count(self, operator: Any, args: Arguments) -> None:
        """Count a read, or the positions of masks."""
        if self._mode.device(args[0]) is None:
            return
        name = _WATCHED[operator]
        waits = sum(map(is_mask, args[1])) if name == "mask index" else 1
        for _ in range(waits):
            self._mode.wait(f"backward of {name}")


_READ: Final = torch.ops.aten._local_scalar_dense.default
_WATCHED: Final = {
    getattr(packet, overload): name
    for name, operators in waits.OPERATORS.items()
    for packet in (getattr(torch.ops.aten, each) for each in operators)
    for overload in packet.overloads()
}
"""Operators that may make the host wait in torch's own code -> the name of the wait."""


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors of which a sparse tensor consists."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def starting(enter: Callable[[], AbstractContextManager[object]]) -> Callable[[threading.Thread], None]:
    """Return a method in the place of `Thread.start`, by which threads run in what `enter` returns: a mode belongs to a
    thread."""
    start = threading.Thread.start

    def begin(self: threading.Thread) -> None:
        run = self.run

        def run_within() -> None:
            with enter():
                run()

        self.run = run_within  # type: ignore[method-assign]
        start(self)

    return begin


# ---------------------------------------------------------------- handlers

_HANDLERS: Final[dict[Any, Handler]] = {}
READS: Final[dict[Any, Handler]] = {}
"""Those of functions that may need a value of a tensor, and of functions that return no tensor."""


def handles(*functions: Any, reads: bool = False) -> Callable[[Handler], Handler]:
    """Register the handler of functions of torch.

    :param reads: whether it tells about values that the host reads, which is counted on the CPU too.
    """

    def register(handler: Handler) -> Handler:
        for handlers in (_HANDLERS, READS) if reads else (_HANDLERS,):
            handlers.update((function, handler) for function in functions if function is not None)
        return handler

    return register


def functions(*names: str) -> list[Any]:
    """Return the functions of these names in torch, and the methods of Tensor."""
    return [getattr(owner, name, None) for owner in (torch, Tensor) for name in names]


def attributes(*names: str) -> list[Any]:
    return [getattr(Tensor, name).__get__ for name in names if hasattr(Tensor, name)]


@handles(
    *attributes(
        "shape", "dtype", "ndim", "requires_grad", "is_leaf", "grad_fn", "layout", "is_sparse", "is_quantized",
        "is_meta", "is_nested", "is_mkldnn", "_version", "is_mps", "is_xpu", "is_xla", "output_nr", "itemsize",
        "nbytes",
    ),
    *functions("size", "dim", "stride", "numel", "is_contiguous", "is_floating_point", "is_complex", "storage_offset",
            "requires_grad_", "element_size", "data_ptr", "retain_grad", "untyped_storage", "backward", "__len__",
            "__hash__"),
    reads=True,
)  # fmt: skip
def same(_: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """What a tensor on the CPU answers too, and calls that return no new tensor."""
    return func(*args, **options)


def plain(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    device = mode.device_among((*args, *options.values()))
    result = mode.call(func, args, options)
    if device is not None:
        mode.mark(result, device)
    return result


def make(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Functions with a device, such as torch.zeros."""
    device, pin = options.get("device"), options.get("pin_memory", False)
    if pin:
        options["pin_memory"] = False
    source = mode.device_among(args)
    if named_cuda(device):
        target: torch.device | None = mode.machine.device(device)
        options["device"] = CPU
    else:
        target = source if device is None else None
    result = mode.call(func, args, options)
    if target is not None:
        mode.mark(result, target)
    elif isinstance(result, Tensor):
        keep_on_host(result)
        if pin:
            lock_pages(result)
    return result
