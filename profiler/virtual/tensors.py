"""Tensors on virtual devices: tensors of the CPU whose storage is marked with a device that the program sees.

A torch function mode gets every call of torch's Python API. It answers questions about devices from the marks, moves
tensors by copying them within the CPU's memory, and marks what a function returns. Everything below the Python API,
such as autograd, works with tensors of the CPU, so that results equal those of the CPU. Operations that make the host
wait for a GPU, and copies between memories, are reported as events.

What waits is stated by torch's source: `aten/src/ATen/native/cuda/Copy.cpp` (copies), the calls of `.item()` and
`nonzero` in `aten/src/ATen/native`, and `torch/csrc/autograd/python_variable_indexing.cpp` (indexing). Where torch
takes a number, such as a size, a bound of a slice or `alpha`, it reads a tensor: its dispatcher tells of that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.virtual import precision, private_api
from profiler.virtual.cards import Card
from profiler.virtual.counts import DeviceEvent, EventKind, EventSink

CPU: Final = torch.device("cpu")
_storage: Final = Tensor.untyped_storage
BLOCK: Final = 512
"""Bytes: the unit of CUDA's caching allocator (kMinBlockSize in c10/cuda/CUDACachingAllocator.h)."""

Arguments = tuple[Any, ...]
Options = dict[str, Any]
Handler = Callable[["VirtualMode", Any, Arguments, Options], Any]


# ---------------------------------------------------------------- devices


