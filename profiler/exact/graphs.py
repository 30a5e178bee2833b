"""Runs CUDA graphs on virtual devices: the operators of a capture are kept, and each replay executes them again.

As on a GPU, a capture changes nothing, and a replay reads the tensors of the capture and writes its results to the
tensors that the capture made.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profiler.exact.marks import tensors_in
from profiler.exact.mode import VirtualMode
from profiler.exact.model import DeviceEvent, EventKind

_POOL: Final = (0, 1)
"""Identity of the memory pool that graphs name; all of them share the CPU's memory."""


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps operators with their arguments and results.

    It executes them, so that results exist, and takes back what they changed: a capture runs nothing.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self._made: set[int] = set()
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._random = torch.get_rng_state()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        for argument, value in zip(func._schema.arguments, args, strict=False):
            self._keep(argument, value)
        for argument in func._schema.arguments:
            self._keep(argument, options.get(argument.name))
        result = func(*args, **options)
        if all(returned.alias_info is None for returned in func._schema.returns):
            self._made.update(tensor.untyped_storage().data_ptr() for tensor in _strided(result))
        self.calls.append((func, args, options, result))
        return result

    def _keep(self, argument: Any, value: Any) -> None:
        """Keep the memory of an argument that an operator is about to change."""
        if argument.alias_info is None or not argument.alias_info.is_write:
            return
        for tensor in _strided(value):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._made and storage.data_ptr() not in self._before:
                copy: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
                self._before[storage.data_ptr()] = storage, copy

    def take_back(self) -> None:
        """Restore what the operators changed."""
        for storage, before in self._before.values():
            storage.copy_(before)
        self._before.clear()
        torch.set_rng_state(self._random)

    def play(self) -> None:
        """Execute the operators again."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for func, args, options, result in self.calls:
                again = func(*args, **options)
                for old, new in zip(_strided(result), _strided(again), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def _strided(values: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in((values,)) if tensor.layout is torch.strided]


def graph_class(mode: VirtualMode) -> type:
    """The class in the place of torch.cuda.CUDAGraph."""

    class CUDAGraph:
        """The operators of a capture."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._recording: _Recording | None = None

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
            """Keep operators from now on. The host may not wait for the device meanwhile."""
            self._recording = _Recording()
            mode.report(DeviceEvent(EventKind.LAUNCH, "graph capture", waits=False))
            mode.capturing = True
            enter: Any = self._recording.__enter__
            enter()

        def capture_end(self) -> None:
            """End the capture."""
            mode.capturing = False
            recording = self._captured()
            leave: Any = recording.__exit__
            leave(None, None, None)
            with torch._C.DisableTorchFunction():
                recording.take_back()

        def replay(self) -> None:
            """Execute the operators of the capture again."""
            recording = self._captured()
            mode.report(DeviceEvent(EventKind.LAUNCH, "graph replay", waits=False))
            recording.play()

        def _captured(self) -> _Recording:
            if self._recording is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            return self._recording

        def reset(self) -> None:
            """Forget the capture."""
            self._recording = None

        def instantiate(self) -> None:
            """A capture needs no further preparation."""

        def pool(self) -> Any:
            """The identity of the memory pool."""
            return _POOL

        def register_generator_state(self, generator: Any) -> None:
            """Replays draw from the generators of the CPU anyway."""

        def enable_debug_mode(self) -> None:
            """There is no graph to look at."""

    return CUDAGraph


def pool_handle() -> tuple[int, int]:
    """In the place of torch.cuda.graph_pool_handle."""
    return _POOL
