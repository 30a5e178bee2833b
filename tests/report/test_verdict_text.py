"""Verdicts as sentences; the sentences themselves are approved in tests/approval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.device import HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, RuleText
from profiler.analyse.model.host import AFTER_OPTIMIZER, INTERRUPTIONS, UPDATE, Stage
from profiler.analyse.model.ledger import Period
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.model.ranks import RankActivity, RankLedger, Straggler
from profiler.diagnose.model import RunVerdict, is_large_of_run
from profiler.diagnose.rest import _largest
from profiler.diagnose.rules.whole_run import one_off_work
from profiler.report.category_text import CATEGORIES
from profiler.report.finding_text import finding_text
from profiler.report.rank_text import straggler_sentence
from profiler.report.verdict_text import run_statement
from tests.report.wording import idle, rest, step


def test_every_host_category_has_its_texts() -> None:
    assert tuple(CATEGORIES) == HOST_CATEGORIES


def test_a_long_wait_for_what_a_trace_does_not_hold() -> None:
    wait = IdleBlame(HostState.BLOCKED_IN_CALL, "sync", SiteOrigin.ITSELF, "sync", None, 0.005, 0.5, 0.1)
    missing = "The trace does not hold what the host waited for."
    assert missing in run_statement(idle(0.6, rest("idle-sync", 0.6, rows=(wait,)))).text, "50 ms in every tenth step"
    short = replace(wait, gaps_per_step=1.0)
    assert missing not in run_statement(idle(0.6, rest("idle-sync", 0.6, rows=(short,)))).text
    both = _largest([wait, replace(wait, seconds_per_step=0.05)])
    assert [(row.seconds_per_step, row.gaps_per_step) for row in both] == [pytest.approx((0.055, 0.2))]


RANKS = tuple(RankActivity(rank, rank, 9, 0, 1.0, None, None) for rank in (0, 1))


@pytest.mark.parametrize("is_most", [False, True])
def test_the_gain_of_a_late_rank_is_that_of_its_finding(*, is_most: bool) -> None:
    ledger = RankLedger(RANKS, 1, synchronous=True, straggler=Straggler(1, 0.05, "input", 0.06, 0.01))
    gain = Gain(GainMethod.BOUND, 1.5, 1.5, 1.5, is_most=is_most)
    late = Finding(
        RuleText("straggling-rank", "Rank {rank} makes the training wait", (), ""), 0.05, 0.5, 0.5, 0.5,
        Confidence.HIGH, values={"rank": 1}, gains=(gain,), costs={"input": 0.05},
    )  # fmt: skip
    text = run_statement(step(late, ranks=ledger)).text
    told = "Without that work: up to about 1.50× as fast." if is_most else "With equal work on each rank: about 1.50×"
    assert told in text


@pytest.mark.parametrize(("core", "is_named"), [(0.004, False), (0.006, True)])
def test_waits_for_a_core_of_a_late_rank_are_named_from_a_tenth_of_its_lead_on(core: float, *, is_named: bool) -> None:
    late = Straggler(1, 0.05, "input", 0.06, 0.01, core=core)
    text = straggler_sentence(RankLedger(RANKS, 1, synchronous=True, straggler=late))
    assert ("longer for a core" in text) is is_named


def test_growth_may_lead_before_the_run_has_ended() -> None:
    growth = Finding(
        RuleText("growing-steps", "Steps take longer and longer", (), ""), 5.0, 0.0, 0.0, 0.0, Confidence.MEDIUM,
        is_of_run=True, of_steps=0.6,
    )  # fmt: skip
    assert is_large_of_run(growth)
    assert not is_large_of_run(replace(growth, share=0.05)), "it is a small part of a run that has ended"
    assert not is_large_of_run(replace(growth, period=Period.ONE_OFF))


def test_a_number_has_the_noun_that_it_requires() -> None:
    words = ("{one:n step}, {many:n step}, {half:n time}, {one:n batch}, {many:n batch}",)
    rule = RuleText("rule", "A cause", words, "")
    values = {"one": 1, "many": 3, "half": 2.5}
    found = Finding(rule, 0.1, 0.1, 0.1, 0.1, Confidence.HIGH, values=values)
    assert finding_text(found).evidence == ("1 step, 3 steps, 2.5 times, 1 batch, 3 batches",)


def test_the_stage_of_work_that_occurs_once_has_its_name() -> None:
    found = Finding(one_off_work, 5.0, 0.1, 0.1, 0.1, Confidence.HIGH, values=_Known({"stage": Stage.COMPILE}))
    assert "Most of it is compilation by torch.compile." in finding_text(found).evidence


class _Known(dict[str, object]):
    """Values of which all others are not known."""

    def __missing__(self, name: str) -> None:
        return None


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
        RANKS,
        1,
        synchronous=True,
        straggler=Straggler(1, 0.4, "compute", 0.4, 0.0, None),
    )
    statement = run_statement(replace(step(late), ranks=ranks))
    assert statement.headline.startswith("Rank 1 makes the other rank wait 400 ms of each step")
    assert not any("On rank" in sentence for sentence in statement.details)
