"""When enough of a running program has been recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding, RuleText
from profiler.analyse.model.measures import Measure
from profiler.diagnose.live import open_question
from profiler.run.model import RunInfo, Site

SITE = Site("train.py", 7, "main")
FOUND = Finding(RuleText("slow", "It is slow", (), "Mend it."), 0.04, 0.4, 0.35, 0.45, Confidence.HIGH, (SITE,))


def seen(found: Finding | None = FOUND, *, steps: float = 40.0, step_time: float = 0.1) -> Analysis:
    measures = {"steps": Measure("steps", steps, "1"), "step_time": Measure("step_time", step_time, "s")}
    return Analysis(RunInfo(2, "run", "", ("t.py",)), measures, {}, {}, findings=(found,) if found else ())


def test_an_answer_is_sure_when_a_second_look_agrees() -> None:
    assert open_question(seen(), seen(steps=20.0)) == ""
    assert open_question(seen(), None) == "the first cause may change"


@pytest.mark.parametrize(
    "changes",
    [{"sites": (replace(SITE, line=8),)}, {"rule": RuleText("other", "Other", (), "")}],
    ids=["line", "rule"],
)
def test_another_first_cause_at_the_look_before_is_not_sure(changes: dict[str, Any]) -> None:
    assert open_question(seen(), seen(replace(FOUND, **changes))) == "the first cause may change"


@pytest.mark.parametrize(
    ("steps", "step_time", "is_enough"), [(19, 0.1, False), (20, 0.1, True), (3, 4.0, True), (2, 9.0, False)]
)
def test_few_steps_are_enough_only_if_they_are_long(steps: float, step_time: float, is_enough: bool) -> None:
    now = seen(steps=steps, step_time=step_time)
    assert open_question(now, now) == ("" if is_enough else "the number of steps is small")


@pytest.mark.parametrize("changes", [{"low": 0.2, "high": 0.6}, {"confidence": Confidence.LOW}])
def test_an_uncertain_share_is_not_sure(changes: dict[str, Any]) -> None:
    now = seen(replace(FOUND, **changes))
    assert open_question(now, now) == "the share of the first cause is not certain"


def test_without_a_cause_nothing_is_sure() -> None:
    assert open_question(seen(None), seen(None)) == "no cause stands out"
