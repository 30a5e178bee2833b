"""The interface of a device, which `host` and `cuda` implement.

A device runs the commands in its queue in order, while the host continues. Only downloads, `wait` and `synchronize`
block. Memory is the device's own; host arrays are NumPy. Reals are fp32, indices int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

if TYPE_CHECKING:
    from reference_trainer.kernels import Kernel


class Buffer(Protocol):
    """Device memory, which returns to the device's pool with its last reference."""

    shape: tuple[int, ...]
    nbytes: int

    def rows(self, begin: int, end: int) -> Self:
        """Rows [begin, end) in the same memory. Keep the view: making it takes up to 100 us on CUDA."""

    def view(self, begin: int, shape: Sequence[int]) -> Self:
        """The elements from `begin` on, counted row by row, in another shape and the same memory. Keep the view."""


def check_view(of: tuple[int, ...], begin: int, shape: tuple[int, ...]) -> None:
    """Raise a ValueError if a view does not lie within its buffer."""
    if begin < 0 or begin + prod(shape) > prod(of):
        raise ValueError(f"elements {begin} to {begin + prod(shape)} of {prod(of)}")


SMALL = 4096
"""Bytes of a buffer up to which its size is rounded up to 512 bytes."""


def size_class(size: int) -> int:
    """The bytes that a pool takes for a buffer of `size`: at most a quarter more, and four sizes in each doubling.

    Chunks differ in length, and a pool keeps what it has taken: with memory of its own for each length it would grow
    with every chunk. Small buffers are rounded up to 512 bytes, as torch's caching allocator does.
    """
    step = 512 if size <= SMALL else 1 << (size - 1).bit_length() - 3
    return -(-size // step) * step


B = TypeVar("B", bound=Buffer)
"""The buffers of one device, which another cannot use."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Exact counts of the host's requests to a device since it was opened."""

    syncs: int
    h2d: int
    d2h: int
    h2d_bytes: int
    d2h_bytes: int
    launches: int
    """A replayed graph counts as one, whatever kernels it holds; captured kernels do not count."""
    allocations: int
    crossings: int
    busy_ns: int | None
    """Time in which the queue was occupied; None: the device does not know it."""


class Device(Protocol[B]):
    """An asynchronous device with one queue."""

    kind: str
    label: str
    note: str
    """A remark about the choice of this device, for the report."""
    real: np.dtype
    """The type of all real numbers, and of a buffer unless another is given."""

    @property
    def reserved_bytes(self) -> int:
        """Memory that the device has taken for its buffers."""

    def empty(self, shape: Sequence[int], dtype: str | None = None) -> B:
        """A fresh, uninitialised buffer (counted as an allocation)."""

    def zeros(self, shape: Sequence[int], dtype: str | None = None) -> B:
        """A fresh buffer of zeros."""

    def upload(self, array: np.ndarray) -> B:
        """Copy `array` to a fresh buffer without blocking."""

    def upload_into(self, buffer: B, array: np.ndarray, row: int = 0) -> B:
        """Copy `array` to `buffer`, from row `row` on, without blocking, and return `buffer`.

        A pinned array must not change meanwhile.
        """

    def prefetch_into(self, buffer: B, array: np.ndarray) -> None:
        """Do `upload_into` with a pinned array, in parallel to the queue where possible; later commands wait for it.

        No command in the queue may use `buffer` any more.
        """

    def pinned(self, shape: Sequence[int], dtype: str | None = None) -> np.ndarray:
        """Host memory that the device can read by itself."""

    def download(self, buffer: B) -> np.ndarray:
        """Copy `buffer` to a fresh host array; blocks (a sync)."""

    def download_into(self, array: np.ndarray, buffer: B) -> None:
        """Copy the head of `buffer` to `array`; blocks (a sync)."""

    def fetch_into(self, array: np.ndarray, buffer: B) -> Any:
        """Copy the head of `buffer` to the pinned `array` without blocking; return a ticket to `wait` for."""

    def mark(self) -> Any:
        """A ticket for all commands that are in the queue now."""

    def wait(self, ticket: Any) -> None:
        """Block until the ticket's work is done (a sync); later work continues."""

    def launch(self, kernel: Kernel, *arguments: B | int) -> None:
        """Put a kernel of `reference_trainer.kernels` into the queue; arguments are buffers and ints."""

    def matmul(self, out: B, a: B, b: B, rows: int, flags: int = 0) -> None:
        """A matrix product over `rows` tokens; `flags` as in `reference_trainer.kernels.matmul`.

        0: out[:rows] = a[:rows] @ b, for a (M, K), b (K, N), out (M, N). TRANSPOSE_B: out[:rows] = a[:rows] @ b.T, for
        b (N, K). TRANSPOSE_A: out = a[:rows].T @ b[:rows]. ACCUMULATE, added to any of them: out +=.
        """

    def capture(self, function: Callable[[], object]) -> Any:
        """Record what `function` launches, without running it; the graph is launched as a whole by `replay`.

        Its arguments, sizes and buffers never change. The function must have run once before, so that its kernels are
        compiled and have their memory, and it may only launch and multiply. Waits for the queue (a sync).

        :raises TrainerError: the device has no graphs, or the function does something else.
        """

    def replay(self, graph: Any) -> None:
        """Launch a captured graph."""

    def synchronize(self) -> None:
        """Block until the queue is empty."""

    def counts(self) -> Counts:
        """The counters; does not block."""

    def close(self) -> None:
        """Finish the queue and stop."""
