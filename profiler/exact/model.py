"""Defines the cards that virtual devices show, the events of a program, and their counts by line."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Final, NamedTuple, Protocol

from profiler.agent.patching import is_user_file


@dataclass(frozen=True, slots=True)
class Card:
    """A model of GPU: what `torch.cuda.get_device_properties` tells about it."""

    name: str
    major: int
    """Major number of the compute capability."""
    minor: int
    total_memory: int
    """Bytes."""
    multi_processor_count: int


_GIB: Final = 1 << 30
CARDS: Final = {
    "h100": Card("NVIDIA H100 80GB HBM3", 9, 0, 80 * _GIB, 132),
    "a100": Card("NVIDIA A100-SXM4-40GB", 8, 0, 40 * _GIB, 108),
    "v100": Card("Tesla V100-SXM2-16GB", 7, 0, 16 * _GIB, 80),
    "l4": Card("NVIDIA L4", 8, 9, 24 * _GIB, 58),
    "t4": Card("Tesla T4", 7, 5, 16 * _GIB, 40),
}
"""Name of the option -> card, by NVIDIA's data sheets: memory as sold, streaming multiprocessors."""


class EventKind(StrEnum):
    """What a program does with a device."""

    SYNC = "sync"
    """The host waits until the device has executed everything before."""
    HOST_TO_DEVICE = "h2d"
    DEVICE_TO_HOST = "d2h"
    DEVICE_TO_DEVICE = "d2d"
    LAUNCH = "launch"
    """A CUDA graph is captured or replayed."""


class DeviceEvent(NamedTuple):
    """One operation that the program requests of a device."""

    kind: EventKind
    name: str
    """The call: `item`, `nonzero`, `to`, ..."""
    size: int = 0
    """Bytes of a copy."""
    pinned: bool = False
    """Whether the memory of the CPU that a copy uses is page-locked."""
    waits: bool = True
    """Whether the host waits for it."""


class EventSink(Protocol):
    """Receives every event, with the frame of the program that causes it."""

    def __call__(self, event: DeviceEvent, frame: FrameType) -> None: ...


class ProgramLine(NamedTuple):
    """A line of the program, and the library's line that the program called, if the event happens in a library."""

    file: str
    line: int
    function: str
    library: str = ""
    """`FILE:LINE` in the library."""


_HERE: Final = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - as code objects have it


def user_site(frame: FrameType | None) -> ProgramLine | None:
    """Return the innermost line of the program at or above `frame`; None if there is none."""
    library = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_user_file(file):
            return ProgramLine(file, frame.f_lineno, frame.f_code.co_qualname, library)
        if not library and not file.startswith(_HERE):
            library = f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@dataclass(slots=True)
class Counts:
    """The events of a program, counted by kind, call and line.

    Two runs of a program that does the same have equal counts.
    """

    events: Counter[tuple[DeviceEvent, ProgramLine | None]] = field(default_factory=Counter)

    def __call__(self, event: DeviceEvent, frame: FrameType) -> None:
        self.events[event, user_site(frame)] += 1

    def total(self, kind: EventKind) -> int:
        """Return the number of events of a kind; of SYNC, copies that the host waits for too."""
        return sum(number for (event, _), number in self.events.items() if _is_kind(event, kind))

    @property
    def syncs(self) -> int:
        """How often the host waited for a device."""
        return self.total(EventKind.SYNC)

    def sites(self, kind: EventKind = EventKind.SYNC) -> Counter[str]:
        """Return the number of events of a kind by `FILE:LINE` of the program, the most frequent first."""
        lines: Counter[str] = Counter()
        for (event, site), number in self.events.items():
            if _is_kind(event, kind):
                lines[f"{site.file}:{site.line}" if site else "unknown"] += number
        return Counter(dict(lines.most_common()))

    def bytes(self, kind: EventKind) -> int:
        """Return the bytes that the copies of a direction move: `h2d`, `d2h` or `d2d`."""
        return sum(event.size * number for (event, _), number in self.events.items() if event.kind == kind)

    def clear(self) -> None:
        """Start again at zero."""
        self.events.clear()


def _is_kind(event: DeviceEvent, kind: EventKind) -> bool:
    return event.kind == kind or (kind == EventKind.SYNC and event.waits)
