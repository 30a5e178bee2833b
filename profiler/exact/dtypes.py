"""Applies CUDA's dtypes on virtual devices: autocasting, and types such as torch.cuda.FloatTensor.

The CPU's autocasting runs the matrix products and convolutions in the lower precision. Here are the functions that CUDA
computes in float32, and recurrent networks, which CUDA computes in the lower precision and the CPU cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from profiler.exact.marks import CPU, device_of
from profiler.exact.mode import Arguments, Options, VirtualMode, handles, plain
from profiler.exact.moves import move

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
    """Whether the program is in an autocast region, which is one of the CPU here (`installation`)."""
    return torch.is_autocast_enabled("cpu")


def _to_float32(value: Any) -> Any:
    """A value with the tensors of lower precision in it as float32."""
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
    """The types by their names in torch.cuda."""
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
