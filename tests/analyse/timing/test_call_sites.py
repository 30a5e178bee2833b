"""Lines of user code by what they asked of the device, and counters held against the recorded calls."""

from __future__ import annotations

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import CallSite
from profiler.run.model import Site
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, ActivityKind, CallKind
from tests.fakes.sentences import warnings
from tests.recorded.builders import RunBuilder


def test_sites_by_kind_of_call() -> None:
    builder = RunBuilder()
    builder.steps(2, 100)
    builder.call(CallKind.D2H, 0, 30, blocked=20, bytes=64, site="t.py:8:f")
    builder.call(CallKind.D2H, 110, 120, blocked=50, bytes=64, site="t.py:8:f")
    builder.call(CallKind.LAUNCH, 40, 45, site="t.py:8:f", tid=999)
    builder.call(CallKind.LAUNCH, 50, 60)  # no site
    builder.call(CallKind.LAUNCH, 250, 260, site="t.py:8:f")  # after the last step
    site = Site("t.py", 8, "f")
    assert analyse(builder.build()).call_sites == (
        CallSite(site, "d2h", 1.0, pytest.approx(20e-9), pytest.approx(15e-9), 64.0),
        CallSite(site, "launch", 0.5, pytest.approx(2.5e-9), 0.0, 0.0),
    )


def counted(**amounts: int) -> tuple[str, ...]:
    builder = RunBuilder(device="host")
    builder.steps(2, 100)
    for step in range(2):
        begin = step * 100
        builder.call(CallKind.LAUNCH, begin, begin + 5)
        builder.call(CallKind.D2H, begin + 10, begin + 50, blocked=30, bytes=8)
        builder.call(CallKind.SYNC, begin + 60, begin + 70)
        builder.activity(ActivityKind.KERNEL, begin + 10, begin + 30)
        for name, amount in amounts.items():
            builder.counter(name, amount, step=step)
    return warnings(analyse(builder.build()))


def test_counters_that_agree_with_the_calls_are_not_mentioned() -> None:
    agreeing = counted(syncs=2, launches=1, d2h=1, d2h_bytes=8, h2d=0, allocations=0, device_busy_ns=20, own=99)
    assert not [note for note in agreeing if "counter" in note or "counts" in note], agreeing


def test_counters_that_disagree_become_a_note_with_both_numbers() -> None:
    notes = counted(syncs=3, d2h_bytes=16, device_busy_ns=90)
    assert "counter syncs says 3 per step, the recorded calls 2" in notes
    assert "counter d2h_bytes says 16 per step, the recorded calls 8" in notes
    assert "the device counts 90.0% of its time as busy, its recorded activities 20.0%" in notes


def test_a_found_run_names_operations_and_leaves_out_what_a_loader_notes() -> None:
    builder = RunBuilder()
    builder.steps(2, 100)
    builder.boundary(100)
    for at, name in ((10, "item"), (20, "item"), (30, "mask index")):
        builder.named_call(CallKind.WOULD_SYNC, name, at, at + 2, site="t.py:8:f")
    for name in ("dataset", "collate", WORKER_OF, TOKENIZED, RECOMPILED):
        builder.named_call(CallKind.OTHER, name, 40, 40, site="t.py:9:f")
    hot = analyse(builder.build()).call_sites
    assert [(row.kind, row.operation, row.calls_per_step) for row in hot] == [
        ("would_sync", "item", 1.0),
        ("would_sync", "mask index", 0.5),
    ]
