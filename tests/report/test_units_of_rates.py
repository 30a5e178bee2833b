"""What a program's steps count is called what the program calls it, in every section that says how fast it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Comparison
from profiler.report.blocks import Table
from profiler.report.build import build_report as build
from profiler.report.render.markdown import render
from tests.fakes.sentences import compare_verdict
from tests.report import ladders
from tests.report.test_build import of_kind


@pytest.mark.parametrize("ladder", [True, False], ids=["ladder", "pair"])
def test_a_report_of_points_never_speaks_of_tokens(ladder: bool) -> None:
    subject = ladders.in_points()
    if not ladder:
        subject = replace(subject, extensions={})
    subject = replace(subject, verdict=compare_verdict(subject), headline="")
    assert "the points/s of as-found" in subject.verdict
    document = build(subject)
    speed = [section for section in document.sections if section.key in ("verdict", "throughput", "ladder")]
    assert len(speed) == 2 + ladder
    text = render(replace(document, sections=tuple(speed)))
    assert "Points a second" in text
    assert "points/s" in text
    assert "tokens a second" not in text.lower()
    assert "tokens/s" not in text


def first_rows(subject: Comparison) -> set[str]:
    """Measures in the table of the verdict."""
    (table,) = [table for table in of_kind(subject, "verdict", Table) if table.caption == "Before and after"]
    return {row[0].text for row in table.rows}


def test_on_a_cpu_the_first_table_has_no_rows_of_a_queue() -> None:
    of_a_queue = {"Device busy", "Syncs per step"}
    assert of_a_queue <= first_rows(ladders.with_ladder())
    found = ladders.saying(device="cpu")
    sides = tuple(
        replace(
            side,
            measures={n: m for n, m in side.measures.items() if n in ("tokens_per_s", "step_time", "host_cpu")},
            detail=None,
        )
        for side in found.sides
    )
    rows = first_rows(replace(found, sides=sides))
    assert rows == {"Throughput, tokens/s", "Time of a step", "Host CPU, cores"}
