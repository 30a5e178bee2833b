"""The page of a check as HTML; tests/approval has the text of all its blocks for every made-up result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.comparison import SideRuns, compare
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.measures import Measure
from profiler.check.model import BASE, CANDIDATE, MEASURE, Hunk, Round, SlowerLine, StepBlock
from profiler.check.outputs.page import gate_report, gate_sections
from profiler.diagnose.comparison import diagnose_comparison
from profiler.report.blocks import Block, Group, IntervalChart, Section, Table, Text
from profiler.report.build import build_report
from profiler.report.comparison_text import with_comparison_verdict
from profiler.report.render import html
from profiler.run.model import RunInfo, Site
from tests.check.outputs import results
from tests.report import pages, samples


def of_kind(sections: tuple[Section, ...], kind: type) -> list[Any]:
    """The blocks of a type, those in groups included."""

    def flat(block: Block) -> list[Block]:
        inner = [item for _, column in block.columns for item in column] if isinstance(block, Group) else []
        return inner or [block]

    return [item for section in sections for block in section.blocks for item in flat(block) if type(item) is kind]


@pytest.mark.parametrize("name", results.everything())
def test_the_page_is_sound_and_begins_with_the_verdict(name: str) -> None:
    result = results.everything()[name]
    report = gate_report(result)
    assert report.first is not None
    headline, keys = report.first.headline, [section.key for section in report.sections]
    assert (headline.highlight, headline.judged) == (
        result.state,
        {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "open", "NOT COMPARABLE": "open"}[result.state],
    )
    assert report.first.actions or result.state == "PASS"
    assert bool(report.first.places or report.first.places_note) >= (result.state == "FAIL")
    assert len(set(keys)) == len(keys)
    page = pages.read(html.render(report))
    assert page.unclosed == []
    assert page.tags.count("script") == 1
    assert page.tags.count("img") == 0
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert result.state in page.text


def test_a_round_of_one_side_is_not_drawn() -> None:
    measured = Round(1, MEASURE, (BASE,), (StepBlock(BASE, 0, (50_000_000, 52_000_000)), StepBlock(CANDIDATE, 1, ())))
    speed = results.speed(results.passed())
    speed = replace(speed, rounds=(measured,), round_slowdowns=(None,), lines=())
    sections = gate_sections(replace(results.passed(), throughput=speed))
    assert of_kind(sections, IntervalChart) == []
    (row,) = next(table for table in of_kind(sections, Table) if table.caption == "Every round").rows
    assert (row[2].text, bool(row[3].missing), bool(row[4].missing)) == ("51.0", True, True)


def test_what_was_not_measured_is_marked_as_missing() -> None:
    (table,) = [
        each for each in of_kind(gate_sections(results.unmeasured()), Table) if each.caption.startswith("INCONCLUSIVE")
    ]
    assert [bool(cell.missing) for cell in table.rows[0]] == [False, False, True, True, False, True]
    assert of_kind(gate_sections(results.unmeasured()), IntervalChart) == []


def test_the_comparison_follows_with_titles_of_its_own() -> None:
    comparison = build_report(samples.comparison())
    report = gate_report(results.passed(), comparison.sections)
    assert len(report.sections) == 4 + len(comparison.sections)
    for names in ([section.key for section in report.sections], [section.title for section in report.sections]):
        assert len(set(names)) == len(names)
    assert report.sections[4].title == "Comparison"
    assert pages.read(html.render(report)).unclosed == []


def _run_with_unknown_time(seconds: float, *lines: LineCost) -> Analysis:
    step = 0.05 + seconds
    measures = {
        "step_time": Measure("step_time", step, "s"),
        "steps_per_s": Measure("steps_per_s", 1 / step, "steps/s"),
    }
    parts = {"compute": Measure("compute", 0.05, "s"), "unattributed": Measure("unattributed", seconds, "s")}
    info = RunInfo(1, "r", "r", ("train.py",), facts={"device": "cpu"})
    return Analysis(info, measures, parts, {}, lines=lines)


@pytest.mark.parametrize("is_hinted", [True, False])
def test_no_share_is_unknown_above_a_table_that_names_its_line(is_hinted: bool) -> None:
    """Stack samples see a line, and not whether it ran Python or waited: then its line is told, and nothing is said to
    be unknown."""
    line = LineCost(Site("forward.py", 95, "forward"), "", 0.19, 0.76, 0.7, 0.8, 200, {"unattributed": 0.19}, 0.19)
    base, candidate = _run_with_unknown_time(0.001), _run_with_unknown_time(0.2, *[line] * is_hinted)
    runs = {"base": SideRuns("base", "", (base, base), base)}
    runs["candidate"] = SideRuns("candidate", "", (candidate, candidate), candidate)
    comparison = compare(tuple(runs.values()))
    comparison = with_comparison_verdict(comparison, diagnose_comparison(comparison))
    slower = (SlowerLine("forward.py", 95, "forward", 0.001, 0.19, False, "x = layer(x)"),) if is_hinted else ()
    result = replace(results.failed(), causes=(), explanation=comparison.verdict, slower_lines=slower)
    report = gate_report(result, build_report(comparison).sections)
    assert report.first is not None
    told = [*report.first.why, *(block.text for block in of_kind(report.sections, Text))]
    assert any("unknown" in text or "not known" in text for text in told) is not is_hinted
    assert any("uncertain category from 2.0% to 80% of a step (forward.py:95)" in text for text in told) is is_hinted
    assert any(place.location == "forward.py:95 in forward()" for place in report.first.places) is is_hinted
    first = build_report(comparison).first  # the page of `compare`
    assert first is not None
    assert any("unknown" in text for text in first.why) is not is_hinted


def test_what_changed_stands_beside_the_line_once() -> None:
    first = gate_report(results.failed_with_changes()).first
    assert first is not None
    assert [(place.change, bool(place.diff)) for place in first.places] == [
        ("0 → 1 sync; 400 µs → 3.10 ms, +5% of a step", True),
        ("0 → 1.10 ms, +2% of a step", False),
    ]
    assert "+    total += loss.item()" in first.places[0].diff
    page = html.render(gate_report(results.failed_with_changes()))
    assert "&lt;b&gt;as text&lt;/b&gt;" in page
    assert page.count("total += loss.detach()") == 1


def test_a_long_hunk_is_cut_around_the_line() -> None:
    hunk = Hunk("examples/train.py", 1, 1, tuple(f"+line {number}" for number in range(1, 301)))
    first = gate_report(replace(results.failed(), hunks=(hunk,))).first
    assert first is not None
    diff = first.places[0].diff
    assert (diff[0], diff[-1], len(diff)) == ("…", "…", 14)
    assert "+line 104" in diff


def test_lines_that_the_diff_did_not_write_come_after_those_that_it_changed() -> None:
    hunk = Hunk("examples/train.py", 1, 1, ("-a", "+b"))
    first = gate_report(replace(results.failed(), hunks=(hunk,), slower_lines=())).first
    assert first is not None
    assert [(place.path, bool(place.diff)) for place in first.places] == [
        ("examples/train.py:1", True),
        ("examples/train.py:104", False),
    ]
    assert first.places_note == "No single line takes longer by more than chance."
    assert "The diff changed examples/train.py:1." in first.why
