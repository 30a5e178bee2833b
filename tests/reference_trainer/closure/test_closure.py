"""The circle of fixes and rules: the rule of a fix names its cost where only this fix is left out of the variant fixed,
and does not name it, or names much less, in the variant fixed. Recorded runs, made by `record`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest

import profiler
from profiler.analyse.model.finding import Finding
from profiler.core.plugins import discover
from reference_trainer.fixes import Fix
from tests.reference_trainer.closure.record import BASE, RUNS, TRAINERS, Trainer, judged, recorded, rule_of

RULES: Final = {rule.name for rule in discover("profiler.diagnose.rules")}
TENTH: Final = 1.1
"""A fix that gives less than this needs no finding."""
REMAINING: Final = 0.5
"""What the variant fixed may still have of a cost, at most."""
LARGE: Final = 2.0
"""Gains from which a recording on a busy machine shows the cost as well."""
CASES: Final = [
    pytest.param(trainer, name, id=f"{trainer.name}-{name}") for trainer in TRAINERS for name in judged(trainer)
]
FIXES: Final = [
    pytest.param(trainer, fix, id=f"{trainer.name}-{fix.name}")
    for trainer in TRAINERS
    for fix in trainer.plan.fixes().values()
]


@cache
def findings(run: Path) -> dict[str, Finding]:
    """The findings of a recorded run by their rules."""
    return {finding.rule.name: finding for finding in profiler.read(run).findings}


@pytest.mark.parametrize(("trainer", "name"), CASES)
def test_the_rule_of_a_fix_names_its_cost_only_where_the_fix_is_left_out(trainer: Trainer, name: str) -> None:
    rule = rule_of(trainer.fixes()[name])
    without = findings(RUNS / f"{trainer.name}-{name}.zip")
    fixed = findings(RUNS / f"{trainer.name}-{BASE}.zip")
    assert rule in without, [*without]
    remaining = fixed.get(rule)
    if not trainer.left_out(name).remains:
        assert remaining is None
    elif remaining is not None:
        assert remaining.seconds <= REMAINING * without[rule].seconds


@pytest.mark.parametrize(("trainer", "fix"), FIXES)
def test_every_fix_has_a_finding_or_a_reason_why_it_has_none(trainer: Trainer, fix: Fix) -> None:
    left_out, rule = trainer.left_out(fix.name), rule_of(fix)
    assert rule in RULES or left_out.silent
    assert fix.rule_left_out != fix.rule or not fix.rule, "it is named once"
    if left_out.silent and left_out.gain and rule:
        requiring = [trainer.left_out(each.name) for each in trainer.fixes().values() if fix.name in each.requires]
        along = max((each.gain[0] for each in requiring if each.gain), default=1.0)
        low, gain = left_out.gain[1] / max(1.0, along), left_out.gain[0] / max(1.0, along)
        assert gain < TENTH or low < 1.0, "a cost that a rule should name"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "name"),
    [case for case in CASES if (gain := case.values[0].left_out(case.values[1]).gain) and gain[0] >= LARGE],
)
def test_the_rule_of_a_fix_with_a_large_gain_names_it_in_a_new_recording(
    trainer: Trainer, name: str, tmp_path: Path
) -> None:
    recorded(trainer, trainer.without(name), tmp_path / "run")
    assert rule_of(trainer.fixes()[name]) in findings(tmp_path / "run")
