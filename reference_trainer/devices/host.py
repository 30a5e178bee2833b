"""The host device: a real asynchronous device made of a CPU core. It is not a model of a GPU.

It has its own memory, a FIFO queue, and a worker thread that runs compiled kernels and matrix products in
order while the host continues; copies and blocking waits are real. `host_queue` is the queue itself. One host
thread may use it: the one that opened it.
"""

from __future__ import annotations

import platform
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Never

import numpy as np
from threadpoolctl import threadpool_limits

from profiler import marks
from reference_trainer.devices import host_queue as queue
from reference_trainer.devices.host_records import Recorder
from reference_trainer.devices.host_worker import Worker
from reference_trainer.devices.native import sem_init
from reference_trainer.devices.pinned import pinned_address, pinned_view
from reference_trainer.devices.protocol import SMALL, Counts, check_view, size_class
from reference_trainer.errors import TrainerError
from reference_trainer.jit import njit
from reference_trainer.kernels import Kernel
from reference_trainer.kernels import empty as empty_kernel
from reference_trainer.kernels import matmul as matmul_kernel

WORKER_POLL_NS = 200_000  # the worker polls that long for the next command before it sleeps
BLOCKING_POLL_NS = 10_000  # a blocking wait polls that long: a sleep and a wake cost more than that
_ALIGNMENT = 64  # bytes: a cache line, and what AVX-512 loads at once
_UNRECORDED = (0, -1)
_now = marks.now


@njit("void(int64)", cache=True)
def _init_semaphores(block: int) -> None:
    sem_init(block + queue.WORKER_SEMAPHORE, 0, 0)
    sem_init(block + queue.HOST_SEMAPHORE, 0, 0)


@njit(cache=True)
def _address(array: np.ndarray) -> int:
    """The address of an array's data, in a fifth of the time that `array.ctypes.data` takes."""
    return array.ctypes.data


