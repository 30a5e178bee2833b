"""What a comparison names as its cause where the parts of a step are known: the part, in seconds, and its line."""

from __future__ import annotations

from profiler.diagnose.change import largest_change
from profiler.report.sections._parts import parts_table
from profiler.report.subject import View
from profiler.run.model import Analysis, LineCost, Measure, Phase, RunInfo, Site

SITE = Site("train.py", 23, "main")


def run(forward: float, elsewhere: float) -> Analysis:
    whole = forward + elsewhere
    phases = (
        Phase("forward", forward, forward / whole, 0.0, 1.0, SITE),
        Phase("elsewhere", elsewhere, elsewhere / whole, 0.0, 1.0),
    )
    line = LineCost(SITE, "", forward * 0.9, 0.9, 0.0, 1.0, 100, {"compute": forward})
    step = {"step_time": Measure("step_time", whole, "s")}
    return Analysis(RunInfo(1, "r", "r", ("x",)), step, {}, {}, phases=phases, lines=(line,))


def test_the_part_that_fell_with_its_line() -> None:
    change = largest_change(run(0.02, 0.002), run(0.002, 0.003), faster=True)
    assert change is not None
    assert (change.what, change.is_cause) == ("the time of forward", True)
    assert change.amounts == "from 20.0 ms (most at train.py:23, 18.0 ms) to 2.00 ms a step"


def test_the_part_that_rose_has_the_line_of_the_slow_side() -> None:
    change = largest_change(run(0.002, 0.003), run(0.02, 0.002), faster=False)
    assert change is not None
    assert change.amounts == "from 2.00 ms to 20.0 ms (most at train.py:23, 18.0 ms) a step"


def test_time_that_nothing_explains_is_no_cause() -> None:
    change = largest_change(run(0.002, 0.02), run(0.002, 0.001), faster=True)
    assert change is not None
    assert not change.is_cause


def test_both_sides_stand_beside_each_other() -> None:
    views = tuple(View(name, "s1", {}, (), one) for name, one in (("a", run(0.02, 0.0)), ("b", run(0.002, 0.001))))
    [table] = parts_table(views)
    assert [[f"{cell.text} {cell.unit}".strip() for cell in row] for row in table.rows] == [
        ["Forward", "20.0 ms", "2.00 ms"],
        ["Elsewhere", "none", "1.00 ms"],
    ]
    assert parts_table(views[:1]) == ()
