"""The ladder of the sweep: every choice of the plan has a fix, and each changes what it says."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from profiler.core.plugins import discover
from reference_trainer.errors import TrainerError
from reference_trainer.ssm.plan import Plan, fixes, listing, plan, variant_fixes

RULES = {"", *(rule.name for rule in discover("profiler.diagnose.rules"))}
LADDER = ["device-data", "fused-recurrence", "batched-draws", "quiet-logging", "batched-seeds", "flat-sweep"]


def test_fixed_cures_every_choice() -> None:
    assert plan(variant_fixes("as-found")) == Plan()
    fixed = plan(variant_fixes("fixed", "cpu"))
    assert fixed == plan(variant_fixes("fixed", "cuda"))
    assert [f.name for f in fields(Plan) if getattr(fixed, f.name) == getattr(Plan(), f.name)] == []


@pytest.mark.parametrize("name", fixes())
def test_each_is_a_switch_of_its_own(name: str) -> None:
    fix = fixes()[name]
    assert fix.removes
    assert fix.rule in RULES
    alone = plan([name], "cpu")
    changed = {f.name for f in fields(Plan) if getattr(alone, f.name) != getattr(Plan(), f.name)}
    assert changed == set(fix.changes)
    assert len(changed) == 1


def test_the_listing_is_what_a_ladder_is_planned_from() -> None:
    result = json.loads(json.dumps(listing("cpu")))
    assert [fix["name"] for fix in result["fixes"]] == result["fixed"] == LADDER
    assert all(fix["available"] for fix in result["fixes"])
    assert result["device"] == "cpu"


def test_unknown_names() -> None:
    with pytest.raises(TrainerError, match="unknown fix 'nope': choose from device-data, "):
        plan(["nope"])
    with pytest.raises(TrainerError, match="unknown variant 'nope': choose as-found or fixed"):
        variant_fixes("nope")
