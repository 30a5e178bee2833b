"""Defines collectors: their interface, a thread that samples, and the set that records a run. Each is a module here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from profiler.core.errors import ProfilerError
from profiler.core.plugins import discover
from profiler.run import tables
from profiler.run.model import CollectorStatus, RunSpec
from profiler.run.store import RunWriter


@dataclass(frozen=True, slots=True)
class Context:
    """The run and the process that a collector records."""

    spec: RunSpec
    pid: int
    """PID of the target."""
    writer: RunWriter


class Collector(Protocol):
    """Records one kind of data from outside the target. A new object is made for every run.

    Order of calls: available; then, if it can run, describe (before the target starts), start, stop.
    """

    name: ClassVar[str]
    levels: ClassVar[tuple[str, ...]]
    """The levels at which it runs."""
    start_order: ClassVar[int]
    """Collectors start in ascending order: 0 where the start of a short program must not be missed."""

    def available(self) -> str | None:
        """None, or the reason in one line why it cannot run here."""

    def describe(self) -> Mapping[str, Any]:
        """Fields of RunInfo that this collector fills."""

    def start(self, context: Context) -> None:
        """Begin; returns at once."""

    def stop(self) -> CollectorStatus:
        """End, after the target has ended."""


class CollectorSet:
    """Chooses, starts and stops the collectors of a run. A collector that fails is a status; the run goes on.

    :raises ProfilerError: the spec names a collector or a level that does not exist.
    """

    def __init__(self, spec: RunSpec) -> None:
        kinds = {kind.name: kind for kind in discover("profiler.record.collectors")}
        missing = sorted(set(spec.collectors or ()) - kinds.keys())
        if missing:
            raise ProfilerError(f"there is no collector {', '.join(missing)}: choose from {', '.join(kinds)}")
        if spec.level not in tables.LEVELS:
            raise ProfilerError(f"there is no level {spec.level}: choose from {', '.join(tables.LEVELS)}")
        self.statuses: list[CollectorStatus] = []
        self._ready: list[Collector] = []
        self._running: list[Collector] = []
        for name, kind in kinds.items():
            if spec.collectors is not None and name not in spec.collectors:
                self.statuses.append(CollectorStatus(name, "off", "not asked for"))
            elif spec.collectors is None and spec.level not in kind.levels:
                self.statuses.append(CollectorStatus(name, "off", f"does not run at level {spec.level}"))
            elif reason := (collector := kind()).available():
                self.statuses.append(CollectorStatus(name, "unavailable", reason))
            else:
                self._ready.append(collector)

    def describe(self) -> dict[str, Any]:
        """Collect fields of RunInfo before the target starts."""
        fields: dict[str, Any] = {"collectors": tuple(self.statuses)}
        for collector in list(self._ready):
            try:
                fields.update(collector.describe())
            except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its status reports it
                self._add_failure(collector, error)
                self._ready.remove(collector)
        return fields

    def start(self, context: Context) -> None:
        """Start them by `start_order`."""
        for collector in sorted(self._ready, key=lambda collector: (collector.start_order, collector.name)):
            try:
                collector.start(context)
                self._running.append(collector)
            except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its status reports it
                self._add_failure(collector, error)

    def stop(self) -> None:
        """Stop those that run; afterwards `statuses` has every collector, sorted by name."""
        for collector in self._running:
            try:
                self.statuses.append(collector.stop())
            except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its status reports it
                self._add_failure(collector, error)
        self._running.clear()
        self.statuses.sort(key=lambda status: status.name)

    def _add_failure(self, collector: Collector, error: Exception) -> None:
        self.statuses.append(CollectorStatus(collector.name, "failed", describe_error(error)))


def describe_error(error: Exception) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class Sampler:
    """Calls `tick` every `period` seconds in a thread; `tick` returns how many records it wrote.

    Ticks that come too late are skipped and not made up for. The first one comes even if the end follows at once. At
    the end the thread calls `last`, which also returns how many records it wrote.
    """

    def __init__(
        self, name: str, period: float, tick: Callable[[], int], last: Callable[[], int] | None = None
    ) -> None:
        self._name = name
        self._period = period
        self._tick = tick
        self._last = last
        self._ended = threading.Event()
        self._records = 0
        self._skipped = 0
        self._cpu = 0.0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name=f"collector {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while True:
                self._records += self._tick()
                due += self._period
                late = time.monotonic() - due
                if late > 0:
                    self._skipped += 1 + int(late / self._period)
                    due += self._period * (1 + int(late / self._period))
                if self._ended.wait(max(0.0, due - time.monotonic())):
                    break
            if self._last:
                self._records += self._last()
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self._error = describe_error(error)
        finally:
            self._cpu = time.thread_time()

    def stop(self) -> CollectorStatus:
        """End the thread; `dropped` counts the ticks that came too late."""
        self._ended.set()
        self._thread.join()
        return CollectorStatus(
            self._name,
            "failed" if self._error else "ok",
            self._error,
            records=self._records,
            dropped=self._skipped,
            cost_s=self._cpu,
        )
