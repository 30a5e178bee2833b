"""docs/coverage.md names rules that exist, and all of them, and leaves no cause of the two lists out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profiler.core.plugins import discover

PAGE = (Path(__file__).parents[3] / "docs" / "coverage.md").read_text(encoding="utf-8")
STUDY, CATALOGUE = PAGE.split("## The catalogue of pathologies")
NOT_RULES = {"synchronize", "empty_cache", "pin_memory", "channels_last", "if"}
"""Other words of one part that stand in backquotes."""


def test_the_page_names_every_rule_and_no_other() -> None:
    rules = {rule.name for rule in discover("profiler.diagnose.rules")}
    named = set(re.findall(r"`([a-z0-9_-]+)`", PAGE)) - NOT_RULES
    assert named == rules


def test_each_cause_of_the_catalogue_has_a_rule_or_a_reason() -> None:
    rows = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", CATALOGUE, re.MULTILINE)
    assert sorted(int(number) for number, _ in rows) == list(range(1, 69))
    for number, answer in rows:
        assert "`" in answer or ": " in answer or "rule" in answer, f"{number} has neither a rule nor a reason"


def test_the_shares_of_the_study_are_those_of_its_counts() -> None:
    rows = re.findall(r"^\| (\*?)[^|]+ \| (\d+) \| ([\d.]+)% \|", STUDY, re.MULTILINE)
    single = [(int(count), float(share)) for star, count, share in rows if not star]
    dimensions = [(int(count), float(share)) for star, count, share in rows if star]
    assert (len(single), len(dimensions)) == (15, 4)
    assert sum(count for count, _ in single) == sum(count for count, _ in dimensions) == 706
    for count, share in single + dimensions:
        assert share == pytest.approx(100 * count / 706, abs=0.006)


def test_the_share_of_covered_categories_is_their_sum() -> None:
    rows = re.findall(r"^\| ([A-Z][^|]+) \| (\d+) \| [\d.]+% \| ([^|]*) \|", STUDY, re.MULTILINE)
    covered = sum(int(count) for name, count, rules in rows if rules.strip() and name != "Improper batch size")
    assert f"{100 * covered / 706:.1f}% of the issues" in STUDY
