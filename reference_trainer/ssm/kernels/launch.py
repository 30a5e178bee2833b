"""Launches kernels of numba-cuda on torch tensors, and passes CPU tensors to compiled functions of the host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from reference_trainer.kernels.on_cuda import CudaFunction, numba_stream

if TYPE_CHECKING:
    import numpy as np

_TYPES: Final = {torch.float32: "<f4", torch.int64: "<i8"}
"""The types of a kernel's arrays in the CUDA array interface."""


def on_host(device: torch.device) -> bool:
    """Whether compiled functions of the host do the work of this device."""
    return device.type == "cpu"


def launch(function: CudaFunction, blocks: int, threads: int, *arguments: Any) -> None:
    """Put a kernel into the current stream of its tensors' device.

    :param arguments: contiguous tensors, all of one device, and numbers. Tensors of the CPU are for Numba's simulator.
    """
    device = next(argument.device for argument in arguments if isinstance(argument, torch.Tensor))
    if device.type == "cpu":
        function.compiled[blocks, threads](*map(_simulated, arguments))
        return
    with torch.cuda.device(device):  # Numba takes the device that is current
        stream = numba_stream(torch.cuda.current_stream().cuda_stream)
        values = [_array(argument) if isinstance(argument, torch.Tensor) else argument for argument in arguments]
        function.compiled[blocks, threads, stream](*values)


def _simulated(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    return FakeCUDAArray(argument.detach().numpy())


def _array(tensor: torch.Tensor) -> Any:
    return _view(tensor.device.index, tensor.data_ptr(), tuple(tensor.shape), _TYPES[tensor.dtype])


@lru_cache(maxsize=4096)
def _view(index: int, pointer: int, shape: tuple[int, ...], typestr: str) -> Any:
    """An array for Numba's kernels that does not own its memory: the caller of `launch` keeps the tensor.

    Making one takes longer than launching a kernel, and torch reuses the same addresses.
    """
    from numba.cuda.api import from_cuda_array_interface

    return from_cuda_array_interface({"shape": shape, "typestr": typestr, "data": (pointer, False), "version": 3})


def arrays(*tensors: torch.Tensor) -> Iterator[np.ndarray]:
    """Views of CPU tensors that need no gradient.

    A recording counts `Tensor.numpy` as a read that may wait on a GPU, but on a GPU this function is not called.
    Hence the method of the base class.
    """
    from torch._C import TensorBase

    return map(TensorBase.numpy, tensors)
