"""The page of a check: the verdict first, every text escaped, limits drawn, and the comparison behind it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from profiler.gate.model import BASE, CANDIDATE, CONTROL, MEASURE, Round, Turn
from profiler.report.blocks import Block, Callout, Group, Intervals, Items, Lines, Section, Stats, Table
from profiler.report.build import build_report
from profiler.report.gate import said
from profiler.report.gate.page import gate_report, gate_sections
from profiler.report.gate.rounds import ratio, typical
from profiler.report.render import html
from tests.report import pages, samples
from tests.report.gate import results


def flat(blocks: tuple[Block, ...]) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        found += (
            flat(tuple(one for _, column in block.columns for one in column)) if isinstance(block, Group) else [block]
        )
    return found


def of_kind(sections: tuple[Section, ...], kind: type) -> list[Any]:
    return [block for section in sections for block in flat(section.blocks) if type(block) is kind]


@pytest.mark.parametrize("name", results.everything())
def test_the_verdict_is_the_first_block_and_keys_are_unique(name: str) -> None:
    result = results.everything()[name]
    sections = gate_sections(result)
    first = sections[0].blocks[0]
    assert isinstance(first, Callout)
    assert (first.label, first.text, first.judged) == (
        result.state,
        said.headline(result),
        {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "open"}[result.state],
    )
    assert len({section.key for section in sections}) == len(sections)


@pytest.mark.parametrize("name", results.everything())
def test_the_page_is_sound(name: str) -> None:
    text = html.render(gate_report(results.everything()[name]))
    page = pages.read(text)
    assert page.unclosed == []
    assert page.tags.count("script") == 1
    assert page.tags.count("img") == 0
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert results.everything()[name].state in page.text


def test_counters_that_fail_come_first() -> None:
    (table,) = [one for one in of_kind(gate_sections(results.failed()), Table) if one.caption == "Counters per step"]
    names = [row[0].text for row in table.rows]
    assert names[:4] == ["Syncs", "Calls that would sync on a GPU", "H2D copies", "Allocations"]
    assert [row[1].judged for row in table.rows][:3] == ["bad", "bad", "good"]


def test_lines_that_changed_are_places() -> None:
    tables = of_kind(gate_sections(results.failed()), Table)
    (table,) = [one for one in tables if one.caption == "Lines at which counters changed"]
    (row,) = table.rows
    assert (row[0].text, row[0].note, row[0].code) == ("examples/train.py:104", "train_step, item", True)
    assert [cell.text for cell in row[1:]] == ["+1 sync", "0", "1"]


def test_the_figure_draws_estimates_rounds_and_limits() -> None:
    (figure,) = of_kind(gate_sections(results.failed()), Intervals)
    assert isinstance(figure, Intervals)
    assert [row.label for row in figure.rows] == [
        "typical step",
        "all steps",
        "rounds, median steps",
        "control, median steps",
    ]
    assert [(level.value, level.text) for level in figure.levels] == [(0.0, "0%"), (5.0, "5%")]
    assert figure.rows[0].value == pytest.approx(100 * math.expm1(0.0521))
    assert len(figure.rows[2].dots) == 8
    assert all(3 < dot < 8 for dot in figure.rows[2].dots), figure.rows[2].dots
    assert "decides nothing" in figure.note
    (lines,) = of_kind(gate_sections(results.failed()), Lines)
    assert isinstance(lines, Lines)
    assert lines.numbered, "there is no round 0"
    assert [(curve.label, len(curve.x)) for curve in lines.panels[0].curves] == [
        ("base", 8),
        ("candidate", 8),
        ("control", 3),
    ]


def test_a_round_of_one_side_has_no_ratio_and_is_not_drawn() -> None:
    turns = (Turn(BASE, 0, (50_000_000, 52_000_000)), Turn(CONTROL, 1, ()))
    one = Round(1, MEASURE, (BASE,), turns)
    assert typical(one, BASE) == pytest.approx(0.051)
    assert ratio(one, CANDIDATE) is None
    assert ratio(one, CONTROL) is None
    gate = results.passed().throughput
    assert gate is not None
    result = replace(results.passed(), throughput=replace(gate, rounds=(one,), lines=()))
    assert of_kind(gate_sections(result), Intervals) == []
    assert pages.read(html.render(gate_report(result))).unclosed == []


def test_ratios_are_of_medians() -> None:
    (one, *_) = results.rounds(0.1, 1)
    assert ratio(one, CANDIDATE) == pytest.approx(math.log(1.1), abs=0.02)
    noise = random.Random(2)
    turns = tuple(replace(turn, steps=(*turn.steps, noise.randrange(10**10, 10**11))) for turn in one.turns)
    assert ratio(replace(one, turns=turns), CANDIDATE) == pytest.approx(math.log(1.1), abs=0.03), (
        "stalls move no median"
    )


def test_what_was_not_measured_says_so() -> None:
    (stats,) = of_kind(gate_sections(results.unmeasured()), Stats)
    assert isinstance(stats, Stats)
    assert [bool(stat.value.missing) for stat in stats.items] == [True, True, False]
    assert of_kind(gate_sections(results.unmeasured()), Intervals) == []


def test_doubts_stand_with_the_verdict() -> None:
    (doubts, *_) = [one for one in gate_sections(results.failed())[0].blocks if isinstance(one, Items)]
    assert (doubts.title, len(doubts.items)) == ("Doubts", 2)


def test_the_comparison_follows_with_titles_of_its_own() -> None:
    comparison = build_report(samples.comparison())
    report = gate_report(results.passed(), comparison.sections)
    assert len(report.sections) == 4 + len(comparison.sections)
    keys = [section.key for section in report.sections]
    titles = [section.title for section in report.sections]
    assert len(set(keys)) == len(keys)
    assert len(set(titles)) == len(titles), titles
    assert titles[4] == "Comparison"
    page = pages.read(html.render(report))
    assert page.unclosed == []
