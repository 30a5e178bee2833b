"""Single cases of a result: never better than the verdict that they belong to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, STATES, Throughput
from profiler.check.outputs.cases import CHECK, COUNTERS, THROUGHPUT, cases
from profiler.core.notice import Notice
from tests.check.outputs import results


@pytest.mark.parametrize("name", results.everything())
def test_the_worst_case_is_the_verdict(name: str) -> None:
    result = results.everything()[name]
    found = cases(result)
    assert max((case.state for case in found), key=STATES.index) == result.state
    assert all(case.message for case in found)


def test_one_for_every_counter_and_line() -> None:
    found = cases(results.failed())
    assert [case.group for case in found] == [COUNTERS] * 7 + [THROUGHPUT] * 2
    assert [case.key for case in found][-3:] == ["tokenized.worker", "typical step", "all steps"]
    assert [case.name for case in found if case.fewer] == ["H2D copies"]
    assert "+1 sync per step at examples/train.py:104" in found[0].message


def test_what_could_not_be_compared_is_a_case_too() -> None:
    (case,) = cases(results.other_machine())
    assert (case.group, case.state) == (COUNTERS, INCONCLUSIVE)
    assert "torch 2.9.0" in case.message


def test_a_fail_that_was_not_confirmed_is_inconclusive() -> None:
    failed = results.failed()
    gate = failed.throughput
    assert isinstance(gate, Throughput)
    doubted = replace(
        results.passed(),
        state=INCONCLUSIVE,
        throughput=replace(gate, state=INCONCLUSIVE, confirmed=False, reason=Notice("interrupted")),
    )
    states = {case.name: case.state for case in cases(doubted) if case.group == THROUGHPUT}
    assert states == {"typical step": INCONCLUSIVE, "all steps": INCONCLUSIVE}


def test_a_verdict_that_is_worse_than_its_parts_has_a_case() -> None:
    found = cases(replace(results.passed(), state=FAIL))
    assert [(case.group, case.state) for case in found if case.state != PASS] == [(CHECK, FAIL)]
    gate = results.passed().throughput
    assert gate is not None
    doubted = replace(results.passed(), throughput=replace(gate, state=INCONCLUSIVE, reason=Notice("interrupted")))
    assert [case.message for case in cases(doubted) if case.state != PASS] == ["an interrupt"]
