"""Handles functions of torch that tell where a tensor is, copy it, make one in another memory, or choose its dtype.

The CPU's autocasting runs the matrix products and convolutions in the lower precision. The functions that CUDA computes
in float32 are here, and recurrent networks, which CUDA computes in the lower precision and the CPU cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from profiler.exact import private_api
from profiler.exact.marks import CPU, device_of, is_pinned, keep_on_host, lock_pages, named_cuda, tensors_in
from profiler.exact.mode import Arguments, Options, VirtualMode, attributes, handles, make, plain


@handles(*attributes("device"))
def _device(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    return mode.device(args[0]) or func(*args)


@handles(*attributes("is_cuda"))
def _is_cuda(mode: VirtualMode, _: Any, args: Arguments, __: Options) -> bool:
    return mode.device(args[0]) is not None


@handles(*attributes("is_cpu"))
def _is_cpu(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    return mode.device(args[0]) is None and func(*args)


@handles(Tensor.get_device, torch.get_device)
def _get_device(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    device = mode.device(args[0])
    return func(*args) if device is None else device.index


@handles(*attributes("grad"), reads=True)
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
            lock_pages(result)
        pinned = is_pinned(tensor if source is None else result)
        mode.copied("to", tensor, (source, destination), pinned=pinned, non_blocking=non_blocking)
    if destination is not None:
        mode.mark(result, destination)
    elif moved:
        keep_on_host(result)
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
    copied_into(mode, "copy_", args[0], args[1] if len(args) > 1 else options["src"], non_blocking=non_blocking)
    return func(*args, **options)


@handles(torch._foreach_copy_)
def _copy_each(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Lists of two memories are copied tensor by tensor."""
    targets, sources = args[0], args[1] if len(args) > 1 else options["src"]
    non_blocking = args[2] if len(args) > 2 else options.get("non_blocking", False)
    for target, source in zip(targets, sources, strict=False):  # torch refuses other lengths
        copied_into(mode, "copy_", target, source, non_blocking=non_blocking)
    return func(*args, **options)


def copied_into(mode: VirtualMode, name: str, target: Tensor, source: Tensor, *, non_blocking: bool = False) -> None:
    """Count the copy of a tensor into one of another memory."""
    ends = mode.device(source), mode.device(target)
    if ends[0] != ends[1]:
        pinned = is_pinned(source if ends[0] is None else target)
        mode.copied(name, source, ends, pinned=pinned, non_blocking=non_blocking)


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
        pinned = isinstance(data, Tensor) and is_pinned(data)
        mode.copied(func.__name__, result, (source, destination), pinned=pinned, non_blocking=False)
    if destination is not None:
        mode.mark(result, destination)
    elif pin:
        lock_pages(result)
    return result


@handles(Tensor.pin_memory)
def _pin_memory(mode: VirtualMode, _: Any, args: Arguments, __: Options) -> Any:
    if mode.device(args[0]) is not None:
        raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")
    if is_pinned(args[0]):
        return args[0]
    result = args[0].clone()
    lock_pages(result)
    return result


@handles(Tensor.is_pinned)
def _pinned(_: VirtualMode, __: Any, args: Arguments, ___: Options) -> bool:
    return is_pinned(args[0])


@handles(torch.full, torch.arange)
def made(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    """Functions that make tensors on a device that the program names, on the default one or on the CPU."""
    if mode.default_device is not None and options.get("device") is None and func is not torch.normal:
        options["device"] = mode.default_device  # torch.normal ignores it
    if "device" in options or "pin_memory" in options:
        return make(mode, func, args, options)
    if func is torch.normal:
        return plain(mode, func, args, options)
    return mode.call(func, args, options)


# ---------------------------------------------------------------- dtypes


_LOW: Final = (torch.float16, torch.bfloat16)
_FLOAT32: Final = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm group_norm"
    " frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss cross_entropy"
    " hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss"
    " multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits"
    " dist pdist cdist renorm logsumexp prod softmax log_softmax softmin cumprod cumsum norm sum"
)
"""AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE and AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE in
aten/src/ATen/autocast_mode.h, and the Python functions that consist of these."""
_IN_FLOAT32: Final = frozenset(
    getattr(owner, name)
    for owner in (torch, Tensor, functional, torch.linalg, torch.special)
    for name in (*_FLOAT32.split(), "vector_norm", "matrix_norm", "__pow__", "__rpow__")
    if hasattr(owner, name)
)
"""The functions that CUDA's autocasting computes in float32."""
_RECURRENT: Final = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def _is_casting() -> bool:
    """Tell whether the program is in an autocast region, which is one of the CPU here (`installation`)."""
    return torch.is_autocast_enabled("cpu")


