"""CUDA kernels as plain Python, compiled at their first launch, so that the host device never imports numba.cuda."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

SHARED_THREADS = 256
"""Largest number of threads of a block that reduces in shared memory; a power of two."""
ONE_BLOCK_ELEMENTS = 1 << 18
"""Elements of a weight matrix (1 MiB in fp32) up to which one block multiplies a vector by it, in one launch.

A larger one needs the memory bandwidth of all multiprocessors: cuBLAS does it, in a launch of its own. Where the two
break even has not been measured on a GPU; tests/benchmarks/bench_gpu.py times both sides of it.
"""


class CudaFunction:
    """One CUDA kernel: the body in Python, its signature, and what is compiled with it.

    The names `gpu` (numba.cuda) and those of `helpers` are put into the globals of the body's module before it is
    compiled: Numba and its simulator look for the module there, and importing it at the top would cost every host run
    0.4 s. A module declares them as None.
    """

    def __init__(
        self, body: Callable[..., None], signature: str, helpers: dict[str, Callable[[Callable], Callable]]
    ) -> None:
        self.body = body
        self.signature = signature
        self._helpers = helpers

    def bind(self) -> Callable[..., None]:
        """The body, ready to be compiled."""
        from numba import cuda

        names = self.body.__globals__
        names["gpu"] = cuda
        for name, make in self._helpers.items():
            make.__globals__["gpu"] = cuda
            names[name] = make(cuda.jit(device=True))
        return self.body

    @cached_property
    def compiled(self):
        """The kernel, to be launched as compiled[blocks, threads, stream](*arguments); one a process."""
        from numba import cuda

        body = self.bind()
        return cuda.jit(self.signature)(body)


def on_cuda(signature: str, **helpers: Callable[[Callable], Callable]) -> Callable[[Callable[..., None]], CudaFunction]:
    """Make a CUDA kernel of a function.

    :param signature: Numba's, such as "void(float32[:,::1], int64)".
    :param helpers: name -> function that makes a device function from Numba's decorator for these.
    """
    return lambda body: CudaFunction(body, signature, helpers)


def compiled_as(function: Callable) -> Callable[[Callable[[Callable], Callable]], Callable]:
    """A helper of `on_cuda` that is the function itself, as it stands."""

    def make(compiled: Callable[[Callable], Callable]) -> Callable:
        return compiled(function)

    return make


def threads_for(items: int, limit: int = SHARED_THREADS) -> int:
    """Threads of a block for so many items: the next power of two, at most `most`."""
    threads = 1
    while threads < min(items, limit):
        threads *= 2
    return threads
