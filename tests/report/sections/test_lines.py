"""The sections of lines and of the time outside of steps, and their JSON."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import Analysis, LineCost, Period, Phase, UnmeasuredPeriod
from profiler.report.blocks import Cell, StackedBars, Table
from profiler.report.render.json import analysis_json, render
from profiler.report.sections.lines import build as build_lines
from profiler.report.sections.outside import build as build_outside
from profiler.run.model import Site, StepDefinition, StepKind
from tests.report import samples

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
    section = build_lines(found())
    assert section is not None
    [table] = tables(section.blocks)
    assert [texts(row) for row in table.rows] == [
        ["train.py:41", "graph._engine_run_backward", "60.0 ms", "60.0 %", "compute"],
        ["train.py:7", "the line itself", "40.0 ms", "40.0 %", "python 75%, log 25%"],
    ]
    assert [row[3].note for row in table.rows] == ["55.0 to 65.0", "35.0 to 45.0"]


def test_phases_are_a_bar_that_adds_up_and_say_where_they_lie() -> None:
    section = build_lines(found())
    assert section is not None
    [bars] = [block for block in section.blocks if isinstance(block, StackedBars)]
    assert [segment.label for segment in bars.bars[0].segments] == ["backward", "after step", "elsewhere"]
    assert len({segment.tone for segment in bars.bars[0].segments}) == 3
    assert bars.bars[0].text == "100 ms"
    assert "after the optimizer train.py:7 (log_metrics)" in bars.note


def test_many_lines_are_counted_that_are_left_out() -> None:
    many = tuple(replace(LINES[1], site=Site("train.py", number, "f"), share=0.01) for number in range(40))
    section = build_lines(replace(found(), lines=many))
    assert section is not None
    [table] = tables(section.blocks)
    assert len(table.rows) == 25
    assert "15 more lines share 15.0% of the step" in table.note


def test_few_samples_are_said_to_be_a_hint() -> None:
    notes = []
    for number in (20, 30):
        section = build_lines(replace(found(), lines=tuple(replace(line, samples=number) for line in LINES)))
        assert section is not None
        notes += [table.note for table in tables(section.blocks)]
    assert notes[0].startswith("Only 40 stack samples (50 needed")
    assert notes[1].startswith("95% intervals")


def test_time_outside_names_its_stretch_once() -> None:
    section = build_outside(found())
    assert section is not None
    [table] = tables(section.blocks)
    assert [row[0].text for row in table.rows] == ["before the first step", "", "after the last step"]
    assert table.rows[2][2].missing == "no stack sample in it"


def test_a_program_without_samples_has_neither() -> None:
    assert build_lines(samples.analysis()) is None
    assert build_outside(samples.analysis()) is None


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
