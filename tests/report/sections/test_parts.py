"""Parts and lines of two or more sides: each shown once, beside each other, in the terminal too."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from profiler.analyse.model import Comparison
from profiler.report.blocks import Table
from profiler.report.build import build_report
from profiler.report.render.console import print_comparison
from profiler.report.sections._parts import lines_table, parts_table
from profiler.report.subject import views
from tests.report import found, samples
from tests.report.sections.test_lines import texts


def in_terminal(comparison: Comparison, width: int = 120) -> str:
    out = io.StringIO()
    print_comparison(comparison, console=Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_the_lines_of_two_sides_stand_beside_each_other_each_in_its_own_order() -> None:
    comparison = found.comparison()
    before, after = comparison.sides
    assert after.detail is not None
    turned = replace(after.detail, lines=(after.detail.lines[1], after.detail.lines[0]))
    (table,) = lines_table(views(replace(comparison, sides=(before, replace(after, detail=turned)))))
    assert [column.title for column in table.columns] == [
        "as-found: line", "as-found: a step", "fixed: line", "fixed: a step",
    ]  # fmt: skip
    assert [texts(row) for row in table.rows][:2] == [
        ["train.py:41", "60.0 ms", "metrics.py:1107", "15.0 ms"],
        ["metrics.py:1107", "30.0 ms", "train.py:41", "30.0 ms"],
    ]
    assert [row[1].note for row in table.rows] == ["60.0%", "30.0%", "10.0%"]
    assert [cell.text for cell in table.rows[2][2:]] == ["–", "–"], "the other side has no third line"


def test_three_sides_stand_below_each_other() -> None:
    comparison = found.comparison()
    sides = (*comparison.sides, replace(comparison.sides[1], label="third"))
    (table,) = lines_table(views(replace(comparison, sides=sides)))
    assert [row[0].text for row in table.rows] == ["as-found"] * 3 + ["fixed"] * 3 + ["third"] * 3


def test_the_breakdown_pass_is_named_where_there_was_one() -> None:
    comparison = found.comparison()
    (parts,) = parts_table(views(comparison))
    assert parts.caption == "The parts of a step, breakdown pass"
    same = tuple(replace(side, runs=(side.detail,)) for side in comparison.sides if side.detail is not None)
    (parts,) = parts_table(views(replace(comparison, sides=same)))
    assert parts.caption == "The parts of a step"
    mixed = replace(comparison, sides=(comparison.sides[0], same[1]))
    (parts,) = parts_table(views(mixed))
    assert parts.caption == "The parts of a step", "only one had a pass of its own"


def test_the_terminal_shows_each_once() -> None:
    text = in_terminal(found.comparison())
    assert text.count("The parts of a step") == 1
    assert text.count("The lines with most time") == 1
    assert "Lines with most of the training thread's time" not in text
    assert text.count("train.py:41") == 2, "once a side"


def test_a_comparison_without_parts_still_shows_the_baselines_lines() -> None:
    comparison = found.comparison()
    bare = tuple(
        replace(side, detail=replace(side.detail, phases=())) for side in comparison.sides if side.detail is not None
    )
    text = in_terminal(replace(comparison, sides=bare))
    assert "Lines with most of the training thread's time" in text
    assert "The lines with most time" not in text


def test_what_is_said_of_the_input_names_its_side() -> None:
    section = next(one for one in build_report(found.comparison()).sections if one.key == "input")
    said = [getattr(block, "text", "") for block in section.brief]
    assert [text.split(": ")[0] for text in said] == ["as-found", "fixed"]
    assert not [block for block in section.brief if isinstance(block, Table)]
    alone = next(one for one in build_report(found.run()).sections if one.key == "input")
    assert not getattr(alone.brief[0], "text", "").startswith("as-found")


def test_sides_without_lines_have_no_table() -> None:
    assert lines_table(views(samples.comparison())) == ()
    assert parts_table(views(samples.comparison())) == ()
