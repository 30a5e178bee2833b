"""The CUDA device: torch tensors and streams, Numba kernels on the same memory and stream.

torch and numba.cuda are imported when a device is opened, never before: a run on the host device pays for neither.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler import marks
from reference_trainer.devices import records
from reference_trainer.devices.cuda_graph import CudaGraph, KeptCalls
from reference_trainer.devices.cuda_probe import is_simulated, unavailable
from reference_trainer.devices.pinned import Pinned, is_pinned, pinned_view
from reference_trainer.devices.protocol import Counts, size_class
from reference_trainer.devices.records import COUNTED, CudaRecorder
from reference_trainer.errors import TrainerError

if TYPE_CHECKING:
    from reference_trainer.devices.cuda_memory import Block, CudaBuffer
    from reference_trainer.kernels import Kernel
    from reference_trainer.kernels.on_cuda import CudaFunction

__all__ = ["CudaDevice", "unavailable"]

_UNRECORDED = (0, -1)
_COPIES = {"h2d": (records.H2D_CALL, "memcpy H2D"), "d2h": (records.D2H_CALL, "memcpy D2H")}
_MOST_ELEMENTS = 1 << 31  # the kernels' uint32 counters may pass the end by a stride of the grid
_NON_BLOCKING = "non-blocking"
"""End of the name of a copy for which the host does not wait: nothing has a length there to tell it by."""
_now = marks.now


class _HostStream:
    """Stands for a stream where tensors are on the CPU and everything is done at once."""

    cuda_stream = 0

    def synchronize(self) -> None:
        """Do nothing: no work is in flight."""

    def record_event(self, event: Any = None) -> _HostStream:
        return self

    def record(self, stream: Any) -> None:
        """Do nothing: no work is in flight."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: no work is in flight."""

    def query(self) -> bool:
        return True


