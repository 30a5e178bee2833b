"""Replaces `torch.cuda` by virtual devices: their properties, streams, events, memory and random numbers.

Streams order nothing here, because every operation has been executed when its call returns. Waits for them are counted,
and times between events are times of the CPU, which tell nothing about a GPU.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final, Self

import torch

from profiler.exact.compiled import graph_class, pool_handle
from profiler.exact.marks import Machine, named_cuda
from profiler.exact.mode import VirtualMode

_MS_PER_NS: Final = 1e-6


class Stream:
    """A queue of a virtual device."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device, self.priority = _mode().machine.device(device), priority
        self.stream_id = self.cuda_stream = id(self)
        self.device_index = self.device.index

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return 0, -5

    def synchronize(self) -> None:
        """Count a wait."""
        _mode().wait("stream synchronize")

    def query(self) -> bool:
        """Tell whether everything in the queue has been executed: always."""
        return True

    def is_capturing(self) -> bool:
        """Tell whether a CUDA graph is captured."""
        return _mode().capturing

    def wait_event(self, event: Event) -> None:
        """Order the queue after an event."""

    def wait_stream(self, stream: Stream) -> None:
        """Order the queue after another one."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event in the queue."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Self:
        self._before = _streams.current
        _streams.current = self
        return self

    def __exit__(self, *_: object) -> None:
        _streams.current = self._before


class ExternalStream(Stream):
    """A queue that another library made."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        super().__init__(device)


class StreamContext:
    """Context manager that chooses a queue; None: no other one."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


class _Streams(threading.local):
    """The queues of a thread."""

    def __init__(self) -> None:
        self.current: Stream | None = None
        """The queue that the program chose."""


_streams: Final = _Streams()
_default_streams: Final[dict[int, Stream]] = {}
"""The default queue of each device."""


def default_stream(device: Any = None) -> Stream:
    """Return the default queue of a device."""
    index = _mode().machine.device(device).index
    return _default_streams.setdefault(index, Stream(index))


def current_stream(device: Any = None) -> Stream:
    """Return the queue that the program chose, or the default one."""
    return _streams.current or default_stream(device)


def set_stream(stream: Stream) -> None:
    """Choose a queue."""
    _streams.current = stream


class Event:
    """A point in a queue."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, **_: Any) -> None:
        self.enable_timing, self.blocking = enable_timing, blocking
        self._at: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Remember the time of the CPU."""
        self._at = time.perf_counter_ns()

    def synchronize(self) -> None:
        """Count a wait."""
        _mode().wait("event synchronize")

    def query(self) -> bool:
        """Tell whether the event has happened: always."""
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """Order a queue after this event."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of the CPU until another event."""
        if self._at is None or end._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end._at - self._at) * _MS_PER_NS


def generic_class(original: Any, own: type) -> type:
    """Return a class in the place of torch.Stream or torch.Event, which makes those of virtual devices too."""

    class Generic(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, (original, own))

        def __call__(cls, device: Any = None, *args: Any, **options: Any) -> Any:
            if device is None or named_cuda(device):
                return own(device, *args, **options) if own is Stream else own(*args, **options)
            return original(device, *args, **options)

    return Generic(original.__name__, (), {"__module__": original.__module__})


_installed: Final[list[VirtualMode]] = []


def use(mode: VirtualMode | None) -> None:
    """Let streams, events and generators use this mode; None: no mode any more."""
    _installed[:] = [] if mode is None else [mode]


def _mode() -> VirtualMode:
    return _installed[0]


def generator_class() -> type:
    """Return a class in the place of torch.Generator, whose objects state the device that they were made for."""
    original = torch.Generator

    class AnyGenerator(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, original)

    class Generator(original, metaclass=AnyGenerator):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            generator: Any = original.__new__(cls, torch.device("cpu"))  # type: ignore[call-arg]
            cuda = bool(_installed) and named_cuda(device)
            generator.named = _mode().machine.device(device) if cuda else torch.device(device)
            return generator

        @property
        def device(self) -> Any:
            return self.named

    return Generator


class device:  # noqa: N801 - the name in torch
    """Context manager that changes the current device."""

    def __init__(self, device: Any) -> None:
        self.idx = (
            -1 if device is None or (isinstance(device, int) and device < 0) else _mode().machine.device(device).index
        )

    def __enter__(self) -> None:
        self.before = _mode().machine.current
        if self.idx >= 0:
            _mode().machine.current = self.idx

    def __exit__(self, *_: object) -> None:
        _mode().machine.current = self.before


