"""What a comparison names where the parts of a step are known: one part with its line, several of them, or all."""

from __future__ import annotations

import pytest

from profiler.analyse.compare.comparison import SideRuns, compare
from profiler.analyse.model import Analysis, LineCost, Measure, Phase
from profiler.diagnose.change import largest_change
from profiler.diagnose.model import Change, ChangeKind
from profiler.report.model import ReportSide
from profiler.report.sections.lines import compare_phases
from profiler.report.verdict_text import change_text
from profiler.run.model import RunInfo, Site
from tests.fakes.sentences import compare_verdict

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


def steps(**ms: float) -> Analysis:
    """A step of these parts; part i lies at train.py:i."""
    whole = sum(ms.values()) / 1000
    phases = tuple(
        Phase(name.replace("_", " "), part / 1000, part / 1000 / whole, 0.0, 1.0, Site("train.py", line, "main"))
        for line, (name, part) in enumerate(ms.items(), 1)
    )
    step = {
        "step_time": Measure("step_time", whole, "s"),
        "steps_per_s": Measure("steps_per_s", 1 / whole, "steps/s"),
    }
    return Analysis(RunInfo(1, "r", "r", ("x",), facts={"device": "cpu"}), step, {}, {}, phases=phases)


def change(before: Analysis, after: Analysis, *, faster: bool = False) -> Change:
    found = largest_change(before, after, faster=faster)
    assert found is not None
    return found


SIX_LAYERS = steps(forward=5.2, backward=7.3, optimizer=8.2, elsewhere=0.1)
NINE_LAYERS = steps(forward=8.2, backward=11.7, optimizer=14.6, elsewhere=0.1)


def test_the_part_that_fell_with_its_line() -> None:
    found = change(run(0.02, 0.002), run(0.002, 0.003), faster=True)
    assert (found.is_cause, found.is_several) == (True, False)
    assert (
        change_text(found) == "the time of forward fell from 20.0 ms (most at train.py:23, 18.0 ms) to 2.00 ms a step"
    )


def test_the_part_that_rose_has_the_line_of_the_slow_side() -> None:
    found = change(run(0.002, 0.003), run(0.02, 0.002))
    assert (
        change_text(found) == "the time of forward rose from 2.00 ms to 20.0 ms (most at train.py:23, 18.0 ms) a step"
    )


def test_time_that_nothing_explains_is_no_cause() -> None:
    found = change(run(0.002, 0.02), run(0.002, 0.001), faster=True)
    assert (found.name, found.is_cause) == ("elsewhere", False)


def test_where_all_parts_grew_none_is_blamed() -> None:
    found = change(SIX_LAYERS, NINE_LAYERS)
    assert (found.is_cause, found.is_several) == (False, True)
    assert (
        change_text(found)
        == "all parts grew: optimizer +6.40 ms, backward +4.40 ms, forward +3.00 ms (of +13.8 ms a step)"
    )


def test_where_all_parts_shrank() -> None:
    found = change(NINE_LAYERS, SIX_LAYERS, faster=True)
    assert (
        change_text(found)
        == "all parts shrank: optimizer -6.40 ms, backward -4.40 ms, forward -3.00 ms (of -13.8 ms a step)"
    )


def test_several_parts_have_their_lines_and_are_a_cause() -> None:
    """Data and forward grew, backward stayed."""
    found = change(steps(data=1, forward=5, backward=10), steps(data=5, forward=8, backward=10))
    assert (found.is_cause, found.is_several) == (True, True)
    assert change_text(found) == (
        "several parts grew: waiting for data +4.00 ms (most at train.py:1), forward +3.00 ms (most at train.py:2) "
        "(of +7.00 ms a step)"
    )


@pytest.mark.parametrize(("optimizer", "kind"), [(16.1, ChangeKind.PHASE), (15.9, ChangeKind.ALL_PHASES)])
def test_a_part_is_named_alone_where_it_makes_up_most(optimizer: float, kind: ChangeKind) -> None:
    """6.1 of 10.1 ms, and 5.9 of 9.9 ms."""
    before = steps(forward=10, backward=10, optimizer=10)
    assert change(before, steps(forward=12, backward=12, optimizer=optimizer)).kind is kind
    assert change(steps(forward=12, backward=12, optimizer=optimizer), before, faster=True).kind is kind