def _to_float32(value: Any) -> Any:
    """Return a value with the tensors of lower precision in it as float32."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in _LOW else value
    if isinstance(value, (list, tuple)):
        return type(value)(map(_to_float32, value)) if type(value) in (list, tuple) else value
    return value


def _lowered(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.dtype is torch.float32 else value
    if isinstance(value, (list, tuple)):
        return tuple(_lowered(each, dtype) for each in value)
    return value


def _run_recurrent(func: Callable[..., Any], *args: Any) -> Any:
    """Run a recurrent network in float32, with the dtype of the results that CUDA has."""
    low = torch.get_autocast_dtype("cpu") if _is_casting() else args[0].dtype
    if low not in _LOW:
        return func(*args)
    with torch.autocast("cpu", enabled=False):
        return _lowered(func(*map(_to_float32, args)), low)


@handles(*_IN_FLOAT32)
def _in_float32(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    device = mode.device_among((*args, *options.values()))
    cast = device is not None and options.get("dtype") is None and _is_casting()
    result = func(*map(_to_float32, args), **options) if cast else func(*args, **options)
    if device is not None:
        mode.mark(result, device)
    return result


@handles(*_RECURRENT)
def _recurrent(mode: VirtualMode, func: Any, args: Arguments, _: Options) -> Any:
    return plain(mode, _run_recurrent, (func, *args), {})


# ---------------------------------------------------------------- types of tensors

_TYPES: Final = (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor", "CharTensor", "ShortTensor",
    "IntTensor", "LongTensor", "BoolTensor",
)  # fmt: skip


class _TensorType(type):
    """The type of a tensor type: it makes tensors, and is a type of those with its dtype on a device."""

    dtype: torch.dtype
    mode: VirtualMode

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and device_of(value) is not None and value.dtype is cls.dtype

    def __call__(cls, *args: Any, **options: Any) -> Any:
        on_cpu = getattr(torch, cls.__name__)(*args, **options)
        if args and not isinstance(args[0], (int, torch.Size)):  # values, which are copied
            return on_cpu.cuda()
        with cls.mode.not_counting():
            return on_cpu.cuda()


def tensor_types(mode: VirtualMode) -> dict[str, type]:
    """Return the types by their names in torch.cuda."""
    return {
        name: _TensorType(name, (), {"dtype": getattr(torch, name).dtype, "mode": mode, "__module__": "torch.cuda"})
        for name in _TYPES
    }


def parse(value: Any) -> tuple[str, torch.dtype] | None:
    """Device and dtype of a tensor type of CUDA, or of the name of a tensor type; None for anything else."""
    if isinstance(value, _TensorType):
        return "cuda", value.dtype
    if not isinstance(value, str) or not value.startswith("torch."):
        return None
    name = value.removeprefix("torch.").removeprefix("cuda.")
    return ("cuda" if ".cuda." in value else "cpu", getattr(torch, name).dtype) if name in _TYPES else None


@handles(Tensor.type)
def _type(mode: VirtualMode, func: Any, args: Arguments, options: Options) -> Any:
    device = mode.device(args[0])
    named = parse(args[1] if len(args) > 1 else options.get("dtype"))
    if named is not None:
        target, dtype = named
        return move(mode, Tensor.to, (args[0], mode.machine.device() if target == "cuda" else CPU, dtype), {})
    result = func(*args, **options)
    if isinstance(result, str):
        return result if device is None else result.replace("torch.", "torch.cuda.", 1)
    if device is not None:
        mode.mark(result, device)
    return result
