"""Reads the events of a Kineto trace by the standard library alone, so that what the page shows can be checked by hand.

Times are µs, as in the file; nothing of profiler/ is used.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, Final

_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
_RUNTIME: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "Runtime")
_HOST: Final = (*_RUNTIME, "cpu_op", "Operator", "user_annotation", "python_function")
_WAITS: Final = re.compile(r"Synchronize|Memcpy")
_COMMUNICATION: Final = re.compile(r"^(nccl|rccl)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Event:
    """One event with its times in µs, and the text of its time stamp in the file."""

    name: str
    category: str
    begin: Fraction
    end: Fraction
    tid: str
    stamp: str

    @property
    def ms(self) -> float:
        return float(self.end - self.begin) / 1000

    def __str__(self) -> str:
        return f"`{short(self.name)}` at ts {self.stamp}, {self.ms:.3f} ms"


def short(name: str, most: int = 60) -> str:
    """The name of an event, cut, without what would break a table."""
    text = name.replace("|", "/").replace("`", "'")
    return text if len(text) <= most else text[: most - 1] + "…"


Spans = list[tuple[Fraction, Fraction]]


def union(events: Iterable[Event]) -> Spans:
    """The time that events cover."""
    merged: Spans = []
    for event in sorted(events, key=lambda each: each.begin):
        if merged and event.begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], event.end)
        elif event.end > event.begin:
            merged.append((event.begin, event.end))
    return merged


def length(spans: Spans) -> Fraction:
    return sum((end - begin for begin, end in spans), Fraction(0))


def clipped(spans: Spans, low: Fraction, high: Fraction) -> Spans:
    return [(max(begin, low), min(end, high)) for begin, end in spans if end > low and begin < high]


class RawTrace:
    """The complete events of a trace, and its window: from the first annotated step to the last, else all of it."""

    def __init__(self, path: Path) -> None:
        document = json.loads(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"), parse_float=str)
        rows = document if isinstance(document, list) else document["traceEvents"]
        events = [_event(row) for row in rows if row.get("ph") == "X" and row.get("cat") in (*_DEVICE, *_HOST)]
        self.device = sorted((each for each in events if each.category in _DEVICE), key=lambda each: each.begin)
        self.host = sorted((each for each in events if each.category in _HOST), key=lambda each: each.begin)
        self.steps = [each for each in self.host if each.name.startswith("ProfilerStep#")]
        bounds = self.steps or events
        self.low, self.high = min(each.begin for each in bounds), max(each.end for each in bounds)
        driving = Counter(each.tid for each in self.host if each.category in _RUNTIME)
        self.main = self.steps[0].tid if self.steps else max(driving or {"": 0}, key=lambda tid: driving[tid])

    @property
    def window_ms(self) -> float:
        return float(self.high - self.low) / 1000

    def inside(self, events: Iterable[Event]) -> list[Event]:
        """The events that begin within the window."""
        return [each for each in events if self.low <= each.begin < self.high]

    def busy(self, *, computing: bool = False) -> float:
        """The share of the window in which the device ran, or only computed."""
        chosen = [each for each in self.device if not computing or _is_computing(each)]
        return float(length(clipped(union(chosen), self.low, self.high)) / (self.high - self.low))

    def communication(self) -> list[Event]:
        return self.inside(each for each in self.device if _COMMUNICATION.search(each.name))

    def gaps(self, most: int = 3) -> list[tuple[Fraction, Fraction]]:
        """The longest gaps between activities of the device in the window."""
        busy = clipped(union(self.device), self.low, self.high)
        edges = [self.low, *(edge for span in busy for edge in span), self.high]
        gaps = [(edges[at], edges[at + 1]) for at in range(0, len(edges), 2)]
        return sorted(gaps, key=lambda gap: gap[0] - gap[1])[:most]

    def host_during(self, begin: Fraction, end: Fraction) -> tuple[Event, float] | None:
        """The shortest event that covers half of a gap, else the one that covers most, and the share that it covers."""
        best: tuple[bool, Fraction, Event] | None = None
        for event in self._overlapping(begin, end):
            covered = min(end, event.end) - max(begin, event.begin)
            is_most = 2 * covered >= end - begin
            key = (is_most, event.begin - event.end if is_most else covered)
            if best is None or key > best[:2]:
                best = (*key, event)
        if best is None:
            return None
        return best[2], float((min(end, best[2].end) - max(begin, best[2].begin)) / (end - begin))

    def _overlapping(self, begin: Fraction, end: Fraction) -> Iterator[Event]:
        last = bisect_right(self.host, end, key=lambda each: each.begin)
        skip = ("ProfilerStep#",)
        return (each for each in self.host[:last] if each.end > begin and not each.name.startswith(skip))

    def idle_during(self, pattern: str) -> float:
        """The share of the window in which the device was idle while a host event of this name ran."""
        named = clipped(union(e for e in self.host if re.search(pattern, e.name)), self.low, self.high)
        busy = clipped(union(self.device), self.low, self.high)
        return float((length(named) - _common(named, busy)) / (self.high - self.low))

    def waits(self, most: int = 2) -> list[Event]:
        """The longest calls in the window that may wait for the device."""
        calls = [each for each in self.inside(self.host) if each.category in _RUNTIME and _WAITS.search(each.name)]
        return sorted(calls, key=lambda each: each.begin - each.end)[:most]

    def totals(self, most: int = 3) -> list[tuple[str, int, float]]:
        """The names of device activities in the window with most time: name, count, ms."""
        count: Counter[str] = Counter()
        time: Counter[str] = Counter()
        for each in self.inside(self.device):
            count[each.name] += 1
            time[each.name] += each.ms  # type: ignore[assignment]
        return [(name, count[name], float(total)) for name, total in time.most_common(most)]

    def launches(self) -> int:
        calls = (each for each in self.inside(self.host) if each.category in _RUNTIME)
        return sum("Launch" in each.name for each in calls)

    def kernels(self) -> tuple[int, float]:
        """The number of kernels in the window, and their median length in µs."""
        lengths = [1000 * each.ms for each in self.inside(self.device) if each.category.lower() == "kernel"]
        return len(lengths), median(lengths) if lengths else 0.0


def _common(first: Spans, second: Spans) -> Fraction:
    total, at = Fraction(0), 0
    for begin, end in first:
        while at and second[at - 1][1] > begin:
            at -= 1
        while at < len(second) and second[at][0] < end:
            total += max(Fraction(0), min(end, second[at][1]) - max(begin, second[at][0]))
            at += 1
    return total


def _is_computing(event: Event) -> bool:
    return event.category.lower() == "kernel" and not _COMMUNICATION.search(event.name)


def _event(row: dict[str, Any]) -> Event:
    begin = Fraction(str(row["ts"]))
    return Event(
        str(row["name"]),
        row["cat"],
        begin,
        begin + Fraction(str(row.get("dur", 0))),
        str(row.get("tid")),
        str(row["ts"]),
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