def test_parts_that_went_the_other_way_are_named_and_leave_no_part_alone() -> None:
    """Either of two parts is more than the whole difference, as a third one made up for much of them."""
    found = change(steps(data=20, forward=10, backward=10), steps(data=8, forward=20, backward=18))
    assert (found.kind, found.is_cause) == (ChangeKind.SEVERAL_PHASES, True)
    assert change_text(found) == (
        "several parts grew: forward +10.0 ms (most at train.py:2), backward +8.00 ms (most at train.py:3), "
        "against waiting for data "
        "-12.0 ms (of +6.00 ms a step)"
    )


def test_at_most_three_are_listed_and_small_ones_not() -> None:
    before = steps(data=10, forward=10, backward=10, optimizer=10, after_the_optimizer=10)
    found = change(before, steps(data=15, forward=16, backward=17, optimizer=18, after_the_optimizer=19))
    assert change_text(found) == (
        "all parts grew: after the optimizer +9.00 ms, optimizer +8.00 ms, backward +7.00 ms (of +35.0 ms a step)"
    )
    found = change(before, steps(data=15, forward=16, backward=10.5, optimizer=10, after_the_optimizer=10))
    assert [part.phase for part in found.phases] == ["forward", "data"]


def test_several_of_which_most_is_nobodys_are_no_cause() -> None:
    found = change(steps(forward=10, backward=10, elsewhere=10), steps(forward=15, backward=10, elsewhere=15))
    assert (found.kind, found.is_cause) == (ChangeKind.SEVERAL_PHASES, False)


def test_passes_that_went_the_other_way_have_no_list() -> None:
    found = change(steps(forward=10, backward=10, data=10), steps(forward=14, backward=13, data=2))
    assert (found.kind, found.name, found.is_cause) == (ChangeKind.PHASE, "forward", False)


def said(before: Analysis, after: Analysis, pairs: int = 1) -> str:
    sides = [SideRuns(label, "", (one,) * pairs, one) for label, one in (("base", before), ("candidate", after))]
    return compare_verdict(compare(sides))


def test_the_sentence_where_all_parts_grew() -> None:
    text = said(SIX_LAYERS, NINE_LAYERS)
    assert text.startswith(
        "candidate runs 0.601× (one pair: no interval) the steps/s of base on the CPU, and all parts"
    )
    assert text.endswith(
        ", and all parts grew: optimizer +6.40 ms, backward +4.40 ms, forward +3.00 ms (of +13.8 ms a step)."
    )
    assert len(text) < 250


def test_the_sentence_where_several_did_and_where_one_did() -> None:
    before = steps(data=1, forward=5, backward=10)
    several = steps(data=5, forward=8, backward=10)
    assert ", and several parts grew: waiting for data +4.00 ms (" in said(before, several)
    assert ", because several parts grew: waiting for data +4.00 ms (" in said(before, several, pairs=3)
    assert ", because several parts shrank: waiting for data -4.00 ms (" in said(several, before, pairs=3)
    one = said(before, steps(data=1, forward=9, backward=10), pairs=3)
    assert one.endswith(
        " on the CPU, because the time of forward rose from 5.00 ms to 9.00 ms (most at train.py:2) a step."
    )


def test_both_sides_stand_beside_each_other() -> None:
    sides = tuple(
        ReportSide(name, "s1", {}, (), one) for name, one in (("a", run(0.02, 0.0)), ("b", run(0.002, 0.001)))
    )
    [table] = compare_phases(sides)
    assert [[f"{cell.text} {cell.unit}".strip() for cell in row] for row in table.rows] == [
        ["Forward", "20.0 ms", "2.00 ms"],
        ["Elsewhere", "none", "1.00 ms"],
    ]
    assert compare_phases(sides[:1]) == ()
