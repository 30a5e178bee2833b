"""The page of a check: the verdict first, every text escaped, limits drawn, and the comparison behind it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from profiler.check.model import BASE, CONTROL, MEASURE, Round, StepBlock
from profiler.check.outputs import text as sentences
from profiler.check.outputs.page import gate_report, gate_sections
from profiler.report.blocks import Block, Callout, Group, IntervalChart, Items, Lines, Section, Stats, Table, Text
from profiler.report.build import build_report
from profiler.report.render import html
from tests.check.outputs import results
from tests.report import pages, samples


def flat(blocks: tuple[Block, ...]) -> list[Block]:
    flat_blocks: list[Block] = []
    for block in blocks:
        inner = tuple(item for _, column in block.columns for item in column) if isinstance(block, Group) else ()
        flat_blocks += flat(inner) if inner else [block]
    return flat_blocks


def table(sections: tuple[Section, ...], caption: str) -> Table:
    (match,) = [block for block in of_kind(sections, Table) if block.caption == caption]
    return match  # type: ignore[no-any-return]


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
        sentences.headline(result),
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


def test_a_failure() -> None:
    sections = gate_sections(results.failed())
    rows = table(sections, "Counters per step").rows
    names = [row[0].text for row in rows]
    assert names[:4] == ["Syncs", "Calls that would sync on a GPU", "H2D copies", "Allocations"], (
        "those that fail first"
    )
    assert [row[1].judged for row in rows][:3] == ["bad", "bad", "good"]
    (row,) = table(sections, "Lines at which counters changed").rows
    assert (row[0].text, row[0].note, row[0].code) == ("examples/train.py:104", "train_step, item", True)
    assert [cell.text for cell in row[1:]] == ["+1 sync", "0", "1"]
    speed = results.speed(results.failed())
    rounds = table(sections, "Every round")
    assert rounds.columns[4].title == "Slow-down"
    assert [row[4].sort for row in rounds.rows] == [100 * math.expm1(value or 0) for value, _ in speed.round_slowdowns]
    verdict = sections[0].blocks
    assert isinstance(verdict[1], Text)
    assert verdict[1].text == results.failed().explanation, "where the time went stands below the verdict"
    assert not isinstance(gate_sections(results.passed())[0].blocks[1], Text)
    (warnings,) = [block for block in verdict if isinstance(block, Items)]
    assert (warnings.title, len(warnings.items)) == ("Warnings", 2)


def test_the_figure_draws_estimates_rounds_and_limits() -> None:
    (figure,) = of_kind(gate_sections(results.failed()), IntervalChart)
    assert isinstance(figure, IntervalChart)
    assert [row.label for row in figure.rows] == ["typical step", "all steps", "base against itself"]
    assert [(level.value, level.text) for level in figure.levels] == [(0.0, "0%"), (5.0, "5%")]
    assert figure.rows[0].value == pytest.approx(100 * math.expm1(0.0521))
    gate = results.speed(results.failed())
    first, _, control = figure.rows
    assert first.dots == tuple(100 * math.expm1(value or 0) for value, _ in gate.round_slowdowns)
    assert all(3 < dot < 8 for dot in first.dots), first.dots
    assert (len(control.dots), control.value) == (3, pytest.approx(100 * math.expm1(0.002))), "the gate's own figure"
    (lines,) = of_kind(gate_sections(results.failed()), Lines)
    assert isinstance(lines, Lines)
    assert lines.numbered, "there is no round 0"
    assert [(curve.label, len(curve.x)) for curve in lines.panels[0].curves] == [
        ("base", 8),
        ("candidate", 8),
        ("control", 3),
    ]


def test_a_round_of_one_side_is_not_drawn() -> None:
    measured = Round(1, MEASURE, (BASE,), (StepBlock(BASE, 0, (50_000_000, 52_000_000)), StepBlock(CONTROL, 1, ())))
    speed = results.speed(results.passed())
    speed = replace(speed, rounds=(measured,), round_slowdowns=((None, None),), lines=())
    sections = gate_sections(replace(results.passed(), throughput=speed))
    assert of_kind(sections, IntervalChart) == []
    (row,) = table(sections, "Every round").rows
    assert (row[2].text, bool(row[3].missing), bool(row[4].missing)) == ("51.0", True, True)


def test_a_pass_says_what_it_rules_out_and_a_fail_does_not_say_what_it_could_have_seen() -> None:
    labels = {}
    for name in ("passed", "failed", "inconclusive"):
        (stats,) = of_kind(gate_sections(results.everything()[name]), Stats)
        labels[name] = {stat.label: (f"{stat.value.text}{stat.value.unit}", stat.value.note) for stat in stats.items}
    passed = labels["passed"]["Ruled out: slower by more than"]
    assert passed == ("1.2%", "from +3.1% on it would have been a FAIL (80%)")
    assert "FAIL from (80%)" not in labels["failed"]
    assert labels["inconclusive"]["FAIL from (80%)"] == ("+7.4%", "typical step")


def test_what_was_not_measured_is_marked_as_missing() -> None:
    (stats,) = of_kind(gate_sections(results.unmeasured()), Stats)
    assert isinstance(stats, Stats)
    assert [bool(stat.value.missing) for stat in stats.items] == [True, True, False]
    assert of_kind(gate_sections(results.unmeasured()), IntervalChart) == []


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
