"""What is gone pays for the same operation at another line, as often and not earlier in a step; nothing else does."""

from __future__ import annotations

import pytest

from profiler.check.counters.compare import compare
from profiler.check.counters.lines import changed_lines
from profiler.check.diff import FileChange
from profiler.check.model import FAIL, PASS, Counted, CountedLine, CounterLine, GateResult, Hunk, Limits
from profiler.check.modes.finish import conclude
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.first_screen import first_screen, rise, why
from profiler.core.errors import Notice

Wait = tuple[int, float, str, str]
"""Line, amount in 20 steps, operation, stage."""


def waits(*lines: Wait, counter: str = "syncs", file: str = "train.py") -> Counted:
    """A process whose lines have different texts."""
    found: dict[CountedLine, float] = {}
    for number, amount, operation, stage in lines:
        found[CountedLine(counter, file, number, f"function_{number}", operation, "x" * number, stage)] = amount
    return Counted(20, {counter: sum(amount for _, amount, *_ in lines)}, lines=found)


def judged(before: Counted, after: Counted) -> CounterLine:
    (line,) = compare([before, before], [after, after], Limits())
    return line


BEFORE: tuple[Wait, ...] = ((3, 20, "item", "after"), (60, 5, "item", "after"), (90, 20, "cpu", "before"))


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (((30, 20, "item", "after"), *BEFORE[1:]), PASS),  # a helper
        (((30, 25, "item", "after"), BEFORE[2]), PASS),  # one helper for both
        (((30, 15, "item", "after"), (33, 5, "item", "after"), *BEFORE[1:]), PASS),  # two instead of one
        ((*BEFORE[:2], (30, 20, "cpu", "after")), PASS),  # later in a step
        (((30, 20, "item", "before"), *BEFORE[1:]), FAIL),  # earlier
        (((30, 20, "item", "in"), *BEFORE[1:]), FAIL),
        (((30, 20, "item", "thread"), *BEFORE[1:]), FAIL),
        (((30, 20, "tolist", "after"), *BEFORE[1:]), FAIL),  # another operation
        (((30, 21, "item", "after"), *BEFORE[1:]), FAIL),  # once more
        (
            (BEFORE[0], (30, 20, "item", "after")),
            FAIL,
        ),  # of each step, and not of every fourth one; another one is gone
        (((60, 20, "item", "after"), BEFORE[2]), FAIL),  # the same at an old line
    ],
)
def test_the_same_operation_as_often_and_not_earlier_is_paid(after: tuple[Wait, ...], state: str) -> None:
    found = judged(waits(*BEFORE), waits(*after))
    assert found.state == state, found
    if state == PASS:
        assert {change.kind for change in found.other_changes} == {"moved"}


def test_a_helper_that_is_there_already_is_paid_too() -> None:
    found = judged(waits(*BEFORE), waits((60, 25, "item", "after"), BEFORE[2]))
    assert found.state == PASS
    (moved,) = found.other_changes
    assert (moved.base_line, moved.line, moved.base_function, moved.before, moved.after) == (3, 60, "function_3", 1, 1)


def test_one_helper_for_many_waits_is_paid_and_quickly() -> None:
    """All sets of 30 lines would be a billion."""
    many: tuple[Wait, ...] = tuple((number, float(number), "item", "after") for number in range(1, 31))
    total = sum(amount for _, amount, *_ in many)
    assert judged(waits(*many), waits((40, total, "item", "after"))).state == PASS
    assert judged(waits(*many), waits((40, total - 0.5, "item", "after"))).state == FAIL


def test_a_wait_that_is_earlier_tells_so_also_at_the_same_line() -> None:
    found = judged(waits(BEFORE[0]), waits((3, 20, "item", "before")))
    assert (found.state, [change.line for change in found.changes]) == (FAIL, [3])
    assert Notice("waits-earlier", {"now": "before", "before": "after"}) in found.reasons


