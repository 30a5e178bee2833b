"""Tables of lines and phases of one run and of several sides. tests/approval holds whole sections."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from profiler.analyse.model import Comparison
from profiler.report.blocks import Cell, Table
from profiler.report.build import build_report
from profiler.report.render.console import print_comparison
from profiler.report.sections import lines
from profiler.report.sections.lines import compare_lines, compare_phases
from profiler.run.model import Site
from tests.report import hook_samples, samples

RUN = hook_samples.run()


def tables(blocks: tuple[object, ...]) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table)]


def texts(row: tuple[Cell, ...]) -> list[str]:
    return [f"{cell.text} {cell.unit}".strip() for cell in row]


def test_many_lines_are_counted_that_are_left_out() -> None:
    many = tuple(replace(RUN.lines[1], site=Site("train.py", number, "f"), share=0.01) for number in range(40))
    section = samples.build_section(lines.lines, replace(RUN, lines=many))
    [table] = tables(section.blocks)
    assert len(table.rows) == 25
    assert "15 more lines share 15.0% of the step" in table.note


def test_few_samples_are_said_to_be_a_hint() -> None:
    notes = []
    for number in (16, 30):
        section = samples.build_section(
            lines.lines, replace(RUN, lines=tuple(replace(line, samples=number) for line in RUN.lines))
        )
        notes += [table.note for table in tables(section.blocks)]
    assert notes[0].startswith("Only 48 stack samples (50 needed")
    assert notes[1].startswith("95% intervals")


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
