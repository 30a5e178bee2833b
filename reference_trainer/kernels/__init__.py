"""Kernels, by topic: each has a body for the host device, and its launch on CUDA.

Scalar recurrences are written once (`elementwise`) and compiled for both devices; each device has its own loops,
reductions and tilings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from reference_trainer.jit import cfunc


class Kernel:
    """A named piece of device work.

    :param name: its name in reports.
    :param host: body for the host device, `host(command)`; reads its arguments with `kernels.arguments`.
    :param cuda: `cuda(device, *arguments)`: launches it on the current stream, with the same arguments.
    :param fastmath: LLVM's fast-math flags that the host body may use.
    """

    def __init__(
        self, name: str, *, host: Callable[[int], None], cuda: Callable[..., None], fastmath: set[str] | bool = False
    ) -> None:
        self.name = name
        self.host = host
        self.cuda = cuda
        self.fastmath = fastmath

    @cached_property
    def _compiled(self) -> Any:
        return cfunc("void(int64)", cache=True, fastmath=self.fastmath, error_model="numpy")(self.host)

    @cached_property
    def address(self) -> int:
        """Address of the host body, compiled (or read from the cache) at first use."""
        return self._compiled.address
