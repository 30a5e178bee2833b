"""Lines of user code by what they asked of the device."""

from __future__ import annotations

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.device import CallSite
from profiler.run.model import Site
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, CallKind
from tests.recorded.builders import RunBuilder, timeline


def test_sites_by_kind_of_call() -> None:
    # the last calls have no site, and come after the last step
    run = timeline(
        "steps 2 100; d2h 0 30 20 t.py:8:f bytes=64; d2h 110 120 50 t.py:8:f bytes=64;"
        "launch 40 45 t.py:8:f thread=999; launch 50 60; launch 250 260 t.py:8:f"
    )
    site = Site("t.py", 8, "f")
    assert analyse(run).call_sites == (
        CallSite(site, "d2h", 1.0, pytest.approx(20e-9), pytest.approx(15e-9), 64.0),
        CallSite(site, "launch", 0.5, pytest.approx(2.5e-9), 0.0, 0.0),
    )


def test_hooks_name_operations_and_what_a_loader_notes_is_no_call() -> None:
    builder = RunBuilder()
    builder.steps(2, 100)
    builder.boundary(100)
    for at, name in ((10, "item"), (20, "item"), (30, "mask index")):
        builder.named_call(CallKind.MIGHT_SYNC, name, at, at + 2, site="t.py:8:f")
    for name in ("dataset", "collate", WORKER_OF, TOKENIZED, RECOMPILED):
        builder.named_call(CallKind.OTHER, name, 40, 40, site="t.py:9:f")
    assert [(row.kind, row.operation, row.calls_per_step) for row in analyse(builder.build()).call_sites] == [
        ("might_sync", "item", 1.0),
        ("might_sync", "mask index", 0.5),
    ]
