"""The history as people read it, in the cases that the approved `check-made-up-history` does not have."""

from __future__ import annotations

from profiler.check.history import Entry, History, trend
from profiler.check.outputs.history import render
from tests.check.outputs import results
from tests.check.outputs.results import free


def test_an_empty_one() -> None:
    assert "No check is in it yet." in render(trend(History("h", (), (free("line 1 is damaged"),))))
    single = render(trend(History("h", results.history().history.entries[:1])))
    assert "No level changed." in single
    nothing = render(trend(History("h", (Entry("t", "INCONCLUSIVE"),))))
    assert "Nothing was measured." in nothing
