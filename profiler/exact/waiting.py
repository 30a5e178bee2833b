"""Handles functions of torch in which the host waits for values of a tensor on a device (`waits` is the table).

What waits is stated by torch's source: `aten/src/ATen/native/cuda/Copy.cpp` (copies), the calls of `.item()` and
`nonzero` in `aten/src/ATen/native`, and `torch/csrc/autograd/python_variable_indexing.cpp` (indexing). Where torch
takes a number, such as a size, a bound of a slice or `alpha`, it reads a tensor: its dispatcher tells of that.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from profiler.exact import private_api, waits
from profiler.exact.marks import is_mask, is_pinned
from profiler.exact.mode import Arguments, Handler, Options, VirtualMode, functions, handles, plain
from profiler.exact.moves import copied_into, made


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


_APART: Final = ("numpy", "print")
"""Reads with a handler of their own."""

for _name, _functions in {**waits.READS, **waits.FURTHER}.items():
    if _name not in _APART:
        handles(*functions(*_functions), reads=True)(_waiting(_name))
handles(*(getattr(torch.linalg, each, None) for each in waits.CHECKED), reads=True)(_waiting("linalg"))


@handles(*functions("where"), reads=True)
def _where(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """With one argument it returns indices, whose number the host must know."""
    if len(args) + len(options) == 1 and mode.device_among((*args, *options.values())) is not None:
        mode.wait("nonzero")
    return plain(mode, func, args, options)


@handles(*functions("repeat_interleave"), reads=True)
def _repeat(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """It reads how long the result is, and whether a number is negative (aten/src/ATen/native/Repeat.h), unless the
    repeats are a number or the length is given."""
    repeats = options.get("repeats", args[1] if len(args) > 1 else args[0] if args else None)
    if isinstance(repeats, Tensor) and options.get("output_size") is None and mode.device(repeats) is not None:
        for _ in range(2 if repeats.numel() else 0):
            mode.wait("repeat_interleave")
    return plain(mode, func, args, options)


@handles(torch.normal)
def _normal(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """It checks that no deviation is negative, if they are a tensor."""
    deviation = options.get("std", args[1] if len(args) > 1 else None)
    if isinstance(deviation, Tensor) and mode.device(deviation) is not None:
        mode.wait("normal")
    return made(mode, func, args, options)


@handles(torch.linspace, torch.logspace)
def _numbers(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Their numbers are read, where these are tensors on a device."""
    for value in (*args, *options.values()):
        if isinstance(value, Tensor) and mode.device(value) is not None:
            mode.wait(func.__name__)
    return made(mode, func, args, options)


@handles(*functions("to_sparse", "histc"))
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
    return plain(mode, func, args, options)


@handles(torch.nn.functional.one_hot, reads=True)
def _one_hot(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    classes = args[1] if len(args) > 1 else options.get("num_classes", -1)
    if classes == -1 and mode.device(args[0]) is not None:
        mode.wait("one_hot")
    return plain(mode, func, args, options)


@handles(*functions("fill", "fill_", "masked_fill", "masked_fill_", "index_fill", "index_fill_"), reads=True)
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


@handles(*functions("index_put", "index_put_"))
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
        fills = len(parts) == 1 and is_mask(parts[0]) and source is None and not adds
        if not (fills and (not isinstance(value, Tensor) or value.numel() == 1)):
            _index(mode, tensor, index)
        for part in parts if adds else ():
            if isinstance(part, Tensor) and part.numel():
                for _ in range(2 * (part.dim() if is_mask(part) else 1)):
                    mode.wait(name)
    if isinstance(value, Tensor) and (device is None or value.dim()):
        copied_into(mode, name, tensor, value)


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
            if is_mask(value):
                mode.wait("mask index")
        elif isinstance(value, Tensor) and value.dim():
            ends = None, mode.device(tensor)
            mode.copied("index", value, ends, pinned=is_pinned(value), non_blocking=False)
        elif isinstance(value, (list, tuple, range)) and len(value):
            data = torch.as_tensor(value)
            mode.copied("index", data, (None, mode.device(tensor)), pinned=False, non_blocking=False)


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
