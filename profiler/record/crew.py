"""The collectors of one run: which of them work here, and how each of them fared."""

from __future__ import annotations

from typing import Any

from profiler.core.errors import ProfilerError
from profiler.core.plugins import discover
from profiler.record.collector import Collector, Context
from profiler.run import tables
from profiler.run.model import CollectorStatus, RunSpec


class Crew:
    """Chooses, starts and stops collectors. A collector that fails is a status; the run goes on.

    :raises ProfilerError: the spec names a collector or a level that does not exist.
    """

    def __init__(self, spec: RunSpec) -> None:
        kinds = discover("profiler.record.collectors")
        _check(spec, tuple(kind.name for kind in kinds))
        self.statuses: list[CollectorStatus] = []
        self._ready: list[Collector] = []
        self._running: list[Collector] = []
        for kind in kinds:
            if spec.collectors is not None and kind.name not in spec.collectors:
                self.statuses.append(CollectorStatus(kind.name, "off", "not asked for"))
            elif spec.collectors is None and spec.level not in kind.levels:
                self.statuses.append(CollectorStatus(kind.name, "off", f"does not run at level {spec.level}"))
            else:
                self._engage(kind())

    def _engage(self, collector: Collector) -> None:
        reason = collector.available()
        if reason is None:
            self._ready.append(collector)
        else:
            self.statuses.append(CollectorStatus(collector.name, "unavailable", reason))

    def describe(self) -> dict[str, Any]:
        """What the collectors know before the target starts: fields of RunInfo."""
        known: dict[str, Any] = {"collectors": tuple(self.statuses)}
        for collector in list(self._ready):
            try:
                known.update(collector.describe())
            except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its status reports it
                self._drop(collector, error)
                self._ready.remove(collector)
        return known

    def start(self, context: Context) -> None:
        """Start them; stacks before the others, because a short target ends soon."""
        for collector in sorted(self._ready, key=lambda collector: collector.name, reverse=True):
            try:
                collector.start(context)
                self._running.append(collector)
            except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its status reports it
                self._drop(collector, error)

    def stop(self) -> None:
        """Stop those that run; afterwards `statuses` has every collector, by name."""
        for collector in self._running:
            try:
                self.statuses.append(collector.stop())
            except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its status reports it
                self._drop(collector, error)
        self._running.clear()
        self.statuses.sort(key=lambda status: status.name)

    def _drop(self, collector: Collector, error: Exception) -> None:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        self.statuses.append(CollectorStatus(collector.name, "failed", reason))


def _check(spec: RunSpec, known: tuple[str, ...]) -> None:
    unknown = sorted(set(spec.collectors or ()) - set(known))
    if unknown:
        raise ProfilerError(f"there is no collector {', '.join(unknown)}: choose from {', '.join(known)}")
    if spec.level not in tables.LEVELS:
        raise ProfilerError(f"there is no level {spec.level}: choose from {', '.join(tables.LEVELS)}")