def test_without_stages_nothing_is_paid_and_lines_are_known_as_before() -> None:
    former = waits(*((*wait[:3], "") for wait in BEFORE))
    assert judged(former, waits((30, 20, "item", "after"), *BEFORE[1:])).state == FAIL
    assert judged(former, waits(*BEFORE)).state == PASS, "an old baseline has no stages"
    assert changed_lines("syncs", [former], [waits(*BEFORE)]) == ()


def operators(*lines: tuple[int, float, str], unknown: bool = False) -> Counted:
    return waits(*((line, amount, "" if unknown else name, "") for line, amount, name in lines), counter="operators")


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (((3, 20, "mm"), (60, 20, "relu"), (60, 20, "add")), PASS),  # in a helper
        (((3, 20, "mm"), (3, 20, "relu"), (3, 20, "add")), PASS),
        (((3, 20, "mm"), (3, 20, "gelu"), (9, 20, "add")), PASS),  # one replaces another at its line
        (((3, 20, "mm"), (60, 20, "gelu"), (9, 20, "add")), FAIL),
        (((3, 20, "mm"), (3, 20, "relu"), (60, 20, "mm")), FAIL),  # another one is gone
        (((3, 20, "mm"), (3, 20, "relu"), (60, 21, "add")), FAIL),
    ],
)
def test_operators_are_paid_where_there_are_as_many_of_each_name(
    after: tuple[tuple[int, float, str], ...], state: str
) -> None:
    before = ((3, 20.0, "mm"), (3, 20.0, "relu"), (9, 20.0, "add"))
    assert judged(operators(*before), operators(*after)).state == state
    former = operators((3, 40, ""), (9, 20, ""), unknown=True)
    totals = sum(amount for _, amount, _ in after) == 60
    same = {line for line, *_ in after} == {3, 9}
    assert judged(former, operators(*after)).state == (PASS if same and totals else FAIL), "names are not known"


def test_one_operator_takes_the_place_of_many_that_the_diff_removed() -> None:
    """As where attention that is written out becomes `scaled_dot_product_attention`."""
    before = operators(*((line, 20.0, f"name_{line}") for line in range(3, 15)))
    diff = FileChange("train.py", "train.py", {}, ((range(3, 15), range(30, 31)),))

    def state(amount: float, files: tuple[FileChange, ...] = (diff,)) -> str:
        (line,) = compare([before], [operators((30, amount, "fused"))], Limits(), files)
        return line.state

    assert state(20) == state(240) == PASS
    assert state(241) == FAIL
    assert state(20, ()) == FAIL, "the diff is not known"


# ---------------------------------------------------------------- what is told


def test_a_line_in_another_function_is_named_with_it() -> None:
    found = judged(waits(*BEFORE), waits((30, 20, "item", "after"), *BEFORE[1:]))
    assert text.moved_lines([found]) == (
        "What was counted at train.py:3 moved into function_30(), at train.py:30.",
        "1 line only moved; the counts there are the same.",
    )


def test_an_earlier_wait_is_told_in_the_headline_the_remark_and_at_its_line() -> None:
    change = FileChange("train.py", "train.py", {3: 3}, (), (Hunk("train.py", 8, 8, (" a", "-b", "+c", "+d", " e")),))
    before, after = waits(BEFORE[0]), waits((3, 20, "item", "before"))
    (line,) = compare([before, before], [after, after], Limits(), [change])
    assert text.reasons(line.reasons).endswith("before the backward pass, and after the backward pass in the base")
    told = "syncs rose by 1 per step at train.py:3"
    assert rise(line, change.hunks) == told
    result = conclude(GateResult(counters=(line,), counters_state=FAIL, hunks=change.hunks))
    assert first_screen(result, "").headline.after == f": {told}", "a total that is the same did not rise"
    assert list(why(result)) == ["The diff changed train.py:9."]
    (changed,) = line.changes
    assert fmt.site(changed).startswith("+1 sync per step at train.py:3 (function_3, item), before the backward pass: ")
    (gone,) = line.other_changes
    assert " at train.py:3 of the base (function_3, item), after the backward pass: " in fmt.site(gone)
