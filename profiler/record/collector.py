"""What a collector is, and the thread that samples for those that poll."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from profiler.run.model import CollectorStatus, RunSpec
from profiler.run.store import RunWriter


@dataclass(frozen=True, slots=True)
class Context:
    """What a collector is told when the target has started."""

    spec: RunSpec
    pid: int
    """Of the target."""
    writer: RunWriter


class Collector(Protocol):
    """Records one kind of thing from outside the target. Made afresh for every run.

    Order of calls: available; then, if it can run, describe (before the target starts), start, stop.
    """

    name: ClassVar[str]
    levels: ClassVar[tuple[str, ...]]
    """The levels at which it runs."""

    def available(self) -> str | None:
        """None, or the reason in one line why it cannot run here."""

    def describe(self) -> Mapping[str, Any]:
        """Fields of RunInfo that this collector knows."""

    def start(self, context: Context) -> None:
        """Begin; returns at once."""

    def stop(self) -> CollectorStatus:
        """End, after the target has ended; says how it went."""


class Sampler:
    """Calls `tick` every `period` seconds in a thread of its own, which cannot hurt the target.

    `tick` returns how many records it wrote. Ticks that come too late are skipped, never made up for; the first one
    comes however soon the end does.
    """

    def __init__(self, name: str, period: float, tick: Callable[[], int]) -> None:
        self._name = name
        self._period = period
        self._tick = tick
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
        except Exception as error:  # noqa: BLE001 - the edge of a thread, and the status reports it
            self._error = f"{type(error).__name__}: {' '.join(str(error).split())}"
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
