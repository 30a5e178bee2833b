"""Fixes name the files that contain them, and rules that exist: the report names both beside findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.core.plugins import discover, entry_points
from reference_trainer.fixes import Fix

ROOT = Path(__file__).parents[2]
FIXES: list[Fix] = [fix for fixes in entry_points("fixes").values() for fix in fixes]
CURES = [fix for fix in FIXES if fix.rule]


@pytest.mark.parametrize("fix", CURES, ids=lambda fix: fix.name)
def test_a_cure_names_a_rule_and_has_files(fix: Fix) -> None:
    assert fix.rule in {rule.name for rule in discover("profiler.diagnose.rules")}
    assert fix.files


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_the_files_of_a_fix_exist(fix: Fix) -> None:
    assert all((ROOT / file).is_file() for file in fix.files)


def test_files_are_named_with_their_package() -> None:
    files = {fix.name: fix.files for fix in FIXES}
    assert files["batch-recurrence"] == (
        "reference_trainer/lm/stages/recurrence.py",
        "reference_trainer/kernels/scan.py",
    )