class Allocation:
    """The memory of one storage on a virtual device; it is freed when the storage is."""

    __slots__ = ("memory", "size")

    def __init__(self, memory: DeviceMemory, size: int) -> None:
        self.memory, self.size = memory, -(-size // BLOCK) * BLOCK
        memory.allocated += self.size
        memory.allocations += 1
        memory.peak = max(memory.peak, memory.allocated)

    def __del__(self) -> None:
        self.memory.allocated -= self.size


class DeviceMemory:
    """Bytes of storages on a virtual device. Storages that only C++ code sees are not among them."""

    __slots__ = ("allocated", "allocations", "peak")

    def __init__(self) -> None:
        self.allocated = self.peak = self.allocations = 0


class Machine:
    """The virtual devices of a process."""

    def __init__(self, count: int, card: Card, sink: EventSink) -> None:
        self.card, self.sink = card, sink
        self.devices = tuple(torch.device("cuda", index) for index in range(count))
        self.memory = tuple(DeviceMemory() for _ in self.devices)
        self._local = threading.local()

    @property
    def current(self) -> int:
        """Index of the current device of this thread."""
        return getattr(self._local, "current", 0)

    @current.setter
    def current(self, index: int) -> None:
        self._local.current = self.device(index).index

    def share_current_device(self, other: Machine) -> None:
        """Have the same current device as another machine in each thread."""
        self._local = other._local

    def device(self, value: Any = None) -> torch.device:
        """The device that a program names: by an index, a text, or none for the current one."""
        if value is None:
            return self.devices[self.current]
        if not isinstance(value, int):
            named = torch.device(value)
            value = self.current if named.index is None else named.index
        if not 0 <= value < len(self.devices):
            raise RuntimeError(f"CUDA error: invalid device ordinal {value}: {len(self.devices)} virtual devices")
        chosen: torch.device = self.devices[value]
        return chosen


# ---------------------------------------------------------------- marks of storages


def device_of(tensor: Any) -> torch.device | None:
    """The virtual device of a tensor; None for one on the CPU."""
    try:
        device = getattr(_storage(tensor), "virtual_device", None)
    except (RuntimeError, NotImplementedError):  # a sparse layout, or a wrapper of torch.func
        device = getattr(tensor, "virtual_device", None)
    if device is None and type(tensor) is not Parameter and (inner := private_api.unwrapped(tensor)) is not tensor:
        return device_of(inner)
    return device


_page_locked: Final[dict[int, int]] = {}
"""Begin and end of each piece of memory of the CPU that is page-locked. Arrays of NumPy may lie in it too."""


class _PageLocked:
    """The page-locked memory of one storage; it ends with the storage."""

    __slots__ = ("all", "begin")

    def __init__(self, begin: int, size: int) -> None:
        self.all, self.begin = _page_locked, begin  # at the end of the process the name is gone before the storage
        _page_locked[begin] = begin + size

    def __del__(self) -> None:
        self.all.pop(self.begin, None)


def _is_pinned(tensor: Tensor) -> bool:
    try:
        begin = _storage(tensor).data_ptr()
    except (RuntimeError, NotImplementedError):
        return False
    return begin in _page_locked or any(first <= begin < end for first, end in list(_page_locked.items()))


def _pin(tensor: Tensor) -> None:
    storage: Any = _storage(tensor)
    storage.virtual_pinned = _PageLocked(storage.data_ptr(), storage.nbytes())


def _is_on_host(tensor: Tensor) -> bool:
    try:
        return getattr(_storage(tensor), "virtual_host", False)
    except (RuntimeError, NotImplementedError):
        return False


def _keep_on_host(result: Any) -> None:
    """Remember that tensors are on the CPU, where unmarked ones are on a device: within a backward pass."""
    for tensor in tensors_in((result,)):
        with suppress(RuntimeError, NotImplementedError):  # a sparse layout
            _storage(tensor).virtual_host = True  # type: ignore[attr-defined]


def named_cuda(device: Any) -> bool:
    """Whether a value that a function got as its device names a CUDA device."""
    if type(device) is str:
        return device.startswith("cuda")
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values and in lists and tuples of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


# ---------------------------------------------------------------- the mode


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
                return _make(self, func, args, options)
            device = self.device_among(args) or self.device_among(options.values())
            result = self.call(func, args, options)
        if device is not None:
            self.mark(result, device)
        elif self.thread.backward_device is not None:
            _keep_on_host(result)
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
        """Whether a value on a device is among these, in a sequence or a slice of them, that torch may take a number
        from."""
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
        """The virtual device of the first tensor that has one."""
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
        """The virtual device of a tensor, also of gradients in a backward pass."""
        device = device_of(tensor)
        if device is None and self.thread.backward_device is not None and not _is_on_host(tensor):
            return self.thread.backward_device
        return device

    def mark(self, result: Any, device: torch.device) -> None:
        """Mark the tensors in a result as lying on a virtual device."""
        if isinstance(result, Tensor):
            try:
                storage: Any = _storage(result)
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
        waits = sum(map(_is_mask, args[1])) if name == "mask index" else 1
        for _ in range(waits):
            self._mode.wait(f"backward of {name}")


_READ: Final = torch.ops.aten._local_scalar_dense.default
_WATCHED: Final = {
    getattr(packet, overload): name
    for names, name in (
        (("_local_scalar_dense",), "item"),
        (("nonzero",), "nonzero"),
        (("masked_select",), "masked_select"),
        (("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"), "mask index"),
    )
    for packet in (getattr(torch.ops.aten, each) for each in names)
    for overload in packet.overloads()
}
"""Operators that may make the host wait in torch's own code -> the name of the wait."""


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors of which a sparse tensor consists."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


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


def _names(*names: str) -> list[Any]:
    """The functions of these names in torch, and the methods of Tensor."""
    return [getattr(owner, name, None) for owner in (torch, Tensor) for name in names]


def _attributes(*names: str) -> list[Any]:
    return [getattr(Tensor, name).__get__ for name in names if hasattr(Tensor, name)]


@handles(
    *_attributes(
        "shape", "dtype", "ndim", "requires_grad", "is_leaf", "grad_fn", "layout", "is_sparse", "is_quantized",
        "is_meta", "is_nested", "is_mkldnn", "_version", "is_mps", "is_xpu", "is_xla", "output_nr", "itemsize",
        "nbytes",
    ),
    *_names("size", "dim", "stride", "numel", "is_contiguous", "is_floating_point", "is_complex", "storage_offset",
            "requires_grad_", "element_size", "data_ptr", "retain_grad", "untyped_storage", "backward", "__len__",
            "__hash__"),
    reads=True,
)  # fmt: skip
def same(_: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """What a tensor on the CPU answers too, and calls that return no new tensor."""
    return func(*args, **options)


@handles(*_attributes("device"))
def _device(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    return mode.device(args[0]) or func(*args)


@handles(*_attributes("is_cuda"))
def _is_cuda(mode: VirtualMode, _: Any, args: Arguments, __: Options) -> bool:
    return mode.device(args[0]) is not None


@handles(*_attributes("is_cpu"))
def _is_cpu(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    return mode.device(args[0]) is None and func(*args)


@handles(Tensor.get_device, torch.get_device)
def _get_device(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    device = mode.device(args[0])
    return func(*args) if device is None else device.index


@handles(*_attributes("grad"), reads=True)
def _grad(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    gradient = func(*args)
    if gradient is not None and not isinstance(device_of(gradient), torch.device):
        device = mode.device(args[0])
        if device is not None:
            mode.mark(gradient, device)
    return gradient


@handles(torch.device)
def _numbered_device(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """A device that is named by its number only is one of CUDA."""
    if len(args) == 1 and isinstance(args[0], int) and not options:
        return mode.machine.device(args[0])
    return func(*args, **options)


@handles(torch._C._nn._parse_to)
def _parse_to(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """The arguments of a module's `to`."""
    if args and isinstance(args[0], int):
        args = (mode.machine.device(args[0]), *args[1:])
    return func(*args, **options)


@handles(torch._VF._pack_padded_sequence)
def _pack(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """The sizes of batches stay on the CPU, and so must the lengths that they come from."""
    lengths = args[1]
    if mode.device(lengths) is not None:
        raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor")
    return _first_marked(mode, func, args, options)


@handles(torch._VF._pad_packed_sequence)
def _first_marked(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Functions whose first result only is on the device of the first argument."""
    device = mode.device(args[0])
    result = func(*args, **options)
    if device is not None:
        mode.mark(result[0], device)
    return result


@handles(*precision.IN_FLOAT32)
def _in_float32(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    device = mode.device_among((*args, *options.values()))
    cast = device is not None and options.get("dtype") is None and precision.is_casting()
    result = func(*map(precision.to_float32, args), **options) if cast else func(*args, **options)
    if device is not None:
        mode.mark(result, device)
    return result


@handles(*precision.RECURRENT)
def _recurrent(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    return _plain(mode, precision.run_recurrent, (func, *args), {})


@handles(Tensor.register_hook)
def _register_hook(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    tensor, hook = args[0], args[1] if len(args) > 1 else options["hook"]
    device = mode.device(tensor)
    if device is None:
        return func(tensor, hook)

    def call(gradient: Tensor) -> Any:
        mode.mark(gradient, device)
        return hook(gradient)

    return func(tensor, call)


# ---------------------------------------------------------------- copies


@handles(Tensor.to)
def move(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """`Tensor.to`."""
    tensor, *values = args
    copy = options.pop("copy", False)
    if values and isinstance(values[0], Tensor):
        other = values.pop(0)
        if len(values) > 1:
            copy = values.pop()
        non_blocking = values.pop() if values else options.pop("non_blocking", False)
        target, dtype, memory_format = mode.device(other) or other.device, other.dtype, options.get("memory_format")
    else:
        if len(values) > 1 and isinstance(values[-1], bool) and isinstance(values[-2], bool):
            copy = values.pop()
        if values and named_cuda(values[0]):
            values[0] = mode.machine.device(values[0])
        elif named_cuda(options.get("device")):
            options["device"] = mode.machine.device(options["device"])
        target, dtype, non_blocking, memory_format = private_api.parse_to(*values, **options)
    source = mode.device(tensor)
    destination = source if target is None else mode.machine.device(target) if target.type == "cuda" else None
    if target is not None and target.type not in ("cpu", "cuda"):  # such as meta
        return func(tensor, target, *([dtype] if dtype else []), copy=copy)
    moved = destination != source
    changes: Options = {} if dtype is None else {"dtype": dtype}
    if memory_format is not None:
        changes["memory_format"] = memory_format
    result = func(tensor, copy=copy or moved, **changes)
    if moved:
        if source is not None and non_blocking:  # torch copies to page-locked memory then
            _pin(result)
        pinned = _is_pinned(tensor if source is None else result)
        mode.copied("to", tensor, (source, destination), pinned=pinned, non_blocking=non_blocking)
    if destination is not None:
        mode.mark(result, destination)
    elif moved:
        _keep_on_host(result)
    return result


@handles(Tensor.cuda)
def _cuda(mode: VirtualMode, _: Any, args: Arguments, options: Options) -> Any:
    tensor, *values = args
    target = values[0] if values else options.get("device")
    non_blocking = values[1] if len(values) > 1 else options.get("non_blocking", False)
    return move(mode, Tensor.to, (tensor, mode.machine.device(target)), {"non_blocking": non_blocking})


@handles(Tensor.cpu)
def _cpu(mode: VirtualMode, _: Any, args: Arguments, __: Options) -> Any:
    return move(mode, Tensor.to, (args[0], CPU), {})


@handles(Tensor.copy_)
def _copy(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    non_blocking = args[2] if len(args) > 2 else options.get("non_blocking", False)
    _copied_into(mode, "copy_", args[0], args[1] if len(args) > 1 else options["src"], non_blocking=non_blocking)
    return func(*args, **options)


@handles(torch._foreach_copy_)
def _copy_each(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Lists of two memories are copied tensor by tensor."""
    targets, sources = args[0], args[1] if len(args) > 1 else options["src"]
    non_blocking = args[2] if len(args) > 2 else options.get("non_blocking", False)
    for target, source in zip(targets, sources, strict=False):  # torch refuses other lengths
        _copied_into(mode, "copy_", target, source, non_blocking=non_blocking)
    return func(*args, **options)


def _copied_into(mode: VirtualMode, name: str, target: Tensor, source: Tensor, *, non_blocking: bool = False) -> None:
    """Count the copy of a tensor into one of another memory."""
    ends = mode.device(source), mode.device(target)
    if ends[0] != ends[1]:
        pinned = _is_pinned(source if ends[0] is None else target)
        mode.copied(name, source, ends, pinned=pinned, non_blocking=non_blocking)


@handles(*_names("fill", "fill_", "masked_fill", "masked_fill_", "index_fill", "index_fill_"), reads=True)
def _fill(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """The host reads the value, but for `fill_` of a tensor that is on the same device."""
    target: Tensor = args[0] if args else options["input"]
    value, device = options["value"] if "value" in options else args[-1], mode.device(target)
    source = mode.device(value) if isinstance(value, Tensor) and value is not target else None
    if source is not None and (source != device or "_fill" in func.__name__):
        mode.wait(func.__name__)
    result = func(*args, **options)
    if device is not None:
        mode.mark(result, device)
    return result


@handles(*_names("index_put", "index_put_"))
def _index_put(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """What assignment to indices does. Where it adds, torch checks the lowest and the highest index of each tensor
    (`wrapIndexOnce` in aten/src/ATen/native/cuda/Indexing.cu)."""
    named = (options[name] for name in ("input", "indices", "values") if name in options)
    tensor, indices, value = (*args, *named)[:3]
    adds, device = args[3] if len(args) > 3 else options.get("accumulate", False), mode.device(tensor)
    _assign(mode, func.__name__, tensor, tuple(indices), value, adds=adds)
    result = func(*args, **options)
    if device is not None:
        mode.mark(result, device)
    return result


@handles(torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor, torch.sparse_coo_tensor)
def _from_data(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Functions that make a tensor of data of the host, or of another tensor."""
    data = args[0] if func is not Tensor.new_tensor else args[1] if len(args) > 1 else options.get("data")
    source = mode.device(data) if isinstance(data, Tensor) else None
    target, pin = options.pop("device", None), options.pop("pin_memory", False)
    if target is None and func is torch.tensor:
        target = mode.default_device
    if target is None:
        default = mode.device(args[0]) if func is Tensor.new_tensor else source
        destination = default
    else:
        destination = mode.machine.device(target) if named_cuda(target) else None
    on_cpu = target is None or destination is not None
    if source is None and isinstance(data, (list, tuple)):
        for tensor in tensors_in(data):  # each one is read
            if mode.device(tensor) is not None:
                mode.wait(func.__name__)
    result = func(*args, **options, **({} if on_cpu else {"device": target}))
    if source != destination:
        if func is not torch.tensor:  # others may share the memory of their data
            result = result.clone()
        pinned = isinstance(data, Tensor) and _is_pinned(data)
        mode.copied(func.__name__, result, (source, destination), pinned=pinned, non_blocking=False)
    if destination is not None:
        mode.mark(result, destination)
    elif pin:
        _pin(result)
    return result


@handles(Tensor.pin_memory)
def _pin_memory(mode: VirtualMode, _: Any, args: Arguments, __: Options) -> Any:
    if mode.device(args[0]) is not None:
        raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")
    if _is_pinned(args[0]):
        return args[0]
    result = args[0].clone()
    _pin(result)
    return result


@handles(Tensor.is_pinned)
def _pinned(_: VirtualMode, __: Any, args: Arguments, ___: Options) -> bool:
    return _is_pinned(args[0])


def _make(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
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
        _keep_on_host(result)
        if pin:
            _pin(result)
    return result


# ---------------------------------------------------------------- waits


_CHECKED: Final = (
    "inv", "cholesky", "eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals", "lu_factor", "ldl_factor", "pinv",
    "matrix_rank", "cond", "solve", "lstsq", "tensorinv",
)  # fmt: skip
"""Functions of torch.linalg that read whether they failed: those that call `_linalg_check_errors` in
aten/src/ATen/native/BatchLinearAlgebra.cpp."""


def _waiting(name: str) -> Handler:
    def handler(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
        device = mode.device_among((*args, *options.values()))
        if device is not None:
            mode.wait(name)
        result = func(*args, **options)
        if device is not None:
            mode.mark(result, device)
        return result

    return handler


for _name, _functions in {
    "item": _names("item"),
    "tolist": _names("tolist"),
    "bool": [Tensor.__bool__, *_names("is_nonzero")],
    "int": [Tensor.__int__, Tensor.__index__],
    "float": [Tensor.__float__],
    "complex": [Tensor.__complex__],
    "nonzero": _names("nonzero", "argwhere"),
    "masked_select": _names("masked_select"),
    "unique": _names("unique", "unique_consecutive"),
    "equal": _names("equal"),
    "allclose": _names("allclose"),
    "contains": [Tensor.__contains__],
    "istft": _names("istft"),
    "bincount": _names("bincount"),
    "linalg": [getattr(torch.linalg, name, None) for name in _CHECKED],
    "inverse": _names("inverse", "cholesky", "svd", "pca_lowrank"),
}.items():
    handles(*_functions, reads=True)(_waiting(_name))


@handles(*_names("where"), reads=True)
def _where(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """With one argument it returns indices, whose number the host must know."""
    if len(args) + len(options) == 1 and mode.device_among((*args, *options.values())) is not None:
        mode.wait("nonzero")
    return _plain(mode, func, args, options)


@handles(*_names("repeat_interleave"), reads=True)
def _repeat(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """It reads how long the result is, and whether a number is negative (aten/src/ATen/native/Repeat.h), unless the
    repeats are a number or the length is given."""
    repeats = options.get("repeats", args[1] if len(args) > 1 else args[0] if args else None)
    if isinstance(repeats, Tensor) and options.get("output_size") is None and mode.device(repeats) is not None:
        for _ in range(2 if repeats.numel() else 0):
            mode.wait("repeat_interleave")
    return _plain(mode, func, args, options)


@handles(torch.normal)
def _normal(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """It checks that no deviation is negative, if they are a tensor."""
    deviation = options.get("std", args[1] if len(args) > 1 else None)
    if isinstance(deviation, Tensor) and mode.device(deviation) is not None:
        mode.wait("normal")
    return _made(mode, func, args, options)


@handles(torch.linspace, torch.logspace)
def _numbers(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Their numbers are read, where these are tensors on a device."""
    for value in (*args, *options.values()):
        if isinstance(value, Tensor) and mode.device(value) is not None:
            mode.wait(func.__name__)
    return _made(mode, func, args, options)


@handles(*_names("to_sparse", "histc"))
def _sometimes_waiting(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    tensor, name = args[0], func.__name__
    if mode.device(tensor) is not None:
        if name == "histc":  # the lowest and the highest value are the bounds that the program leaves out
            bounds = (*args[2:4], options.get("min"), options.get("max"))
            waits = 0 if any(bounds) else 2
        else:
            waits = int(tensor.layout is torch.strided)
        for _ in range(waits):
            mode.wait(name)
    return _plain(mode, func, args, options)


@handles(torch.nn.functional.one_hot, reads=True)
def _one_hot(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    classes = args[1] if len(args) > 1 else options.get("num_classes", -1)
    if classes == -1 and mode.device(args[0]) is not None:
        mode.wait("one_hot")
    return _plain(mode, func, args, options)


@handles(torch.full, torch.arange)
def _made(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Functions that make tensors on a device that the program names, on the default one or on the CPU."""
    if mode.default_device is not None and options.get("device") is None and func is not torch.normal:
        options["device"] = mode.default_device  # torch.normal ignores it
    if "device" in options or "pin_memory" in options:
        return _make(mode, func, args, options)
    if func is torch.normal:
        return _plain(mode, func, args, options)
    return mode.call(func, args, options)


def _plain(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    device = mode.device_among((*args, *options.values()))
    result = mode.call(func, args, options)
    if device is not None:
        mode.mark(result, device)
    return result


@handles(Tensor.__getitem__, reads=True)
def _get_item(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    device = mode.device(args[0])
    if device is not None:
        _index(mode, args[0], args[1])
    result = _call_with_index(mode, func, args)
    if device is not None:
        mode.mark(result, device)
    return result


@handles(Tensor.__setitem__, reads=True)
def _set_item(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    _assign(mode, "__setitem__", *args)
    return _call_with_index(mode, func, args)


def _assign(mode: VirtualMode, name: str, tensor: Tensor, index: Any, value: Any, *, adds: bool = False) -> None:
    """Count what assigning a value to elements of a tensor needs."""
    device = mode.device(tensor)
    source = mode.device(value) if isinstance(value, Tensor) else None
    if device is not None:
        # with one mask and a number, torch fills without learning where the mask is true
        parts = _index_parts(index)
        fills = len(parts) == 1 and _is_mask(parts[0]) and source is None and not adds
        if not (fills and (not isinstance(value, Tensor) or value.numel() == 1)):
            _index(mode, tensor, index)
        for part in parts if adds else ():
            if isinstance(part, Tensor) and part.numel():
                for _ in range(2 * (part.dim() if _is_mask(part) else 1)):
                    mode.wait(name)
    if isinstance(value, Tensor) and (device is None or value.dim()):
        _copied_into(mode, name, tensor, value)


def _call_with_index(mode: VirtualMode, func: Any, args: Arguments) -> Any:
    """Call a function whose second argument is an index, in which torch reads numbers on a device."""
    parts = _index_parts(args[1])
    if not mode.has_number(parts):
        return func(*args)
    bounds = [bound for part in parts if isinstance(part, slice) for bound in (part.start, part.stop, part.step)]
    return mode.call(func, args, name="slice" if mode.has_number(bounds) else "index")


def _index_parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _index(mode: VirtualMode, tensor: Tensor, index: Any) -> None:
    """Count what indexing a tensor on a device needs beside numbers: the positions of a mask, indices from the host."""
    for value in _index_parts(index):
        if isinstance(value, Tensor) and mode.device(value) is not None:
            if _is_mask(value):
                mode.wait("mask index")
        elif isinstance(value, Tensor) and value.dim():
            ends = None, mode.device(tensor)
            mode.copied("index", value, ends, pinned=_is_pinned(value), non_blocking=False)
        elif isinstance(value, (list, tuple, range)) and len(value):
            data = torch.as_tensor(value)
            mode.copied("index", data, (None, mode.device(tensor)), pinned=False, non_blocking=False)


def _is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.bool, torch.uint8)


@handles(Tensor.numpy, Tensor.__array__)
def _numpy(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    device = mode.device(args[0])
    if device is not None and options.get("force"):
        mode.copied("numpy", args[0], (device, None), pinned=False, non_blocking=False)
    elif device is not None:
        raise TypeError(
            f"can't convert {device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory"
            " first."
        )
    return func(*args, **options)


@handles(Tensor.__repr__, Tensor.__str__, reads=True)
def _print(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    if mode.device(args[0]) is None:
        return func(*args, **options)
    mode.wait("print")
    with mode.not_counting(), mode:
        return private_api.tensor_text(args[0], options.get("tensor_contents"))


@handles(Tensor.__format__, reads=True)
def _format(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    if mode.device(args[0]) is not None:
        mode.wait("print")
    return func(*args, **options)
