"""The report on tokenization: the sentence that it begins with, and its table."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from profiler.report.blocks import Table
from profiler.report.render.console import print_report
from reference_trainer.report.tokenization_report import sentence, tokenization_report
from tests.fakes.tokenization import document, way

BASE = way("sequential", 1.0, spread=0.0)
SHARDS = way("shards", 100.0, tokenizes=False)
DONE_BEFORE = "Fastest here: shards, 100× sequential (95% interval 95.0× to 105×)"


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (
            (BASE, way("parallel", 1.8, threads=2)),
            "Fastest here: parallel with 2 threads, 1.80× sequential (95% interval 1.71× to 1.89×).",
        ),
        (
            (BASE, way("parallel", 1.8, threads=2), SHARDS),
            f"{DONE_BEFORE}; of the ways that tokenize, parallel with 2 threads, 1.80× (95% interval 1.71× to 1.89×).",
        ),
        (
            (BASE, way("batch", 1.02), SHARDS),
            f"{DONE_BEFORE}; of the ways that tokenize, none is seen to be faster than sequential.",
        ),
        (
            (BASE, way("theirs", 0.2), SHARDS),
            f"{DONE_BEFORE}; of the ways that tokenize, none is seen to be faster than sequential.",
        ),
        ((BASE, way("batch", 1.02)), "No way is seen to be faster here than sequential."),
        ((BASE, way("batch", 0.5)), "No way is seen to be faster here than sequential."),
    ],
)
def test_the_sentence(ways: tuple[dict[str, Any], ...], expected: str) -> None:
    assert sentence(document(*ways)) == expected


def test_the_table() -> None:
    [section] = tokenization_report(document()).sections
    [table] = [block for block in section.blocks if isinstance(block, Table)]
    rows = {row[0].text: row for row in table.rows}
    assert list(rows) == ["sequential", "batch", "parallel", "pre-tokenized"]
    assert [cell.text for cell in rows["sequential"]] == ["sequential", "1", "1.00k", "400k", "1.00", "baseline"]
    parallel = rows["parallel"]
    assert [cell.text for cell in parallel] == ["parallel", "2", "1.80k", "720k", "0.556", "1.80"]
    assert (parallel[2].note, parallel[5].interval) == ("1.71k to 1.89k", "1.71 to 1.89")
    assert rows["batch"][5].note.endswith("no difference seen")
    assert table.note.startswith("Library 1.0: sequential (how sequential works), batch (how batch works)")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_is_drawn_at_any_width(width: int) -> None:
    drawn = io.StringIO()
    print_report(tokenization_report(document()), console=Console(file=drawn, width=width))
    text = drawn.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    for part in ("Tokenization", "made-up.txt · 4,096 tokens", "parallel"):
        assert part in text, text
