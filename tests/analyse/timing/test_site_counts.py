"""Counts of each line per step, from constructed runs."""

from __future__ import annotations

from profiler.analyse.timing.counters import call_sites
from profiler.analyse.timing.counts import site_counts
from profiler.analyse.window import measured_window
from profiler.run.tables import CallKind, CountKind
from tests.recorded.builders import MS, RunBuilder


def test_counts_of_a_line_are_per_step_after_the_first_one() -> None:
    builder = RunBuilder()
    builder.steps(4, 10 * MS)
    for end, number in ((10, 7), (20, 2), (30, 2), (40, 3)):
        builder.count(end * MS, CountKind.OPERATOR, "aten::mm", number, site="train.py:5")
    (count,) = site_counts(builder.build())
    assert (count.kind, count.name, count.site and count.site.line) == (CountKind.OPERATOR, "aten::mm", 5)
    assert (count.before, count.per_step, count.usual, count.steps) == (7, {(2, 0): 2, (3, 0): 1}, (2, 0), 3)


def test_what_is_counted_at_several_boundaries_of_a_step_adds_up() -> None:
    builder = RunBuilder()
    builder.steps(3, 10 * MS)
    for time in (15, 20, 30):
        builder.count(time * MS, CountKind.ALLOCATION, "", 1, size=512, site="train.py:5")
    builder.count(35 * MS, CountKind.ALLOCATION, "", 9, site="train.py:5")  # after the last step
    (count,) = site_counts(builder.build())
    assert count.per_step == {(2, 1024): 1, (1, 512): 1}
    assert count.bytes_per_step == 768


def test_a_wait_is_counted_with_its_line() -> None:
    builder = RunBuilder()
    builder.steps(3, 10 * MS)
    builder.call(CallKind.SYNC, 12 * MS, 12 * MS, site="train.py:8")
    (count,) = site_counts(builder.build())
    assert (count.kind, count.waits, count.mean) == (CountKind.SYNC, True, 0.5)


def test_the_lines_of_libraries_that_wait_are_kept_with_their_number() -> None:
    builder = RunBuilder()
    builder.steps(4, 10 * MS)
    for begin, line in ((12, 3), (13, 3), (22, 5), (32, 0)):
        builder.named_call(CallKind.SYNC, "item", begin * MS, begin * MS + 1, site="train.py:8:main", blocked=1)
        if line:
            builder.library_call(begin * MS, f"/venv/lib/python3.11/site-packages/kit/__init__.py:{line}:read")
    run = builder.build()
    (count,) = site_counts(run)
    assert [(line.file, line.line, line.function, calls) for line, calls in count.frames] == [
        ("kit/__init__.py", 3, "read", 2),
        ("kit/__init__.py", 5, "read", 1),
    ]
    (call,) = call_sites(run, measured_window(run), with_operations=True)
    assert call.library is not None
    assert (call.site.line, call.library.file, call.library.line) == (8, "kit/__init__.py", 3)


def test_each_process_has_steps_of_its_own() -> None:
    builder = RunBuilder()
    for pid in (1, 2):
        builder.steps(2, 10 * MS, pid=pid)
    builder.count(20 * MS, CountKind.COLLECTIVE, "all_reduce", 1, size=64, pid=1)
    builder.count(20 * MS, CountKind.COLLECTIVE, "all_reduce", 2, size=64, pid=2)
    (count,) = site_counts(builder.build())
    assert count.site is None
    assert count.per_step == {(1, 64): 1, (2, 64): 1}
