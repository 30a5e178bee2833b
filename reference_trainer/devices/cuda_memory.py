"""Memory of the CUDA device: buffers that keep their views, and the ring through which small uploads pass."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import torch

from reference_trainer.devices.cuda_probe import is_simulated
from reference_trainer.devices.protocol import check_view

STAGED_MOST: Final = 1 << 16
"""Bytes of a pageable upload that is staged and returns at once, as CUDA documents of its own staging."""
_SEGMENTS: Final = 16
_ALIGNMENT: Final = 64  # bytes: a cache line
_MOST_SHAPES: Final = 16
"""Shapes of which a block keeps the tensors. Each kind of buffer has one, and chunks of another length have another."""


class Storage:
    """A tensor with its views, each made once, at its first use.

    A device array for Numba takes about 100 us to make, a view of a tensor about 1 us.
    """

    __slots__ = ("_array", "_blocks", "bytes", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.bytes = tensor.view(-1).view(torch.uint8)
        self._array: Any = None
        self._blocks: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def array(self) -> Any:
        """The same memory for Numba's kernels."""
        if self._array is None:
            if self.tensor.is_cuda and not is_simulated():
                from numba import cuda

                self._array = cuda.as_cuda_array(self.tensor)
            else:
                from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

                # A plain array the simulator would copy to and fro, twice where it is an argument twice.
                with torch._C.DisableTorchFunction():  # a virtual device refuses to be an array, as a real one does
                    self._array = FakeCUDAArray(self.tensor.numpy())
        return self._array

    def transposed(self, rows: int, block: int) -> torch.Tensor:
        """Rows [block * rows, (block + 1) * rows) of a matrix, transposed without a copy."""
        view = self._blocks.get((rows, block))
        if view is None:
            view = self._blocks[rows, block] = self.tensor[block * rows : (block + 1) * rows].t()
        return view


class Block:
    """Device memory of one size class, as a tensor of each shape that it had lately."""

    __slots__ = ("_storages", "bytes")

    def __init__(self, memory: torch.Tensor) -> None:
        self.bytes = memory
        self._storages: dict[tuple[tuple[int, ...], np.dtype], Storage] = {}

    def storage(self, shape: tuple[int, ...], dtype: np.dtype) -> Storage:
        """The head of the block in this shape."""
        storage = self._storages.get((shape, dtype))
        if storage is None:
            if len(self._storages) == _MOST_SHAPES:
                self._storages.clear()
            head = self.bytes[: prod(shape) * dtype.itemsize].view(getattr(torch, dtype.name))
            storage = self._storages[shape, dtype] = Storage(head.view(shape))
        return storage


class CudaBuffer:
    """Device memory, whose block returns to its pool with the last reference.

    The pool is ordered by the stream, as torch's own is: whoever gets the memory next can only use it in calls that
    come later in the same stream. It lies before torch's so that the tensors live on with the memory: without it a
    fresh buffer would cost a fresh device array.

    :param pool: where the block returns to; None: a view, whose memory another buffer returns.
    """

    __slots__ = ("_block", "_pool", "dtype", "nbytes", "prefetched", "shape", "storage")

    def __init__(
        self, pool: list[Block] | None, block: Block | None, storage: Storage, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self._pool = pool
        self._block = block
        self.storage = storage
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.prefetched = False

    @property
    def tensor(self) -> torch.Tensor:
        return self.storage.tensor

    def rows(self, begin: int, end: int) -> CudaBuffer:
        if not 0 <= begin <= end <= self.shape[0]:
            raise ValueError(f"rows {begin} to {end} of {self.shape[0]}")
        return CudaView(self, self.tensor[begin:end])

    def view(self, begin: int, shape: Sequence[int]) -> CudaBuffer:
        check_view(self.shape, begin, tuple(shape))
        return CudaView(self, self.tensor.view(-1)[begin : begin + prod(shape)].view(*shape))

    def __del__(self) -> None:
        if self._pool is not None and self._block is not None:
            self._pool.append(self._block)


class CudaView(CudaBuffer):
    """A part of a buffer or of another view, which it keeps alive."""

    __slots__ = ("_of",)

    def __init__(self, of: CudaBuffer, tensor: torch.Tensor) -> None:
        super().__init__(None, None, Storage(tensor), tuple(tensor.shape), of.dtype)
        self._of = of


class Staging:
    """A ring of pinned memory for pageable uploads: torch's own would hide a sync.

    The ring is cut into segments. When one is left, an event is recorded behind the copies out of it, and it is
    waited for before the segment is used again: an event for every 64 KiB, and in practice no wait.

    :param memory: uint8 (at least STAGED_MOST * 16,), pinned.
    :param stream: where the copies run; makes events with `record_event()`.
    """

    def __init__(self, memory: torch.Tensor, stream: Any) -> None:
        self._memory = memory
        self._host = memory.numpy()
        self._stream = stream
        self._events: list[Any] = [None] * _SEGMENTS
        self._segment = 0
        self._used = 0

    def stage(self, array: np.ndarray) -> torch.Tensor:
        """Copy `array` (at most STAGED_MOST bytes) into the ring: the bytes, to be uploaded by the next call."""
        size = array.nbytes
        if self._used + size > STAGED_MOST:
            self._next_segment()
        begin = self._segment * STAGED_MOST + self._used
        self._host[begin : begin + size] = array.reshape(-1).view(np.uint8)
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return self._memory[begin : begin + size]

    def _next_segment(self) -> None:
        self._events[self._segment] = self._stream.record_event(self._events[self._segment])
        self._segment = (self._segment + 1) % _SEGMENTS
        self._used = 0
        event = self._events[self._segment]
        if event is not None and not event.query():
            event.synchronize()


def staging(device: torch.device, stream: Any) -> Staging:
    """A staging ring for that device."""
    return Staging(torch.empty(_SEGMENTS * STAGED_MOST, dtype=torch.uint8, pin_memory=device.type == "cuda"), stream)
