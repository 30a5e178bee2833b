"""Makes the types torch.cuda.FloatTensor and the like, which a torch for the CPU does not have."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from profiler.virtual.tensors import CPU, Arguments, Options, VirtualMode, device_of, handles, move

NAMES: Final = (
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
        for name in NAMES
    }


def parse(value: Any) -> tuple[str, torch.dtype] | None:
    """Device and dtype of a tensor type of CUDA, or of the name of a tensor type; None for anything else."""
    if isinstance(value, _TensorType):
        return "cuda", value.dtype
    if not isinstance(value, str) or not value.startswith("torch."):
        return None
    name = value.removeprefix("torch.").removeprefix("cuda.")
    return ("cuda" if ".cuda." in value else "cpu", getattr(torch, name).dtype) if name in NAMES else None


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
