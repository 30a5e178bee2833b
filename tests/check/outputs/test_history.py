"""The history as people read it, in the cases that the approved `check-made-up-history` does not have."""

from __future__ import annotations

import pytest

from profiler.check.history import Entry, History
from profiler.check.outputs.history import history_report
from profiler.report.render import markdown
from tests.check.outputs import results


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ((), "No check is in it yet."),
        (results.history().entries[:1], "No level changed."),
        ((Entry("t", "INCONCLUSIVE"),), "Nothing was measured."),
    ],
)
def test_a_short_history(entries: tuple[Entry, ...], words: str) -> None:
    assert words in markdown.render(history_report(History("h", entries)))
