"""The line through the times of steps with batches of two sizes, and what the making of batches waits for."""

from __future__ import annotations

import pytest

from profiler.analyse.timing.counters import batch_curve
from profiler.analyse.timing.input import making_waits
from profiler.analyse.window import measured_window
from profiler.core.metrics import BlockedIn
from profiler.run.tables import BATCH_ITEMS
from tests.recorded.builders import MS, PID, TID, RunBuilder


def curve_of(sizes: list[int], fixed: int = 8, starts: bool = False) -> object:
    """The curve of steps that take `fixed` ms and 1 ms for each item, beside 5 ms of waiting for each batch."""
    builder, begin = RunBuilder(), 0
    for number, size in enumerate(sizes):
        end = begin + (5 + fixed + size) * MS
        builder.step(begin, end)
        builder.counter(BATCH_ITEMS, size, step=number)
        builder.region("data", begin, begin + 5 * MS)
        if starts and size == 2:  # as if an epoch ended in this step
            builder.region("loader start", end - MS, end)
        begin = end
    run = builder.build()
    return batch_curve(run, measured_window(run))


def test_what_remains_without_any_item() -> None:
    curve = curve_of([8, 8, 8, 2] * 6)
    assert (curve.size, curve.other) == (8, 2)
    assert (curve.seconds, curve.other_seconds) == (pytest.approx(0.016), pytest.approx(0.010))
    assert (curve.low, curve.fixed, curve.high) == (pytest.approx(0.008),) * 3


def test_no_line_through_one_size() -> None:
    assert curve_of([8] * 20).fixed is None
    assert curve_of([8] * 20 + [2] * 4).fixed is None, "four steps tell too little"
    assert curve_of([8, 7] * 10).fixed is None
    assert curve_of([8, 8, 8, 2] * 6, starts=True).fixed is None, "these steps have what follows an epoch"
    run = RunBuilder().build()
    assert batch_curve(run, measured_window(run)) is None


def test_no_line_where_batches_are_requested_a_step_ahead() -> None:
    """All steps take the same time: the smaller batch is computed in the step after that of its request."""
    builder, length = RunBuilder(), 20 * MS
    for epoch in range(8):
        for at, size in enumerate([8, 8, 8, 8, 2, 0]):
            begin = (6 * epoch + at) * length
            builder.step(begin, begin + length)
            builder.region("data", begin + 2 * MS, begin + 3 * MS)
            if at == 0:
                builder.region("loader start", begin, begin + MS)
            if size:
                builder.counter(BATCH_ITEMS, size, step=6 * epoch + at)
    run = builder.build()
    curve = batch_curve(run, measured_window(run))
    assert curve is not None
    assert (curve.size, curve.fixed) == (8, None)


def test_waits_for_files_count_only_while_batches_are_made() -> None:
    builder = RunBuilder()
    builder.steps(10, 20 * MS)
    for at in range(0, 200, 2):
        is_making = at % 20 < 12
        if at % 20 == 0:
            builder.region("dataset", at * MS, (at + 12) * MS)
        kind = BlockedIn.FILE if not is_making or at % 20 < 6 else BlockedIn.NOTHING
        builder.sample("thread.blocked_in", at * MS, int(kind), pid=PID, tid=TID)
    run = builder.build()
    assert making_waits(run, measured_window(run), [(PID, TID)]) == (pytest.approx(0.5), 0.0)
    assert making_waits(run, measured_window(run), [(PID, TID + 1)]) is None


def test_waits_for_a_core_are_no_time_of_a_batch() -> None:
    builder = RunBuilder()
    builder.steps(10, 20 * MS)
    for at in range(0, 200, 2):
        if at % 20 == 0:
            builder.region("dataset", at * MS, (at + 20) * MS)
        kind = BlockedIn.FILE if at % 20 < 4 else BlockedIn.NOTHING
        builder.sample("thread.blocked_in", at * MS, int(kind), pid=PID, tid=TID)
        builder.sample("thread.wait_s", at * MS, at * 0.75e-3, pid=PID, tid=TID)
        builder.sample("thread.cpu_s", at * MS, at * 0.05e-3, pid=PID, tid=TID)
    run = builder.build()
    # a fifth of the samples, and of the others only one in sixteen is not a wait for a core
    assert making_waits(run, measured_window(run), [(PID, TID)]) == (pytest.approx(0.8), 0.0)
