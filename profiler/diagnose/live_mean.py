"""What a live verdict is spoken from: the mean of the last seconds, so that it does not change with every reading."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

from profiler.core.live import GpuUse, ProcessUse, Snapshot, ThreadUse

SPAN_S: Final = 5.0
Use = TypeVar("Use", ThreadUse, ProcessUse, GpuUse)


class Recent:
    """The snapshots of the last SPAN_S."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()

    def mean(self, snapshot: Snapshot) -> Snapshot:
        """`snapshot` with its rates of CPU and GPU as they were on average; what is new or gone has no past."""
        if snapshot.interval is None:
            return snapshot
        self._kept.append(snapshot)
        while len(self._kept) > 1 and sum(one.interval or 0.0 for one in self._kept) > SPAN_S + snapshot.interval / 2:
            self._kept.popleft()
        past = list(self._kept)
        cpu = _mean((one.cpu, one.interval) for one in past)
        return dataclasses.replace(
            snapshot,
            cpu=cpu if snapshot.cpu is not None else None,
            threads=_averaged(past, lambda one: one.threads, _thread, ("cpu", "delayed")),
            processes=_averaged(past, lambda one: one.processes, lambda use: use.pid, ("cpu",)),
            gpus=_averaged(past, lambda one: one.gpus, lambda use: use.index, ("utilization",)),
        )


def _thread(use: ThreadUse) -> Hashable:
    return use.pid, use.tid


def _averaged(
    past: Sequence[Snapshot],
    of: Callable[[Snapshot], tuple[Use, ...]],
    key: Callable[[Use], Hashable],
    fields: tuple[str, ...],
) -> tuple[Use, ...]:
    """The uses of the last snapshot, in its order, with `fields` weighted by the lengths of the intervals."""
    before: dict[Hashable, list[tuple[Use, float | None]]] = {}
    for one in past:
        for use in of(one):
            before.setdefault(key(use), []).append((use, one.interval))

    def averaged(use: Use) -> Use:
        history = before[key(use)]
        means: dict[str, Any] = {
            name: _mean((getattr(old, name), length) for old, length in history) for name in fields
        }
        return dataclasses.replace(use, **means)

    return tuple(map(averaged, of(past[-1])))


def _mean(values: Iterable[tuple[float | None, float | None]]) -> float | None:
    known = [(value, length) for value, length in values if value is not None and length]
    whole = sum(length for _, length in known)
    return sum(value * length for value, length in known) / whole if whole else None