class _Memory:
    """Aligned bytes with their address (asking NumPy for it costs half a microsecond)."""

    __slots__ = ("address", "bytes")

    def __init__(self, size: int) -> None:
        raw = np.empty(size + _ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % _ALIGNMENT
        self.bytes = raw[start : start + size]
        self.address = self.bytes.ctypes.data


class HostView:
    """A part of a buffer or of another view, which it keeps alive."""

    __slots__ = ("_of", "address", "dtype", "nbytes", "shape")
    address: int
    dtype: np.dtype
    nbytes: int
    shape: tuple[int, ...]

    def __init__(self, of: HostView, begin: int, shape: tuple[int, ...]) -> None:
        check_view(of.shape, begin, shape)
        self._of = of
        self.address = of.address + begin * of.dtype.itemsize
        self.shape = shape
        self.dtype = of.dtype
        self.nbytes = prod(shape) * of.dtype.itemsize

    def rows(self, begin: int, end: int) -> HostView:
        if not 0 <= begin <= end <= self.shape[0]:
            raise ValueError(f"rows {begin} to {end} of {self.shape[0]}")
        return HostView(self, begin * prod(self.shape[1:]), (end - begin, *self.shape[1:]))

    def view(self, begin: int, shape: Sequence[int]) -> HostView:
        return HostView(self, begin, tuple(shape))


class HostBuffer(HostView):
    """Memory of the host device, which returns to its pool with its last reference.

    The pool is ordered by the queue, as CUDA's caching allocator is: whoever gets the memory next can only
    use it through commands that come later in the same queue.
    """

    __slots__ = ("_memory", "_pool")

    def __init__(self, pool: list[_Memory], memory: _Memory, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._pool = pool
        self._memory = memory
        self.address = memory.address
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize

    def __del__(self) -> None:
        self._pool.append(self._memory)


class HostDevice:
    """See `reference_trainer.devices.protocol.Device`.

    :param blocking_wait: a waiting host sleeps instead of spinning; CUDA's default is to spin.
    :param empty_kernels: launches run an empty kernel instead: the least that a call pattern can cost.
    :param products: tf32 or bf16: the inputs of `matmul` are rounded to that, as on CUDA.
    """

    kind = "host"
    label = "host device (CPU)"
    note = ""
    """A remark about the choice of this device, for the report."""
    real = np.dtype(np.float32)

    def __init__(self, *, blocking_wait: bool = False, empty_kernels: bool = False, products: str = "fp32") -> None:
        if not sys.platform.startswith("linux"):
            raise TrainerError(f"device host needs Linux, this is {platform.system()}: use --device cuda")
        import scipy.linalg.cython_blas  # noqa: F401 - Numba's np.dot calls it, and it must be loaded to be limited

        threadpool_limits(limits=1, user_api="blas")  # the device is one core
        matmul_kernel.load_blas()  # else the first product would wait for the GIL, in the worker
        self._dropped_bits = matmul_kernel.DROPPED_BITS[products]
        self._rounded: dict[int, HostBuffer] = {}
        """Memory for the rounded inputs of a product: those of the next one are rounded when it is done."""
        self._block = _Memory(queue.BLOCK_BYTES)
        self._block.bytes[:] = 0
        self._queue = self._block.address
        self._words = self._block.bytes[: queue.RING].view(np.int64)
        self._staging = _Memory(queue.STAGING_BYTES)
        _init_semaphores(self._queue)
        self._words[queue.STAGING // 8] = self._staging.address
        self._words[queue.WORKER_POLL_NS // 8] = WORKER_POLL_NS
        self._words[queue.HOST_POLL_NS // 8] = BLOCKING_POLL_NS if blocking_wait else -1
        self._words[queue.TID // 8] = threading.get_native_id()
        self._copy = queue.copy_kernel.address
        self._substitute = empty_kernel.KERNEL.address if empty_kernels else 0
        self._pools: defaultdict[int, list[_Memory]] = defaultdict(list)
        self._allocations = 0
        self._reserved = 0
        self._worker = Worker(self._words)
        active = self._active = marks.recorder()
        if active:
            active.drains.append(self._settle)
        records = Recorder(active, self._words, self.counts, self._worker) if active else None
        # Any: it is there whenever `begin` is not 0, and to ask twice would cost every call.
        self._records: Any = records if records and records.detailed else None

    # ------------------------------------------------------------ memory

    def empty(self, shape: Sequence[int], dtype: str | None = None) -> HostBuffer:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        buffer = self._allocate(tuple(shape), np.dtype(dtype or self.real))
        if begin:
            queue.allocated(self._queue, buffer.nbytes, begin, site)
            self._records.ended()
        return buffer

    def _allocate(self, shape: tuple[int, ...], kind: np.dtype) -> HostBuffer:
        size = prod(shape) * kind.itemsize
        size = (size + 511) // 512 * 512 if size <= SMALL else size_class(size)  # as there, without a call
        pool = self._pools[size]
        if pool:
            memory = pool.pop()
        else:
            memory = _Memory(size)
            self._reserved += size
        self._allocations += 1
        return HostBuffer(pool, memory, shape, kind)

    def zeros(self, shape: Sequence[int], dtype: str | None = None) -> HostBuffer:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        return self._fresh(np.zeros(tuple(shape), dtype or self.real), begin, site)

    def pinned(self, shape: Sequence[int], dtype: str | None = None) -> np.ndarray:
        kind = np.dtype(dtype or self.real)
        return pinned_view(_Memory(prod(shape) * kind.itemsize).bytes.view(kind).reshape(tuple(shape)))

    # ------------------------------------------------------------ queue

    def upload(self, array: np.ndarray) -> HostBuffer:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        return self._fresh(array, begin, site)

    def _fresh(self, array: np.ndarray, begin: int, site: int) -> HostBuffer:
        buffer = self._allocate(array.shape, array.dtype)
        allocated = begin and _now()
        self._upload(buffer, array, begin, site, allocated=allocated)
        return buffer

    def upload_into(self, buffer: HostBuffer, array: np.ndarray, row: int = 0) -> HostBuffer:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        self._upload(buffer, array, begin, site, row=row)
        return buffer

    def _upload(
        self, buffer: HostBuffer, array: np.ndarray, begin: int, site: int, *, allocated: int = 0, row: int = 0
    ) -> None:
        name = self._records.names["memcpy H2D"] if begin else 0
        pinned, size = pinned_address(array), array.nbytes
        source = pinned or _address(array)
        offset = row and row * (buffer.nbytes // buffer.shape[0])
        if offset + size > buffer.nbytes or not array.flags.c_contiguous:
            raise ValueError(f"upload of {size} bytes into {buffer.nbytes - offset}: must fit, and be contiguous")
        target = buffer.address + offset
        queue.upload(self._queue, self._copy, target, source, size, pinned != 0, name, begin, site, allocated)
        if begin:
            self._records.ended()

    def prefetch_into(self, buffer: HostBuffer, array: np.ndarray) -> None:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        self._upload(buffer, array, begin, site)  # one worker copies and computes

    def download(self, buffer: HostBuffer) -> np.ndarray:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        array = np.empty(buffer.shape, buffer.dtype)
        self._download(array, buffer, begin, site)
        return array

    def download_into(self, array: np.ndarray, buffer: HostBuffer) -> None:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        self._download(array, buffer, begin, site)

    def _download(self, array: np.ndarray, buffer: HostBuffer, begin: int, site: int) -> None:
        name = self._records.names["memcpy D2H"] if begin else 0
        destination, size = pinned_address(array) or _address(array), array.nbytes
        if size > buffer.nbytes or not array.flags.c_contiguous:
            raise ValueError(f"download of {size} bytes from {buffer.nbytes}: must be there, and contiguous")
        queue.download(self._queue, self._copy, destination, buffer.address, size, name, begin, site)
        if begin:
            self._records.ended()

    def fetch_into(self, array: np.ndarray, buffer: HostBuffer) -> int:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        name = self._records.names["memcpy D2H"] if begin else 0
        destination, size = pinned_address(array), array.nbytes
        if size > buffer.nbytes or not destination:
            raise ValueError(f"fetch of {size} bytes from {buffer.nbytes}: must be there, and go to pinned memory")
        ticket: int = queue.fetch(self._queue, self._copy, destination, buffer.address, size, name, begin, site)
        if begin:
            self._records.ended()
        return ticket

    def launch(self, kernel: Kernel, *arguments: HostBuffer | int) -> None:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        self._launch(kernel, arguments, begin, site)

    def matmul(self, out: HostBuffer, a: HostBuffer, b: HostBuffer, rows: int, flags: int = 0) -> None:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        sizes = matmul_kernel.sizes(a.shape, b.shape, rows, flags)
        scalars = matmul_kernel.host_arguments(flags)
        if not self._dropped_bits:
            self._launch(matmul_kernel.KERNEL, (out, a, b, *sizes, *scalars), begin, site)
            return
        lengths = (
            prod(a.shape[1:]) * rows,
            prod(b.shape[1:]) * (rows if flags & matmul_kernel.TRANSPOSE_A else b.shape[0]),
        )
        first, second = (self._rounding_memory(number, length) for number, length in enumerate(lengths))
        arguments = (out, a, b, *sizes, *scalars, first, second, *lengths, self._dropped_bits)
        self._launch(matmul_kernel.ROUNDED, arguments, begin, site)

    def _rounding_memory(self, number: int, length: int) -> HostBuffer:
        """Memory for `length` numbers of input `number` of a product; it grows to the largest."""
        buffer = self._rounded.get(number)
        if buffer is None or buffer.shape[0] < length:
            buffer = self._rounded[number] = self._allocate((length,), self.real)
        return buffer

    def _launch(self, kernel: Kernel, arguments: tuple[HostBuffer | int, ...], begin: int, site: int) -> None:
        values = [argument if type(argument) is int else argument.address for argument in arguments]  # type: ignore[union-attr]
        name = self._records.names[kernel.name] if begin else 0
        function = self._substitute or kernel.address
        while not queue.launch(self._queue, function, name, begin, site, *values):
            queue.settle(self._queue, self._word(queue.HEAD) - queue.SLOTS + 1)
        if begin:
            self._records.ended()

    def capture(self, function: Callable[[], object]) -> Never:
        raise TrainerError("a graph of launches needs device cuda: leave the fix cuda-graph out, or take --device cuda")

    def replay(self, graph: Never) -> None:
        """Do nothing: there are no graphs."""

    def synchronize(self) -> None:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        self._wait(self._word(queue.HEAD), "synchronize", begin, site)

    def mark(self) -> int:
        return self._word(queue.HEAD)

    def wait(self, ticket: int) -> None:
        begin, site = _UNRECORDED if self._records is None else (_now(), self._records.site(sys._getframe(1)))
        self._wait(ticket, "event synchronize", begin, site)

    def _wait(self, sequence: int, what: str, begin: int, site: int) -> None:
        name = self._records.names[what] if begin else 0
        queue.wait(self._queue, sequence, name, begin, site)
        if begin:
            self._records.ended()

    def _settle(self) -> None:
        """Wait until the queue is empty; the recorder calls this."""
        queue.settle(self._queue, self._word(queue.HEAD))

    def close(self) -> None:
        if self._active and self._settle in self._active.drains:
            self._active.drains.remove(self._settle)
        self._worker.stop()

    # ------------------------------------------------------------ counters

    @property
    def reserved_bytes(self) -> int:
        """Memory that the device has taken from the system."""
        return self._reserved

    def counts(self) -> Counts:
        return Counts(
            syncs=self._word(queue.SYNCS),
            h2d=self._word(queue.H2D),
            d2h=self._word(queue.D2H),
            h2d_bytes=self._word(queue.H2D_BYTES),
            d2h_bytes=self._word(queue.D2H_BYTES),
            launches=self._word(queue.LAUNCHES),
            allocations=self._allocations,
            crossings=self._word(queue.CROSSINGS),
            busy_ns=self._worker.busy_ns(),
        )

    def _word(self, offset: int) -> int:
        return int(self._words[offset // 8])
