"""Applies autocasting for CUDA on virtual devices.

The CPU's autocasting runs the matrix products and convolutions in the lower precision. Here are the functions that CUDA
computes in float32, and recurrent networks, which CUDA computes in the lower precision and the CPU cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

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
IN_FLOAT32: Final = frozenset(
    getattr(owner, name)
    for owner in (torch, Tensor, functional, torch.linalg, torch.special)
    for name in (*_FLOAT32.split(), "vector_norm", "matrix_norm", "__pow__", "__rpow__")
    if hasattr(owner, name)
)
"""The functions that CUDA's autocasting computes in float32."""
RECURRENT: Final = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def is_casting() -> bool:
    """Whether the program is in an autocast region, which is one of the CPU here (`installation`)."""
    return torch.is_autocast_enabled("cpu")


def to_float32(value: Any) -> Any:
    """A value with the tensors of lower precision in it as float32."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in _LOW else value
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_float32, value)) if type(value) in (list, tuple) else value
    return value


def _lowered(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.dtype is torch.float32 else value
    if isinstance(value, (list, tuple)):
        return tuple(_lowered(each, dtype) for each in value)
    return value


def run_recurrent(func: Callable[..., Any], *args: Any) -> Any:
    """Run a recurrent network in float32, with the dtype of the results that CUDA has."""
    low = torch.get_autocast_dtype("cpu") if is_casting() else args[0].dtype
    if low not in _LOW:
        return func(*args)
    with torch.autocast("cpu", enabled=False):
        return _lowered(func(*map(to_float32, args)), low)