class CudaDevice:
    """See `reference_trainer.devices.protocol.Device`. Uses torch's current stream at the time that it is opened.

    :param blocking_wait: a waiting host sleeps instead of spinning; CUDA's default is to spin.
    :param empty_kernels: launches run an empty kernel instead: the least that a call pattern can cost.
    :param products: tf32 or bf16: the inputs of matrix products are rounded to that; sums stay in fp32.
    :param _torch_device: "cpu" for tests: the logic without a GPU, kernels in Numba's simulator.
    """

    kind = "cuda"
    note = ""
    real = np.dtype(np.float32)

    def __init__(
        self,
        *,
        blocking_wait: bool = False,
        empty_kernels: bool = False,
        products: str = "fp32",
        _torch_device: str = "cuda",
    ) -> None:
        import torch

        from reference_trainer.devices import cuda_memory
        from reference_trainer.kernels import empty

        self._torch = torch
        self._memory = cuda_memory
        self._device = torch.device(_torch_device)
        real = self._device.type == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = products == "tf32"  # 10 bits of mantissa: not the same mathematics
        self._bf16 = products == "bf16"
        if self._bf16 and "dtype_out" not in torch.ops.aten.mm.overloads():
            raise TrainerError(f"--dtype bf16 needs torch 2.8 or later for sums in fp32, this is {torch.__version__}")
        self.label = torch.cuda.get_device_name() if real else "torch on the CPU, for tests"
        self._stream: Any = torch.cuda.current_stream() if real else _HostStream()
        self._simulated = is_simulated()
        self._numba_stream = _numba_stream(self._stream.cuda_stream) if real and not self._simulated else 0
        self._new_event = (lambda: torch.cuda.Event(blocking=blocking_wait)) if real else _HostStream
        self._new_stream = torch.cuda.Stream if real else _HostStream
        self._on_stream: Any = torch.cuda.stream if real else nullcontext
        self._event: Any = self._new_event() if blocking_wait else None
        self._new_graph = (lambda: CudaGraph(torch)) if real and not self._simulated else KeptCalls
        self._substitute = empty.KERNEL if empty_kernels else None
        self._copies: Any = None
        self._staging = cuda_memory.staging(self._device, self._stream)
        self._scratch: defaultdict[np.dtype, list[CudaBuffer]] = defaultdict(list)
        self._pools: defaultdict[int, list[Block]] = defaultdict(list)
        self._counts = dict.fromkeys(COUNTED, 0)
        self._reserved = 0
        self._capturing: CudaGraph | None = None
        self._launching = ("", _UNRECORDED)  # kernel and site of the launch in progress
        active = self._active = marks.recorder()
        if active:
            active.drains.append(self._stream.synchronize)  # counts as no wait of the program's
        recorder = CudaRecorder(active, self.counts) if active else None
        self._records = recorder if recorder and recorder.detailed else None

    def _began(self) -> tuple[int, int]:
        """The time and the site of the caller's caller, if calls are recorded."""
        return _UNRECORDED if self._records is None else (marks.now(), self._records.site(sys._getframe(2)))

    def _log(self, kind: int, name: str, began: tuple[int, int], size: int = 0, blocked_from: int = 0) -> None:
        if self._records is not None:
            self._records.call(kind, name, began, size, blocked_from)

    def _not_in_graph(self, what: str) -> None:
        """Refuse what a graph cannot hold, which is all but launches: it would wait, or not be repeated."""
        if self._capturing is not None:
            raise TrainerError(f"{what} while a graph is captured: do it before (run the function once) or after")

    # ------------------------------------------------------------ memory

    def empty(self, shape: Sequence[int], dtype: str | np.dtype | None = None) -> CudaBuffer:
        return self._empty(tuple(shape), np.dtype(dtype or self.real), self._began())

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype, began: tuple[int, int]) -> CudaBuffer:
        self._not_in_graph("memory is requested")
        if prod(shape) > _MOST_ELEMENTS:
            raise TrainerError(f"a buffer of {prod(shape):,} elements: the kernels count to {_MOST_ELEMENTS:,}")
        size = size_class(prod(shape) * dtype.itemsize)
        pool = self._pools[size]
        if pool:
            block = pool.pop()
        else:
            block = self._memory.Block(self._torch.empty(size, dtype=self._torch.uint8, device=self._device))
            self._reserved += size
        self._counts["allocations"] += 1
        buffer = self._memory.CudaBuffer(pool, block, block.storage(shape, dtype), shape, dtype)
        self._log(records.ALLOC_CALL, "allocate", began, buffer.nbytes)
        return buffer

    def scratch(self, size: int, dtype: str | None = None) -> CudaBuffer:
        """At least `size` elements for the launch in progress, for the CUDA part of a kernel.

        Every launch may get the same memory because the stream runs one after the other. It grows to the largest
        requested size; smaller memory is kept, because a captured graph may use it.
        """
        kind = np.dtype(dtype or self.real)
        scratch = self._scratch[kind]
        if not scratch or scratch[-1].shape[0] < size:
            name, began = self._launching
            scratch.append(self._empty((1 << (size - 1).bit_length(),), kind, began))
            self._launching = name, (began[0] and _now(), began[1])  # the allocation has a record of its own
        return scratch[-1]

    def zeros(self, shape: Sequence[int], dtype: str | None = None) -> CudaBuffer:
        return self._fresh(np.zeros(tuple(shape), dtype or self.real), self._began())

    def pinned(self, shape: Sequence[int], dtype: str | None = None) -> Pinned:
        kind = np.dtype(dtype or self.real)
        size = prod(shape) * kind.itemsize
        memory = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=self._device.type == "cuda")
        return pinned_view(memory.numpy().view(kind).reshape(tuple(shape)))

    @property
    def reserved_bytes(self) -> int:
        """Memory that torch has taken from the device, for buffers and for its own use."""
        return int(self._torch.cuda.memory_reserved()) if self._device.type == "cuda" else self._reserved

    # ------------------------------------------------------------ copies

    def upload(self, array: np.ndarray) -> CudaBuffer:
        return self._fresh(array, self._began())

    def _fresh(self, array: np.ndarray, began: tuple[int, int]) -> CudaBuffer:
        buffer = self._empty(array.shape, array.dtype, began)
        self._upload(buffer, array, (_now(), began[1]) if began[0] else began)
        return buffer

    def upload_into(self, buffer: CudaBuffer, array: np.ndarray, row: int = 0) -> CudaBuffer:
        self._upload(buffer, array, self._began(), row)
        return buffer

    def _upload(self, buffer: CudaBuffer, array: np.ndarray, began: tuple[int, int], row: int = 0) -> None:
        self._not_in_graph("an upload is requested")
        size, blocked_from = array.nbytes, 0
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        pinned = is_pinned(array)
        if pinned or size > self._memory.STAGED_MOST:
            source = self._bytes(array)
        else:
            source = self._staging.stage(array)
        _part(buffer, size, row).copy_(source, non_blocking=True)
        if not pinned and size > self._memory.STAGED_MOST:
            # The driver may still read the array: as with CUDA's own pageable copies, the host waits.
            blocked_from = self._wait(began)
        self._copied("h2d", size, began, blocked_from)

    def prefetch_into(self, buffer: CudaBuffer, array: np.ndarray) -> None:
        began = self._began()
        self._not_in_graph("an upload is requested")
        with self._copying(after_stream=not buffer.prefetched):
            _part(buffer, array.nbytes).copy_(self._bytes(array), non_blocking=True)
        buffer.prefetched = True
        self._copied("h2d", array.nbytes, began)

    @contextmanager
    def _copying(self, *, after_stream: bool) -> Iterator[None]:
        """Put work into the copy stream; later work in the queue waits for it.

        :param after_stream: the copy waits for the queue, where memory from a pool may still be in use.
        """
        if self._copies is None:
            self._copies = self._new_stream()
        if after_stream:
            self._copies.wait_stream(self._stream)
        with self._on_stream(self._copies):
            yield
        self._stream.wait_stream(self._copies)

    def download(self, buffer: CudaBuffer) -> np.ndarray:
        began = self._began()
        array = np.empty(buffer.shape, buffer.dtype)
        self._download(array, buffer, began)
        return array

    def download_into(self, array: np.ndarray, buffer: CudaBuffer) -> None:
        self._download(array, buffer, self._began())

    def _download(self, array: np.ndarray, buffer: CudaBuffer, began: tuple[int, int]) -> None:
        self._not_in_graph("a download is requested")
        source, blocked_from = _part(buffer, array.nbytes), 0
        if is_pinned(array):
            self._bytes(array).copy_(source, non_blocking=True)
            blocked_from = self._wait(began)
        elif self._event is not None:
            # A copy to pageable memory spins inside the driver: sleep first, until there is nothing to wait for.
            blocked_from = self._wait(began)
            self._bytes(array).copy_(source)
        else:
            blocked_from = began[0] and _now()
            self._bytes(array).copy_(source)  # copies and waits in one call
            self._counts["syncs"] += 1
        self._copied("d2h", array.nbytes, began, blocked_from)

    def fetch_into(self, array: np.ndarray, buffer: CudaBuffer) -> Any:
        began = self._began()
        self._not_in_graph("a download is requested")
        self._bytes(array).copy_(_part(buffer, array.nbytes), non_blocking=True)
        # An event a chunk takes about a microsecond; reusing them would save less than it costs to read.
        ticket = self._new_event()
        ticket.record(self._stream)
        self._copied("d2h", array.nbytes, began)
        return ticket

    def mark(self) -> Any:
        self._not_in_graph("a mark is requested")
        ticket = self._new_event()
        ticket.record(self._stream)
        return ticket

    def wait(self, ticket: Any) -> None:
        began = self._began()
        self._not_in_graph("the host waits")
        blocked_from = _now() if began[0] else 0
        ticket.synchronize()
        self._counts["syncs"] += 1
        self._counts["crossings"] += 1
        self._log(records.SYNC_CALL, "event synchronize", began, 0, blocked_from)

    def _copied(self, kind: str, size: int, began: tuple[int, int], blocked_from: int = 0) -> None:
        """Count and record a copy, h2d or d2h."""
        self._counts[kind] += 1
        self._counts[f"{kind}_bytes"] += size
        self._counts["crossings"] += 1
        call, name = _COPIES[kind]
        if self._simulated and not blocked_from:
            name = f"{name} {_NON_BLOCKING}"
        self._log(call, name, began, size, blocked_from)

    def _bytes(self, array: np.ndarray) -> Any:
        return self._torch.frombuffer(array, dtype=self._torch.uint8)

    # ------------------------------------------------------------ launches

    def launch(self, kernel: Kernel, *arguments: CudaBuffer | int) -> None:
        self._launch(kernel, arguments, self._began())

    def matmul(self, out: CudaBuffer, a: CudaBuffer, b: CudaBuffer, rows: int, flags: int = 0) -> None:
        from reference_trainer.kernels import matmul

        self._launch(matmul.KERNEL, (out, a, b, rows, flags), self._began())

    def _launch(self, kernel: Kernel, arguments: tuple[CudaBuffer | int, ...], began: tuple[int, int]) -> None:
        self._launching = kernel.name, began
        if self._capturing is not None:
            self._capturing.held.extend(arguments)
        (self._substitute or kernel).cuda(self, *arguments)

    def start(self, function: CudaFunction, blocks: int, threads: int, *arguments: CudaBuffer | int) -> None:
        """Put one CUDA kernel into the stream, for the CUDA part of a kernel."""
        values = [argument if type(argument) is int else argument.storage.array for argument in arguments]  # type: ignore[union-attr]
        self._put(self._start, function, blocks, threads, values)
        self._launched()

    def _start(self, function: CudaFunction, blocks: int, threads: int, values: list[Any]) -> None:
        function.compiled[blocks, threads, self._numba_stream](*values)

    def _put(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Make a call that puts work into the stream, or into the graph that is captured."""
        if self._capturing is None:
            call(*arguments, **options)
        else:
            self._capturing.put(call, *arguments, **options)

    def matrix_product(self, out: CudaBuffer, a: CudaBuffer, b: CudaBuffer, rows: int, flags: int) -> None:
        """Multiply by cuBLAS, for the CUDA part of a kernel."""
        from reference_trainer.kernels import matmul

        first, second, target = a.tensor[:rows], b.tensor, out.tensor
        if flags & matmul.TRANSPOSE_A:
            first, second = first.t(), second[:rows]
        else:
            target = target[:rows]
            second = second.t() if flags & matmul.TRANSPOSE_B else second
        if self._bf16:
            self._put(self._bf16_product, target, first, second, bool(flags & matmul.ACCUMULATE))
            for _ in range(2 + bool(flags & matmul.ACCUMULATE)):  # its conversions, and the addition
                self._launched()
        elif flags & matmul.ACCUMULATE:
            self._put(target.addmm_, first, second)
        else:
            self._put(self._torch.mm, first, second, out=target)
        self._launched()

    def _bf16_product(self, target: Any, first: Any, second: Any, accumulate: bool) -> None:
        """Compute target (+)= first @ second with inputs in bf16 and sums in fp32."""
        torch = self._torch
        first, second = first.bfloat16(), second.bfloat16()
        if self._device.type != "cuda":  # torch has this product on CUDA only
            product = torch.mm(first.float(), second.float())
            target.add_(product) if accumulate else target.copy_(product)
        elif accumulate:
            target.add_(torch.mm(first, second, out_dtype=torch.float32))
        else:
            torch.mm(first, second, out_dtype=torch.float32, out=target)

    def vector_matrix(self, out: Any, vector: Any, matrix: CudaBuffer, block: int = 0) -> None:
        """Compute out (N,) = vector (K,) @ rows [block * K, ...) of a matrix (_, N) by cuBLAS, on two tensors."""
        self._put(self._torch.mv, matrix.storage.transposed(vector.shape[0], block), vector, out=out)
        self._launched()

    def _launched(self) -> None:
        self._counts["launches"] += 1
        self._counts["crossings"] += 1
        if self._records is not None:
            name, began = self._launching
            end = self._records.call(records.LAUNCH_CALL, name, began)
            self._launching = name, (end, began[1])  # a kernel that launches several begins the next one here

    # ------------------------------------------------------------ graphs

    def capture(self, function: Callable[[], object]) -> CudaGraph:
        """Record the launches of `function`, without running them; see `Device.capture`."""
        self._synchronize(self._began())
        graph = self._new_graph()
        before = self._counts["launches"], self._counts["crossings"]
        usual = self._records, self._stream, self._numba_stream
        self._capturing, self._records = graph, None
        try:
            with graph.recording() as stream:
                if stream is not None:
                    self._stream, self._numba_stream = stream, _numba_stream(stream.cuda_stream)
                function()
            graph.launches = self._counts["launches"] - before[0]
        finally:
            self._capturing = None
            self._counts["launches"], self._counts["crossings"] = before
            self._records, self._stream, self._numba_stream = usual
        return graph

    def replay(self, graph: CudaGraph) -> None:
        """Launch a captured graph; see `Device.replay`."""
        began = self._began()
        self._not_in_graph("a graph is replayed")
        graph.replay()
        self._counts["launches"] += 1
        self._counts["crossings"] += 1
        self._log(records.LAUNCH_CALL, "graph launch", began)

    # ------------------------------------------------------------ waiting

    def synchronize(self) -> None:
        self._synchronize(self._began())

    def _synchronize(self, began: tuple[int, int]) -> None:
        blocked_from = self._wait(began)
        self._counts["crossings"] += 1
        self._log(records.SYNC_CALL, "synchronize", began, 0, blocked_from)

    def _wait(self, began: tuple[int, int]) -> int:
        """Block until the stream is empty; return when blocking began (0: not recording)."""
        self._not_in_graph("the host waits")
        blocked_from = _now() if began[0] else 0
        if self._event is None:
            self._stream.synchronize()
        else:
            self._event.record(self._stream)
            self._event.synchronize()
        self._counts["syncs"] += 1
        return blocked_from

    def close(self) -> None:
        if self._active and self._stream.synchronize in self._active.drains:
            self._active.drains.remove(self._stream.synchronize)
        self._stream.synchronize()

    def counts(self) -> Counts:
        # Events around every call would tell how long the device was busy, at a cost to what is measured; NVML samples
        # its utilization from outside, and CUPTI sees every kernel at level full.
        return Counts(**self._counts, busy_ns=None)


def _numba_stream(handle: int) -> Any:
    from reference_trainer.kernels.on_cuda import numba_stream

    return numba_stream(handle)


def _part(buffer: CudaBuffer, size: int, row: int = 0) -> Any:
    """`size` bytes of a buffer, from its row `row` on."""
    if size == buffer.nbytes:
        return buffer.storage.bytes
    begin = row and row * (buffer.nbytes // buffer.shape[0])
    return buffer.storage.bytes[begin : begin + size]
