"""The sections of lines and of the time outside of steps, and their JSON."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from profiler.analyse.model import Analysis, Comparison, LineCost, Period, Phase, UnmeasuredPeriod
from profiler.report.blocks import Cell, StackedBars, Table
from profiler.report.build import build_report
from profiler.report.render.console import print_comparison
from profiler.report.render.json import analysis_json, render
from profiler.report.sections import lines, startup_teardown
from profiler.report.sections.lines import compare_lines, compare_phases
from profiler.run.model import Site, StepDefinition, StepKind
from tests.report import hook_samples, samples

LOOP, LOG = Site("train.py", 41, "main"), Site("train.py", 7, "log_metrics")
LINES = (
    LineCost(LOOP, "torch.autograd.graph._engine_run_backward", 0.06, 0.6, 0.55, 0.65, 300, {"compute": 0.06}),
    LineCost(LOG, "", 0.04, 0.4, 0.35, 0.45, 200, {"python": 0.03, "log": 0.0099, "input": 0.0001}),
)
PHASES = (
    Phase("backward", 0.06, 0.6, 0.6, 0.6, LOOP),
    Phase("after the optimizer", 0.03, 0.3, 0.2, 0.4, LOG, "log_metrics"),
    Phase("elsewhere", 0.01, 0.1, 0.0, 0.2),
)
OUTSIDE = (UnmeasuredPeriod(Period.STARTUP, 5.0, LINES), UnmeasuredPeriod(Period.TEARDOWN, 1.0))


def found() -> Analysis:
    return replace(
        samples.analysis(),
        lines=LINES,
        phases=PHASES,
        startup_teardown=OUTSIDE,
        step=StepDefinition(StepKind.OPTIMIZER, (("Adam (train.py:15)",),)),
    )


def tables(blocks: tuple[object, ...]) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table)]


def texts(row: tuple[Cell, ...]) -> list[str]:
    return [f"{cell.text} {cell.unit}".strip() for cell in row]


def test_a_row_a_line_with_its_interval_and_what_it_is() -> None:
    section = samples.build_section(lines.PLUGIN, found())
    [table] = tables(section.blocks)
    assert [texts(row) for row in table.rows] == [
        ["train.py:41", "graph._engine_run_backward", "60.0 ms", "60.0 %", "compute"],
        ["train.py:7", "the line itself", "40.0 ms", "40.0 %", "python 75%, log 25%"],
    ]
    assert [row[3].note for row in table.rows] == ["55.0 to 65.0", "35.0 to 45.0"]


def test_phases_are_a_bar_that_adds_up_and_say_where_they_lie() -> None:
    section = samples.build_section(lines.PLUGIN, found())
    [bars] = [block for block in section.blocks if isinstance(block, StackedBars)]
    assert [segment.label for segment in bars.bars[0].segments] == ["backward", "after step", "elsewhere"]
    assert len({segment.tone for segment in bars.bars[0].segments}) == 3
    assert bars.bars[0].text == "100 ms"
    assert "after the optimizer train.py:7 (log_metrics)" in bars.note


def test_many_lines_are_counted_that_are_left_out() -> None:
    many = tuple(replace(LINES[1], site=Site("train.py", number, "f"), share=0.01) for number in range(40))
    section = samples.build_section(lines.PLUGIN, replace(found(), lines=many))
    [table] = tables(section.blocks)
    assert len(table.rows) == 25
    assert "15 more lines share 15.0% of the step" in table.note


def test_few_samples_are_said_to_be_a_hint() -> None:
    notes = []
    for number in (20, 30):
        section = samples.build_section(
            lines.PLUGIN, replace(found(), lines=tuple(replace(line, samples=number) for line in LINES))
        )
        notes += [table.note for table in tables(section.blocks)]
    assert notes[0].startswith("Only 40 stack samples (50 needed")
    assert notes[1].startswith("95% intervals")


def test_time_outside_names_its_stretch_once() -> None:
    section = samples.build_section(startup_teardown.PLUGIN, found())
    [table] = tables(section.blocks)
    assert [row[0].text for row in table.rows] == ["before the first step", "", "after the last step"]
    assert table.rows[2][2].missing == "no stack sample in it"


def test_a_program_without_samples_has_neither() -> None:
    assert samples.build_section(lines.PLUGIN, samples.analysis()) is None
    assert samples.build_section(startup_teardown.PLUGIN, samples.analysis()) is None


def test_json_has_them_with_the_reason_of_what_has_no_line() -> None:
    document = analysis_json(found())
    render(document)
    assert document["step_source"] == "steps of Adam (train.py:15)"
    assert [(line["file"], line["line"], line["share"]) for line in document["lines"]] == [
        ("train.py", 41, 0.6),
        ("train.py", 7, 0.4),
    ]
    assert document["phases"][1]["calls"] == "log_metrics"
    assert document["phases"][2]["line"] is None
    assert document["not_measured"]["phases.2.line"] == "no line of the program's own was seen"
    assert [one["seconds"] for one in document["outside"]] == [5.0, 1.0]


def in_terminal(comparison: Comparison, width: int = 120) -> str:
    out = io.StringIO()
    print_comparison(comparison, console=Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_the_lines_of_two_sides_stand_beside_each_other_each_in_its_own_order() -> None:
    comparison = hook_samples.comparison()
    before, after = comparison.sides
    turned = replace(after.detail, lines=(after.detail.lines[1], after.detail.lines[0]))
    (table,) = compare_lines(samples.sides(replace(comparison, sides=(before, replace(after, detail=turned)))))
    assert [column.title for column in table.columns] == [
        "as-found: line", "as-found: per step", "fixed: line", "fixed: per step",
    ]  # fmt: skip
    assert [texts(row) for row in table.rows][:2] == [
        ["train.py:41", "60.0 ms", "metrics.py:1107", "15.0 ms"],
        ["metrics.py:1107", "30.0 ms", "train.py:41", "30.0 ms"],
    ]
    assert [row[1].note for row in table.rows] == ["60.0%", "30.0%", "10.0%"]
    assert [cell.text for cell in table.rows[2][2:]] == ["–", "–"], "the other side has no third line"


def test_three_sides_stand_below_each_other() -> None:
    comparison = hook_samples.comparison()
    sides = (*comparison.sides, replace(comparison.sides[1], label="third"))
    (table,) = compare_lines(samples.sides(replace(comparison, sides=sides)))
    assert [row[0].text for row in table.rows] == ["as-found"] * 3 + ["fixed"] * 3 + ["third"] * 3


def test_the_breakdown_pass_is_named_where_there_was_one() -> None:
    comparison = hook_samples.comparison()
    (parts,) = compare_phases(samples.sides(comparison))
    assert parts.caption == "The parts of a step, breakdown pass"
    same = tuple(replace(side, runs=(side.detail,)) for side in comparison.sides if side.detail is not None)
    (parts,) = compare_phases(samples.sides(replace(comparison, sides=same)))
    assert parts.caption == "The parts of a step"
    mixed = replace(comparison, sides=(comparison.sides[0], same[1]))
    (parts,) = compare_phases(samples.sides(mixed))
    assert parts.caption == "The parts of a step", "only one had a pass of its own"


def test_the_terminal_shows_each_once() -> None:
    text = in_terminal(hook_samples.comparison())
    assert text.count("The parts of a step") == 1
    assert text.count("The lines with most time") == 1
    assert "Lines with most of the training thread's time" not in text
    assert text.count("train.py:41") == 2, "once a side"


def test_a_comparison_without_parts_still_shows_the_baselines_lines() -> None:
    comparison = hook_samples.comparison()
    bare = tuple(
        replace(side, detail=replace(side.detail, phases=())) for side in comparison.sides if side.detail is not None
    )
    text = in_terminal(replace(comparison, sides=bare))
    assert "Lines with most of the training thread's time" in text
    assert "The lines with most time" not in text


def test_what_is_said_of_the_input_names_its_side() -> None:
    section = next(one for one in build_report(hook_samples.comparison()).sections if one.key == "input")
    said = [getattr(block, "text", "") for block in section.brief]
    assert [text.split(": ")[0] for text in said] == ["as-found", "fixed"]
    assert not [block for block in section.brief if isinstance(block, Table)]
    alone = next(one for one in build_report(hook_samples.run()).sections if one.key == "input")
    assert not getattr(alone.brief[0], "text", "").startswith("as-found")


def test_sides_without_lines_have_no_table() -> None:
    assert compare_lines(samples.sides(samples.comparison())) == ()
    assert compare_phases(samples.sides(samples.comparison())) == ()
