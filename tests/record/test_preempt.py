"""Where a sampler sits: on the core of the thread that it samples, and only while it samples."""

from __future__ import annotations

import os
from typing import Any

import pytest

from profiler.core.procfs import ProcessStat
from profiler.record.collectors import _preempt
from profiler.record.collectors._preempt import Seat

SAMPLER, TARGET = 70, 50


class System:
    """Threads of a sampler, and the core of the thread that it samples."""

    def __init__(self) -> None:
        self.core: int | None = 1
        self.threads = [70, 71]
        self.moved: list[tuple[int, Any]] = []
        self.policies: list[tuple[int, int]] = []

    @property
    def stat(self) -> ProcessStat | None:
        return None if self.core is None else ProcessStat("x", "R", 1, 1, 0.0, 1, 0, 0, self.core)

    def set_affinity(self, tid: int, cores: Any) -> None:
        if tid == 99:
            raise PermissionError
        self.moved.append((tid, cores))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    made = System()
    monkeypatch.setattr(_preempt, "read_stat", lambda pid: made.stat if pid == TARGET else None)
    monkeypatch.setattr(_preempt, "thread_ids", lambda pid: made.threads if pid == SAMPLER else [])
    monkeypatch.setattr(os, "sched_setaffinity", made.set_affinity)
    monkeypatch.setattr(os, "sched_setscheduler", lambda tid, policy, _: made.policies.append((tid, policy)))
    return made


def test_it_follows_the_thread_and_looks_less_often_while_that_stays(system: System) -> None:
    seat = Seat(SAMPLER, TARGET)
    seat.take()
    assert system.moved == [(70, {1}), (71, {1})]
    assert system.policies == [(70, os.SCHED_RR), (71, os.SCHED_RR)]
    soon = seat.pause_s
    seat.take()
    assert len(system.moved) == 2
    assert seat.pause_s == 2 * soon
    system.core, system.threads = 0, [70, 71]
    seat.take()
    assert system.moved[2:] == [(70, {0}), (71, {0})]
    assert seat.pause_s == soon
    system.threads = [70, 71, 72]
    seat.take()
    assert system.moved[4:] == [(72, {0})], "only the new one"
    assert not seat.refused


def test_it_looks_often_enough_however_long_nothing_moves(system: System) -> None:
    seat = Seat(SAMPLER, TARGET)
    for _ in range(20):
        seat.take()
    assert seat.pause_s <= 0.02


def test_it_leaves_to_where_it_came_from(system: System) -> None:
    seat = Seat(SAMPLER, TARGET)
    seat.take()
    seat.leave()
    assert system.moved[2:] == [(70, os.sched_getaffinity(0)), (71, os.sched_getaffinity(0))]
    assert system.policies[2:] == [(70, os.SCHED_OTHER), (71, os.SCHED_OTHER)]
    seat.leave()
    assert len(system.moved) == 4


def test_a_move_that_is_refused_is_said_and_a_target_that_is_gone_is_left(system: System) -> None:
    system.threads = [99]
    seat = Seat(SAMPLER, TARGET)
    seat.take()
    assert seat.refused
    system.core = None
    seat.take()
    assert system.moved == []
