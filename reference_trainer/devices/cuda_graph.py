"""CUDA graphs: launches that are recorded once and repeated by a single call.

This has never run on a GPU (`make gpu` has its tests); without one, the logic of the device around it is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


class CudaGraph:
    """A recorded graph; `CudaDevice.capture` makes it, `CudaDevice.replay` runs it.

    The device reads and writes the same memory at each replay, so the graph keeps the buffers that it was given.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._graph = torch.cuda.CUDAGraph()
        self.launches = 0
        """Number of kernels and products."""
        self.held: list[Any] = []

    @contextmanager
    def recording(self) -> Iterator[Any]:
        """Record the work that is put into the stream, and run none of it."""
        stream = self._torch.cuda.Stream()  # the default stream cannot be captured
        # thread_local: what another thread does meanwhile, such as taking pinned memory, does not spoil the capture
        with self._torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            yield stream

    def put(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Call while recording."""
        call(*arguments, **options)

    def replay(self) -> None:
        """Put all recorded work into the current stream."""
        self._graph.replay()


class KeptCalls(CudaGraph):
    """Stands for a graph where tensors are on the CPU: it stores calls and makes them at each replay."""

    def __init__(self) -> None:
        self.launches = 0
        self.held = []
        self._calls: list[Callable[[], Any]] = []

    @contextmanager
    def recording(self) -> Iterator[Any]:
        yield None

    def put(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._calls.append(partial(call, *arguments, **options))

    def replay(self) -> None:
        for call in self._calls:
            call()