class device_of(device):  # noqa: N801
    """Context manager that changes the current device to that of a tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else None)


def replacements(mode: VirtualMode) -> dict[str, Any]:
    """Return the functions and classes of torch.cuda, by name, for these virtual devices."""
    machine = mode.machine
    return (
        _properties(machine)
        | _memory(machine)
        | _random()
        | {
            "Stream": Stream,
            "Event": Event,
            "device": device,
            "device_of": device_of,
            "ExternalStream": ExternalStream,
            "stream": StreamContext,
            "set_stream": set_stream,
            "StreamContext": StreamContext,
            "current_stream": current_stream,
            "default_stream": default_stream,
            "CUDAGraph": graph_class(mode),
            "_graph_pool_handle": pool_handle,
            "graph_pool_handle": pool_handle,
            "is_current_stream_capturing": lambda: mode.capturing,
            "default_generators": (torch.default_generator,) * len(machine.devices),
            "_sleep": always(None),
            "synchronize": lambda *_, **__: mode.wait("synchronize"),
        }
    )


def _properties(machine: Machine) -> dict[str, Any]:
    card = machine.card
    properties = SimpleNamespace(
        name=card.name, major=card.major, minor=card.minor, total_memory=card.total_memory, warp_size=32,
        multi_processor_count=card.multi_processor_count, is_integrated=0, is_multi_gpu_board=0, gcnArchName="",
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, shared_memory_per_block=49152,
    )  # fmt: skip

    def current(device: Any = None) -> int:
        return machine.device(device).index or 0

    def set_device(device: Any) -> None:
        machine.current = current(device)

    return {
        "is_available": always(True),
        "is_initialized": always(True),
        "init": always(None),
        "_lazy_init": always(None),
        "_is_in_bad_fork": always(False),
        "device_count": lambda: len(machine.devices),
        "current_device": lambda: machine.current,
        "set_device": set_device,
        "get_device_name": always(card.name),
        "get_device_capability": always((card.major, card.minor)),
        "get_device_properties": always(properties),
        "get_arch_list": lambda: [f"sm_{card.major}{card.minor}"],
        "is_bf16_supported": lambda including_emulation=True: card.major >= 8 or including_emulation,
        "is_tf32_supported": always(card.major >= 8),
        "can_device_access_peer": always(True),
        "ipc_collect": always(None),
        "utilization": _unknown("utilization"),
        "temperature": _unknown("temperature"),
        "power_draw": _unknown("power_draw"),
        "clock_rate": _unknown("clock_rate"),
        "device_memory_used": _unknown("device_memory_used"),
        "cudart": _unknown("cudart"),
        "get_sync_debug_mode": always(0),
        "set_sync_debug_mode": always(None),
    }


def always(value: Any) -> Callable[..., Any]:
    """Return a function that returns this value, whatever its arguments are."""
    return lambda *_, **__: value


def _unknown(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"torch.cuda.{name}: a virtual CUDA device has no such reading")

    return refuse


_STATISTICS: Final = (
    *(
        f"{name}.{pool}.{value}"
        for name in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
                     "active_bytes", "inactive_split_bytes", "requested_bytes")
        for pool in ("all", "small_pool", "large_pool")
        for value in ("current", "peak", "allocated", "freed")
    ),
    *("num_alloc_retries", "num_ooms", "num_sync_all_streams", "max_split_size"),
)  # fmt: skip
"""The names in the result of torch.cuda.memory_stats."""
_NO_SNAPSHOT: Final[dict[str, list[Any]]] = {"segments": [], "device_traces": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", **_: Any) -> None:
    """Write a snapshot of no memory."""
    with open(filename, "wb") as file:
        pickle.dump(_NO_SNAPSHOT, file)


class MemPool:
    """A pool of memory, which is the CPU's."""

    id = (0, 0)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Virtual devices have one pool."""


def _memory(machine: Machine) -> dict[str, Any]:
    def memory(device: Any) -> Any:
        return machine.memory[machine.device(device).index or 0]

    def allocated(device: Any = None) -> int:
        return int(memory(device).allocated)

    def peak(device: Any = None) -> int:
        return int(memory(device).peak)

    def reset(device: Any = None) -> None:
        memory(device).peak = memory(device).allocated

    def stats(device: Any = None) -> dict[str, int]:
        values = dict.fromkeys(_STATISTICS, 0)
        for name in ("allocated", "reserved", "active"):
            values[f"{name}_bytes.all.current"] = allocated(device)
            values[f"{name}_bytes.all.peak"] = peak(device)
        values["allocation.all.allocated"] = int(memory(device).allocations)
        return values

    total = machine.card.total_memory
    return {
        "memory_allocated": allocated,
        "max_memory_allocated": peak,
        "memory_reserved": allocated,
        "max_memory_reserved": peak,
        "memory_cached": allocated,
        "max_memory_cached": peak,
        "reset_peak_memory_stats": reset,
        "reset_max_memory_allocated": reset,
        "reset_max_memory_cached": reset,
        "reset_accumulated_memory_stats": always(None),
        "memory_stats": stats,
        "memory_summary": always("a virtual device keeps no summary of its memory"),
        "memory_snapshot": list,
        "_snapshot": always(_NO_SNAPSHOT),
        "_dump_snapshot": _dump_snapshot,
        "_record_memory_history": always(None),
        "mem_get_info": lambda device=None: (total - allocated(device), total),
        "empty_cache": lambda: _mode().wait("empty_cache"),
        "MemPool": MemPool,
        "use_mem_pool": nullcontext,
        "set_per_process_memory_fraction": always(None),
    }


def _random() -> dict[str, Any]:
    return {
        # the CPU's generator draws for all devices, and torch.manual_seed seeds it
        "manual_seed": always(None),
        "manual_seed_all": always(None),
        "seed": always(None),
        "seed_all": always(None),
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state() for _ in range(torch.cuda.device_count())],
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
    }
