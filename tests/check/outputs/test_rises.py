"""Lines that the diff wrote come first, then what costs most; many unchanged lines are one; each line is told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.finding import Confidence, FindingState, compare_findings
from profiler.check.causes import changed_first, counted_causes, worse_causes
from profiler.check.counters.compare import compare, overall
from profiler.check.diff import compare_texts
from profiler.check.model import (
    FAIL,
    Change,
    Counted,
    CountedLine,
    CounterLine,
    GateResult,
    Hunk,
    Limits,
    WorseCause,
)
from profiler.check.modes.finish import conclude, judge
from profiler.check.outputs import text
from profiler.check.outputs.first_screen import first_screen
from profiler.check.outputs.format import RepositoryPaths
from profiler.check.outputs.machine import workflow_commands
from profiler.check.outputs.write import render_markdown
from profiler.check.places import changed_places, failing, find_rises
from tests.check.outputs.test_text import PYTHON, compared

STEPS = 20
Counts = dict[tuple[str, int, str], dict[str, float]]
"""File, line and function -> counter -> amount per step."""
HUNK = Hunk(
    "train.py",
    82,
    82,
    ("     model.train()", "-    out = model(x)", "+    for _ in range(2):", "+        out = model(x)"),
)


def process(counts: Counts) -> Counted:
    lines: dict[CountedLine, float] = {}
    totals: dict[str, float] = {}
    for (file, number, function), amounts in counts.items():
        for counter, amount in amounts.items():
            operation = "item" if counter == "syncs" else ""
            lines[CountedLine(counter, file, number, function, operation, f"line {number}")] = STEPS * amount
            totals[counter] = totals.get(counter, 0.0) + STEPS * amount
    return Counted(STEPS, totals, lines=lines)


def judged(before: Counts, after: Counts, *hunks: Hunk) -> GateResult:
    names = {counter: 0.0 for counts in (before, after) for amounts in counts.values() for counter in amounts}
    base, candidate = (replace(each, totals={**names, **each.totals}) for each in map(process, (before, after)))
    lines = compare([base, base], [candidate, candidate], Limits())
    result = GateResult(counters=lines, counters_state=overall(lines), mode="baseline", hunks=hunks)
    result = replace(result, causes=changed_first(counted_causes(lines), hunks), baseline_file="b.json")
    return conclude(result)


def model(times: float, *, layers: int = 4, blocks: int = 6) -> Counts:
    """A model that runs so many times per step, with a loop over its blocks."""
    own: Counts = {("model.py", 50 + at, "GPT.forward"): {"operators": times * (1 + at)} for at in range(3)}
    inner: Counts = {
        ("model.py", 20 + at, "Block.forward"): {"operators": times * layers * 3, "flops": times * layers * 900.0}
        for at in range(blocks)
    }
    return own | inner


def test_lines_that_run_more_often_are_one_rise_with_the_changed_line_first() -> None:
    result = judged(model(1), model(2), HUNK)
    (rise,) = find_rises(failing(result), result.hunks)
    assert (rise.lines, rise.factors) == (9, (2.0, 2.0))
    together = "9 lines of Block.forward() and 1 more function"
    assert result.sentence == "Operators rose from 78 to 156 per step (1 more counter too)"
    screen = first_screen(result, ())
    assert screen.why == (
        f"{together} count 2 times as many operators.",
        "The diff changed train.py:83.",
    )
    assert [(place.path, place.change) for place in screen.places] == [
        ("train.py:83", "changed in this diff"),
        ("model.py:25", "2 times as many operators"),
    ]
    assert screen.places[0].diff[-1] == "+        out = model(x)"
    assert screen.places[1].location.endswith("and 8 more lines")
    markdown = render_markdown(result)
    assert markdown.count("model.py") == 1, "51 lines are no 51 mentions"
    errors = [line for line in workflow_commands(result, RepositoryPaths("/r", "/r")) if line.startswith("::error")]
    assert len(errors) == 1, "each line once"


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [(1.0, 2.0, 2), (1.0, 3.0, 3), (2.0, 3.0, 0), (3.0, 4.0, 0), (1.0, 1.5, 0), (0.25, 1.0, 0)],
)
def test_how_often_a_line_runs_is_told_only_where_its_counts_tell_it(before: float, after: float, runs: int) -> None:
    """A line that counts 3 and then 4 may run once with a backward pass, and then once more without one."""
    (rise,) = find_rises(failing(judged(model(before, blocks=0), model(after, blocks=0))), ())
    assert rise.runs == runs
    assert (" runs " in text.rise_sentence(rise)) is bool(runs)


def test_unchanged_lines_that_rise_by_different_factors_are_one_rise_only_where_the_diff_is_known() -> None:
    """A forward pass more without a backward pass is a third or a half more, by line."""
    before, after = model(2), model(2)
    for at, place in enumerate(after):
        after[place] = {name: amount * (1.25, 1.5, 1.75)[at % 3] for name, amount in after[place].items()}
    known, unknown = judged(before, after, HUNK), judged(before, after)
    (rise,) = find_rises(failing(known), known.hunks)
    assert text.times_as_much(rise) == "1.25 to 1.75 times as many operators"
    assert sorted(rise.lines for rise in find_rises(failing(unknown), ())) == [3, 3, 3]


def test_most_lines_with_one_factor_are_told_apart_from_others() -> None:
    """Such as `loss.backward()`, which adds gradients up instead of storing them where it is called twice."""
    before, after = model(1), model(2)
    before["train.py", 90, "main"], after["train.py", 90, "main"] = {"operators": 1}, {"operators": 5}
    rises = find_rises(failing(judged(before, after, HUNK)), (HUNK,))
    assert sorted((rise.lines, rise.factors[0]) for rise in rises) == [(1, 1.0), (9, 2.0)]


def test_two_lines_are_told_one_by_one() -> None:
    before: Counts = {("train.py", 5, "f"): {"syncs": 1}, ("train.py", 6, "f"): {"syncs": 1}}
    after: Counts = {place: {"syncs": 2} for place in before}
    assert [rise.lines for rise in find_rises(failing(judged(before, after, HUNK)), (HUNK,))] == [1, 1]


def test_a_written_line_comes_before_what_costs_more_elsewhere_and_each_line_is_told_once() -> None:
    after: Counts = {
        ("model.py", 7, "f"): {"syncs": 3, "operators": 3},
        ("train.py", 84, "main"): {"operators": 4, "allocated_bytes": 4e9},
    }
    before: Counts = {("model.py", 7, "f"): {"syncs": 1, "operators": 1}}
    result = judged(before, after, HUNK)
    rises = find_rises(failing(result), result.hunks)
    assert [(rise.changes[0].file, rise.is_written) for rise in rises] == [("train.py", True), ("model.py", False)]
    places = first_screen(result, ()).places
    assert [place.location.endswith(", changed in this diff") for place in places] == [True, False]
    assert [(place.path, place.change) for place in places] == [
        ("train.py:84", "0 → 4 operators, 0 B → 4.00 GB results of operators"),
        ("model.py:7", "1 → 3 syncs, 1 → 3 operators"),
    ]
    assert "changed in this diff, also +4.00 GB of results of operators per step: line 84" in text.rise_sentence(
        rises[0]
    )
    assert not list(text.unwritten(result)), "a written line explains itself"


def test_waits_and_copies_lead_operators_and_these_lead_bytes_and_other_periods() -> None:
    names = ("evaluation_syncs", "peak_bytes", "h2d_bytes", "operators", "h2d", "flops", "syncs", "collectives")
    after: Counts = {("train.py", 5 + at, "f"): {name: 5e8} for at, name in enumerate(names)}
    result = judged({}, after)
    assert [line.counter for line in failing(result)] == [
        "syncs", "h2d", "collectives", "operators", "flops", "h2d_bytes", "peak_bytes", "evaluation_syncs",
    ]  # fmt: skip
    assert result.sentence.startswith("Syncs rose from 0 to 500,000,000 per step at train.py:11")
    assert first_screen(result, ()).places[0].path == "train.py:11"


def test_a_line_that_is_gone_may_be_what_changed() -> None:
    """A removed `torch.no_grad()` has backward passes run, at lines that the diff did not write."""
    hunk = Hunk("train.py", 10, 10, (" a = 1", "-    with torch.no_grad():", " b = 1"))
    comment = Hunk("train.py", 40, 39, (" c = 1", "+    # a comment", "+", " d = 1"))
    assert list(changed_places((hunk, comment))) == [("train.py", 11, "with torch.no_grad():")]
    result = judged(model(1), model(2), hunk)
    assert first_screen(result, ()).places[0].diff == hunk.lines


def test_of_a_hunk_the_added_code_that_calls_is_told() -> None:
    change = compare_texts("a.py", "a.py", "x = 1\n", "import os\n# why\ny = 2\nx = f(y)\n")
    assert list(changed_places(change.hunks)) == [("a.py", 4, "x = f(y)")]


# ---------------------------------------------------------------- causes


def test_the_diff_of_a_baseline_stays() -> None:
    result = judged(model(1), model(2), HUNK)
    assert judge(result).hunks == (HUNK,)
    assert judge(result, hunks=()).hunks == ()


def test_a_finding_at_a_line_far_from_every_change_is_not_new() -> None:
    far, near = Hunk("train.py", 40, 40, (" a", "+b")), Hunk("src/train.py", 5, 5, (" a", "+b", " c"))
    (cause,) = worse_causes(compared((), (PYTHON,)), (far,))
    assert cause.sentence == "Python takes time at train.py:7 (python-loop): costs more, 30.0 ms of each step."
    assert cause.before is None
    for hunks in (None, (near,)):
        (cause,) = worse_causes(compared((), (PYTHON,)), hunks)
        assert ": new, " in cause.sentence
        assert cause.before == 0.0


def test_a_cause_that_the_base_has_with_low_confidence_is_not_new() -> None:
    low = replace(PYTHON, seconds=0.029, share=0.29, low=0.01, high=0.5, confidence=Confidence.LOW)
    (change,) = compare_findings(*(side.runs[0].judged for side in compared((low,), (PYTHON,)).sides))  # type: ignore[arg-type]
    assert change.state is FindingState.REMAINS
    assert compare_findings(*(side.runs[0].judged for side in compared((low,), (low,)).sides)) == ()  # type: ignore[arg-type]


def test_causes_at_changed_lines_come_first_and_those_that_the_base_has_last() -> None:
    causes = tuple(WorseCause("r", "train.py", line, 0.0, 1.0, "", "") for line in (3, 83))
    assert [cause.line for cause in changed_first(causes, (HUNK,))] == [83, 3]
    changes = tuple(
        Change("syncs", "train.py", line, "f", "item", before, 2.0) for line, before in ((3, 1.0), (9, 0.0))
    )
    line = CounterLine("syncs", FAIL, (1.0, 1.0), (4.0, 4.0), 1.0, changes=changes)
    assert [cause.line for cause in counted_causes((line,))] == [9, 3]


def test_a_line_that_rose_is_told_by_its_amount_where_the_sum_of_all_lines_fell() -> None:
    result = judged({("train.py", 5, "f"): {"syncs": 3.0}}, {("model.py", 9, "g"): {"syncs": 1.0}})
    assert first_screen(result, ()).headline.text == "FAIL: syncs rose by 1 per step at model.py:9"
