"""The cases of `make accuracy` are consistent, and its judge tells right from wrong."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.core.plugins import discover
from tests.traps.cases import CASES, Case
from tests.traps.judge import judge, judge_throttled
from tests.traps.table import page, quantile
from tests.traps.trials import page as trials_page


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_name_rules_and_lines_that_exist(case: Case) -> None:
    known = {rule.name for rule in discover("profiler.diagnose.rules")}
    assert known >= set(case.rules)
    assert bool(case.lines()) == (bool(case.ill) and case.markers is not None)


def finding(rule: str, gain: float = 2.0, line: int = 0, overlaps: str = "") -> dict[str, Any]:
    sites = [{"file": "x/trainer.py", "line": line}] if line else []
    return {
        "rule": rule,
        "gains": [{"factor": gain}],
        "overlaps": overlaps,
        "confidence": "high",
        "sites": sites,
        "is_of_run": False,
    }


def test_one_illness_must_come_first() -> None:
    case = next(case for case in CASES if case.name == "python-loop")
    (line,) = case.lines()
    right = judge(case, [finding("python-loop", 1.5, line), finding("logging-in-loop", 1.2)])
    assert (right.is_right, right.has_line, right.gain) == (True, True, 1.5)
    assert not judge(case, [finding("logging-in-loop"), finding("python-loop")]).is_right
    assert not judge(case, [finding("python-loop", 1.05)]).is_right, "too small to lead"
    assert judge(case, [finding("python-loop", 1.5, 3)]).has_line is False
    assert not judge(case, []).is_right


def test_all_of_several_illnesses_must_be_among_the_first() -> None:
    case = next(case for case in CASES if case.name == "item-and-checkpoint")
    assert judge(case, [finding("no-workers"), finding("synchronous-checkpoint")]).is_right
    assert judge(case, [finding("synchronous-checkpoint"), finding("slow-dataset-item")]).is_right
    assert not judge(case, [finding("no-workers"), finding("python-loop"), finding("synchronous-checkpoint")]).is_right


def test_a_healthy_program_has_no_finding_worth_naming() -> None:
    case = next(case for case in CASES if not case.ill)
    assert judge(case, [finding("no-workers", 1.05)]).is_right
    assert judge(case, [finding("no-workers", 1.5, overlaps="x")]).is_right
    assert not judge(case, [finding("no-workers", 1.2)]).is_right


def test_a_quota_is_one_illness_more() -> None:
    case = next(case for case in CASES if case.name == "python-loop")
    (line,) = case.lines()
    right = judge_throttled(case, [finding("throttled", 2.0), finding("python-loop", 1.5, line)])
    assert (right.is_right, right.has_line, right.first) == (True, True, "python-loop")
    assert not judge_throttled(case, [finding("python-loop", 1.5, line)]).is_right
    healthy = next(case for case in CASES if not case.ill)
    assert judge_throttled(healthy, [finding("throttled")]).is_right
    assert not judge_throttled(healthy, [finding("python-loop"), finding("throttled")]).is_right


def test_a_small_illness_beside_a_large_one_counts_by_its_order() -> None:
    case = next(case for case in CASES if case.name == "evaluation-and-pause")
    assert judge(case, [finding("frequent-evaluation", 3.0), finding("blocked-thread", 1.08)]).is_right
    assert not judge(case, [finding("frequent-evaluation", 3.0)]).is_right


def test_the_page_counts_what_is_right() -> None:
    row = {"case": "a", "condition": "quiet", "ill": ["a"], "first": "a", "is_right": True, "has_line": True}
    own = {"rule": "a", "share": 0.2, "gains": [{"method": "bound", "factor": 2.0}]}
    row |= {"gain": 3.0, "real": 1.6, "real_low": 1.5, "real_high": 1.7, "findings": [{"rule": "b", "gains": []}, own]}
    text = page([row, row | {"is_right": False, "gain": None, "real": None}])
    assert "- quiet, one illness: right 1 of 2" in text
    assert "- bound against real gain, |ln|: median 0.22" in text
    assert "- bound (*about*) against real gain, |ln|: median 0.22" in text
    assert "- no gain against real gain, |ln|: median 0.47" in text
    assert "- plain Amdahl against real gain, |ln|: median 0.25" in text, "1.25 of 1.6"
    own["gains"][0] |= {"is_most": True}
    assert "- up to about: true in 1 of 2;" in page([row, row | {"real": 2.2}])
    assert "|ln|" not in page([row | {"ill": ["c"]}]), "another cure"
    assert "|ln|" not in page([row | {"real": 1.05}]), "nothing to gain"


def test_the_page_of_trials_keeps_what_only_removes_work_apart() -> None:
    interval = {"low": 1.9, "high": 2.1, "real_low": 1.9, "real_high": 2.1, "seconds": 20.0, "recorded_s": 10.0}
    row = {"case": "a", "ill": "python-loop", "rule": "python-loop", "measured": 2.0, "real": 2.0, **interval}
    far = row | {"measured": 2.2, "low": 2.15, "high": 2.3}
    other = row | {"ill": "no-workers", "measured": 1.8, "high": 1.85}
    text = trials_page([row, far, row | {"measured": None, "reason": "loss"}, other, other | {"high": 1.95}])
    assert "Of 5 with a real gain of 10% or more, 4 were measured." in text
    assert (
        "only removes work (2): median |ln| 0.05, P90 0.09; the intervals of trial and real cure are apart in 1" in text
    )
    assert "at least the real gain in 1 of 2 within the intervals, and in 0 by the figures alone, within 5%" in text


def test_quantiles_lie_between_their_neighbours() -> None:
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.75, 1.0)] == [1.0, 2.0, 2.5, 3.0]
