"""What became of the causes of one run in another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.finding import (
    Confidence,
    Finding,
    FindingState,
    JudgedRun,
    NotJudged,
    RuleText,
    compare_findings,
)
from profiler.core.errors import Notice

RULE = RuleText("python-loop", "Python takes time", (), "Use operators.")
PYTHON = Finding(RULE, 0.02, 0.2, 0.18, 0.22, Confidence.HIGH)
"""A step of 100 ms, of which 20 ms are Python."""


def cost(seconds: float, step: float = 0.1, wide: float = 0.1) -> Finding:
    share = seconds / step
    return replace(PYTHON, seconds=seconds, share=share, low=(1 - wide) * share, high=(1 + wide) * share)


def run(*findings: Finding, step: float = 0.1, not_judged: tuple[NotJudged, ...] = ()) -> JudgedRun:
    return JudgedRun(findings, not_judged, step)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [PYTHON], FindingState.NEW),
        ([PYTHON], [], FindingState.CURED),
        ([PYTHON], [PYTHON], FindingState.REMAINS),
        ([PYTHON], [cost(0.04)], FindingState.GREW),
        ([cost(0.04)], [PYTHON], FindingState.SHRANK),
        ([PYTHON], [cost(0.04, wide=0.6)], FindingState.REMAINS),  # the samples do not tell
        ([cost(0.02, wide=0.0)], [cost(0.023, wide=0.0)], FindingState.REMAINS),  # 3% of a step are not much
        ([PYTHON], [cost(0.02, step=0.04)], FindingState.REMAINS),  # the same time of a shorter step
        ([cost(0.02, step=0.04)], [PYTHON], FindingState.REMAINS),
    ],
)
def test_states(before: list[Finding], after: list[Finding], expected: FindingState) -> None:
    [change] = compare_findings(run(*before), run(*after))
    assert change.state is expected
    assert (change.before, change.after) == (before[0] if before else None, after[0] if after else None)


def test_a_run_whose_rule_cannot_judge_it_tells_nothing() -> None:
    silent = run(not_judged=(NotJudged(RULE, Notice("python-or-device-wait")),))
    for before, after in ((run(PYTHON), silent), (silent, run(PYTHON))):
        [change] = compare_findings(before, after)
        assert change.state is FindingState.UNKNOWN


def test_a_cost_that_is_a_small_share_of_a_longer_step_may_have_been_there() -> None:
    for before, after in ((run(step=1.0), run(PYTHON)), (run(PYTHON), run(step=1.0))):
        [change] = compare_findings(before, after)
        assert change.state is FindingState.UNKNOWN


def test_what_is_not_sure_is_no_finding_but_not_new_later() -> None:
    unsure = replace(PYTHON, confidence=Confidence.LOW)
    assert compare_findings(run(unsure), run(unsure)) == ()
    [change] = compare_findings(run(unsure), run(PYTHON))
    assert change.state is FindingState.REMAINS


def test_the_worst_comes_first() -> None:
    small, large, other = (replace(PYTHON, rule=replace(RULE, name=name), seconds=seconds) for name, seconds in (
        ("a", 0.01), ("b", 0.02), ("c", 0.03)
    ))  # fmt: skip
    changes = compare_findings(run(other), run(small, large))
    assert [(change.state, change.finding.rule.name) for change in changes] == [
        (FindingState.NEW, "b"),
        (FindingState.NEW, "a"),
        (FindingState.CURED, "c"),
    ]
