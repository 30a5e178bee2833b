"""Verdicts as sentences; the sentences themselves are approved in tests/approval."""

from __future__ import annotations

import pytest

from profiler.analyse.model import AFTER_OPTIMIZER, HOST_CATEGORIES, Location, LocationKind, Stage
from profiler.diagnose.model import Cause, RunDiagnosis, RunVerdict
from profiler.report.category_text import CATEGORIES
from profiler.report.verdict_text import run_statement
from profiler.run.model import Site


def test_every_host_category_has_its_texts() -> None:
    assert tuple(CATEGORIES) == HOST_CATEGORIES


@pytest.mark.parametrize("category", [*HOST_CATEGORIES, AFTER_OPTIMIZER])
def test_every_category_can_be_the_cause_of_a_slow_step(category: str) -> None:
    diagnosis = RunDiagnosis(RunVerdict.CAUSE, share=0.2, causes=(Cause(category, 0.7),))
    assert run_statement(diagnosis).text.startswith("70% of each step ")


@pytest.mark.parametrize("category", HOST_CATEGORIES)
def test_every_category_can_leave_the_device_idle(category: str) -> None:
    diagnosis = RunDiagnosis(RunVerdict.DEVICE_IDLE, "GPU", share=0.6, causes=(Cause(category, 0.6),))
    assert CATEGORIES[category].idle in run_statement(diagnosis).text


def test_waits_for_a_core_beside_a_stage_overlap_it() -> None:
    core, python = Cause("core", 0.8), Cause("python", 0.1)
    for causes, expected in (((Cause(Stage.EVALUATION, 0.7), core), True), ((core, python), False)):
        text = run_statement(RunDiagnosis(RunVerdict.CAUSE, share=0.1, causes=causes)).text
        assert "waiting for a core" in text
        assert ("waiting for a core, which overlaps the other parts." in text) is expected


@pytest.mark.parametrize(("low", "expected"), [(0.0, "step(), probably at t.py:9."), (1.0, "step() at t.py:9.")])
def test_a_place_that_is_only_probable_is_apart(low: float, expected: str) -> None:
    place = Location(LocationKind.LINE, (Site("t.py", 9, "<module>"),), 1.0, low, 1.0)
    diagnosis = RunDiagnosis(RunVerdict.CAUSE, causes=(Cause(AFTER_OPTIMIZER, 0.7, location=place),))
    assert run_statement(diagnosis).text.endswith(expected)


def test_shares_beyond_a_whole_step_are_explained() -> None:
    causes = Cause(AFTER_OPTIMIZER, 0.4), Cause("python", 0.3), Cause("log", 0.2)
    for computing, expected in ((0.5, "Computing takes 50%, partly after optimizer.step()."), (0.1, "takes 10%.")):
        text = run_statement(RunDiagnosis(RunVerdict.CAUSE, share=computing, causes=causes)).text
        assert text.endswith(expected)
        assert "20% goes to logging." in text


def test_computing_that_takes_most_of_a_step_has_its_lines() -> None:
    lines = [Location(LocationKind.LINE, (Site("t.py", line, "<module>"),), 0.4, 0.3, 0.5) for line in (5, 9)]
    operators = Cause("compute", 0.5, further=tuple(lines))
    for verdict, causes, expected in (
        (RunVerdict.COMPUTING, (), "Computing takes 50% of each step (20% at t.py:5; 20% at t.py:9); no other"),
        (RunVerdict.CAUSE, (Cause("core", 0.5),), "Computing takes 50% (20% at t.py:5; 20% at t.py:9)."),
    ):
        assert expected in run_statement(RunDiagnosis(verdict, share=0.5, causes=causes, operators=operators)).text


def test_computing_has_its_interval_where_that_is_wide() -> None:
    python = (Cause("python", 0.2),)
    for low, causes, expected in (
        (0.3, (), "Computing takes 80% (30 to 85%) of each step; the stack samples are too few to tell what takes the"),
        (0.3, python, "Computing takes 80% (30 to 85%) of each step."),
        (0.78, python, "Computing takes 80%."),
    ):
        verdict = RunVerdict.CAUSE if causes else RunVerdict.COMPUTING
        diagnosis = RunDiagnosis(verdict, share=0.8, low=low, high=0.85, causes=causes)
        assert expected in run_statement(diagnosis).text
