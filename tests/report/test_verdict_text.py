"""Verdicts as sentences; the sentences themselves are approved in tests/approval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.finding import Confidence
from profiler.analyse.model import (
    AFTER_OPTIMIZER,
    HOST_CATEGORIES,
    INTERRUPTIONS,
    UPDATE,
    RankActivity,
    RankLedger,
    Stage,
    Straggler,
)
from profiler.diagnose.model import RunVerdict
from profiler.report.category_text import CATEGORIES
from profiler.report.verdict_text import run_statement
from tests.report.wording import idle, rest, step


def test_every_host_category_has_its_texts() -> None:
    assert tuple(CATEGORIES) == HOST_CATEGORIES


STAGES = [stage for stage in INTERRUPTIONS if stage != Stage.NO_GRADIENTS]


@pytest.mark.parametrize("category", [*HOST_CATEGORIES, AFTER_OPTIMIZER, UPDATE, *STAGES])
def test_all_time_of_a_step_can_be_told(category: str) -> None:
    assert " takes 70% of each step" in run_statement(step(rest(category, 0.7))).text
    assert "The rest of " in run_statement(step(rest(category, 0.7, is_rest=True))).text


@pytest.mark.parametrize("category", HOST_CATEGORIES)
def test_every_category_can_leave_the_device_idle(category: str) -> None:
    text = run_statement(idle(0.6, rest(f"idle-{category}", 0.6))).text
    assert CATEGORIES[category].idle in text
    assert "The H200 was idle 60% of the time." in text


def test_the_first_finding_is_the_headline() -> None:
    statement = run_statement(step(rest("input", 0.5), rest("compute", 0.4)))
    assert statement.headline == "Data loading takes 50% of each step."
    assert statement.details == ("Computing takes 40% of each step.",)


def test_a_wide_interval_is_told() -> None:
    text = run_statement(step(rest("compute", 0.8, ends=(0.3, 0.85)), verdict=RunVerdict.COMPUTING)).text
    assert text == "Computing takes 80% (30 to 85%) of each step. No other part takes 5% of it."


def test_what_samples_do_not_tell_is_no_small_rest() -> None:
    unsure = replace(rest("python", 0.15), confidence=Confidence.LOW)
    text = run_statement(step(rest("compute", 0.8), unsure, verdict=RunVerdict.COMPUTING)).text
    assert text.endswith("The stack samples are too few to tell what takes the rest.")


def test_a_late_rank_of_which_no_more_is_known_is_told_alone() -> None:
    """No other finding is told, so that nothing follows about the rank."""
    late = replace(rest("compute", 0.4), values={"rank": 1})
    ranks = RankLedger(
        tuple(RankActivity(rank, rank, 9, 0, 1.0, None, None) for rank in (0, 1)),
        1,
        synchronous=True,
        straggler=Straggler(1, 0.4, "compute", 0.4, 0.0, None),
    )
    statement = run_statement(replace(step(late), ranks=ranks))
    assert statement.headline.startswith("Rank 1 makes the other rank wait 400 ms of each step")
    assert not any("On rank" in sentence for sentence in statement.details)
