"""CUDA kernels as plain Python, compiled at their first launch, so that the host device never imports numba.cuda."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

from numpy import uint32

SHARED_THREADS = 256
"""Largest number of threads of a block that reduces in shared memory; a power of two."""
ONE_BLOCK_ELEMENTS = 1 << 18
"""Elements of a weight matrix (1 MiB in fp32) up to which one block multiplies a vector by it, in one launch.

A larger one needs the memory bandwidth of all multiprocessors: cuBLAS does it, in a launch of its own. Where the two
break even has not been measured on a GPU; tests/benchmarks/bench_gpu.py times both sides of it.
"""


gpu: Any = None
"""Stands for numba.cuda in modules with kernels; `CudaFunction.bind` replaces it there.

Numba and its simulator look for the module in the globals of a kernel, and importing it would cost every run on the
host device 0.4 s.
"""


class _Helper:
    """A device function that is not compiled yet; `CudaFunction.bind` replaces it in the module of its kernels."""

    def __init__(self, make: Callable[[Callable], Callable], source: Any) -> None:
        self.make = make
        self.names: dict[str, Any] = source.__globals__
        """The globals of its module."""


def device_helper(make: Callable[[Callable], Callable]) -> Any:
    """Declare a device function of the kernels of a module.

    :param make: makes it with Numba's decorator for device functions.
    """
    return _Helper(make, make)


def device_function(function: Callable) -> Any:
    """Declare a device function that is a Python function as it stands."""
    return _Helper(lambda compiled: compiled(function), function)


@device_function
def place_in_columns(width):
    """The block of rows and the column of a thread: CUDA blocks go through the columns of one block of rows first.

    Counters and sizes are uint32 in all kernels. With Numba's int64, an element costs up to three times as many integer
    instructions: a GPU adds 64 bits in two, and a signed index might be negative and count from the end.
    """
    threads, number = uint32(gpu.blockDim.x), uint32(gpu.blockIdx.x)
    groups = uint32(uint32(width + threads - 1) // threads)
    block = uint32(number // groups)
    return block, uint32(uint32(number - block * groups) * threads + gpu.threadIdx.x)


class CudaFunction:
    """One CUDA kernel: the body in Python and its signature."""

    def __init__(self, body: Callable[..., None], signature: str) -> None:
        self.body = body
        self.signature = signature

    def bind(self) -> Callable[..., None]:
        """The body, ready to be compiled: `gpu` and the device functions that it uses are put into its globals."""
        from numba import cuda

        names = self.body.__globals__
        names["gpu"] = cuda
        for name in self.body.__code__.co_names:
            helper = names.get(name)
            if isinstance(helper, _Helper):
                helper.names["gpu"] = cuda
                names[name] = helper.make(cuda.jit(device=True))
        return self.body

    @cached_property
    def compiled(self):
        """The kernel, to be launched as compiled[blocks, threads, stream](*arguments); one a process."""
        from numba import cuda

        body = self.bind()
        return cuda.jit(self.signature)(body)


def on_cuda(signature: str) -> Callable[[Callable[..., None]], CudaFunction]:
    """Make a CUDA kernel of a function.

    :param signature: Numba's, such as "void(float32[:,::1], int64)".
    """
    return lambda body: CudaFunction(body, signature)


def by_one_thread(function: CudaFunction) -> Callable[..., None]:
    """The CUDA part of a kernel that starts `function` with one thread and all arguments."""
    return lambda device, *arguments: device.start(function, 1, 1, *arguments)


@lru_cache(maxsize=64)
def numba_stream(handle: int) -> Any:
    """A stream of torch for the launches of Numba's kernels."""
    from numba import cuda

    # Kernels for one token, and those of students, are small: the costs of small launches are what is measured here.
    warnings.filterwarnings("ignore", message="Grid size .* will likely result in GPU under-utilization")
    return cuda.external_stream(handle) if handle else 0  # 0: the default stream, for both


def threads_for(items: int, limit: int = SHARED_THREADS) -> int:
    """Threads of a block for so many items: the next power of two, at most `limit`, which is one."""
    return 1 << (min(items, limit) - 1).bit_length()
