"""The history as people read it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from profiler.check.history import Entry, History, HistoryBounds, trend
from profiler.check.outputs.history import print_history, render
from tests.check.outputs.results import free


def entries(count: int = 24) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            f"2026-05-{1 + k:02}T12:30:59+00:00",
            "FAIL" if k == 12 else "PASS",
            commit=f"{k:02}abcdef",
            what=f"working tree ({k:02}abcde)",
            counters={"syncs": (2.0 + (k >= 12),) * 2, "h2d_bytes (workers)": (4096.0,) * 2},
            slowdowns={"typical step": HistoryBounds(0.05 if k == 12 else 0.001 * (k % 3), -0.01, 0.06, 7)},
            step_time=0.05 * (1.05 if k >= 12 else 1) + 0.0001 * (k % 4),
            machine={"cpu": "A | B", "cores": "2"},
        )
        for k in range(count)
    )


def test_markdown() -> None:
    text = render(trend(History("history.jsonl", entries(), (free("line 3 is damaged"),))))
    assert "history.jsonl: 23 PASS, 1 FAIL; 2026-05-01 12:30 to 2026-05-24 12:30" in text
    assert "- Syncs: 2 → 3 per step (+50%) since 12abcde (2026-05-13 12:30); the result before is of 11abcde" in text
    assert "Step time: 50.1 ms → 52.6 ms (+4.99%) since 12abcde" in text
    assert "p = 0.00" in text
    assert "1 counter never changed." in text
    assert "Warning:** line 3 is damaged" in text
    assert "▁" in text
    assert "A \\| B, 2 cores" in text, "a name broke the table"
    table = text[text.index("The last 10, the newest first") :]
    assert table.index("2026-05-24") < table.index("2026-05-15")
    assert "2026-05-14" not in table


def test_terminal_of_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_history(trend(History("h", entries())), stream=stream)
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "Syncs: 2" in text
    assert "____" in text
    assert "Last results" in text


def test_an_empty_one() -> None:
    assert "No check is in it yet." in render(trend(History("h", (), (free("line 1 is damaged"),))))
    single = render(trend(History("h", entries(1))))
    assert "No level changed." in single
    nothing = render(trend(History("h", (Entry("t", "INCONCLUSIVE"),))))
    assert "Nothing was measured." in nothing


def test_a_result_shows_its_commit_and_the_line_that_is_slower() -> None:
    both = {"typical step": HistoryBounds(0.01, -0.01, 0.02, 7), "all steps": HistoryBounds(0.03, 0.02, 0.04, 7)}
    entry = Entry("2026-05-01", "FAIL", commit="3f2a9c1ee+changes", what="python train.py", slowdowns=both)
    for state, shown in (
        ("FAIL", "+3.0% (+2.0% to +4.1%, all steps)"),
        ("PASS", "+1.0% (-1.0% to +2.0%, typical step)"),
    ):
        text = render(trend(History("h", (replace(entry, state=state),))))
        assert f"3f2a9c1+changes: python train.py | {state} | {shown}" in text, text
    named = replace(entry, what="working tree (3f2a9c1+changes)")
    assert text.count("3f2a9c1") == render(trend(History("h", (named,)))).count("3f2a9c1") == 1


def test_a_checkout_with_changes_is_no_commit() -> None:
    first, *others = entries()
    dirty = [replace(entry, what=f"working tree ({entry.commit[:7]}+changes)") for entry in others]
    text = render(trend(History("h", (first, *dirty))))
    assert "since 12abcde+changes (2026-05-13 12:30); the result before is of 11abcde+changes" in text
