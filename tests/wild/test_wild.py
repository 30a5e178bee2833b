"""The suite of programs with known illness, without recording any: its manifest, its scripts, and its judge."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest

from tests.wild.judge import Miss, Outcome, differences, judge
from tests.wild.manifest import SCRIPTS, Case, TrueCause, read_manifest
from tests.wild.table import markdown, verdicts

CASE = Case(
    name="loop", kind="script", command=("python",), steps=100, truth="made up",
    causes=(TrueCause(category=("python",), at=("train.py:count",), part="python"),),
)  # fmt: skip
HEALTHY = Case(name="healthy", kind="script", command=("python",), steps=100, truth="made up")
FRAME = ["project/train.py", 17, "count"]


def _cause(category: str = "python", share: float = 0.6, **more: Any) -> dict[str, Any]:
    return {"category": category, "share": share, "low": None, "high": None, "kind": "line", "path": [FRAME],
            "calls": "", "rank": None, "notice": None, **more}  # fmt: skip


def _outcome(*causes: dict[str, Any], steps: int = 99, screen: str = "", waited: float = 0.0, **more: Any) -> Outcome:
    facts = {
        "verdict": "cause", "text": "", "state": "complete", "step_source": "steps of SGD", "causes": list(causes),
        "steps": [{"pid": 7, "rank": 0, "count": steps, "begin": 0, "end": 1}],
        "breakdown": {"core": [waited, waited, waited]}, **more,
    }  # fmt: skip
    truth = [{"rank": 0, "wall": 10.0, "parts": {"python": [6.0, 6.2]}}]
    return Outcome("quiet", facts, screen, "", 0, truth=truth, runnable={"7": waited})


def _misses(case: Case, outcome: Outcome) -> list[Miss]:
    return [problem.miss for problem in judge(case, outcome)]


def test_the_manifest_is_valid_and_its_scripts_can_be_compiled() -> None:
    cases = read_manifest()
    files = {word.rpartition("/")[2] for case in cases for word in case.command if "{scripts}/" in word}

    assert files <= {path.name for path in SCRIPTS.glob("*.py")}
    for path in SCRIPTS.glob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(), path.name)), f"{path.name} tells what is wrong with it"


def test_a_true_verdict_has_no_problem() -> None:
    assert _misses(CASE, _outcome(_cause())) == []
    assert _misses(HEALTHY, _outcome()) == []


@pytest.mark.parametrize(
    ("case", "outcome", "miss"),
    [
        (CASE, _outcome(_cause(), steps=98), Miss.STEPS),
        (CASE, _outcome(_cause(), steps=101), Miss.STEPS),
        (CASE, _outcome(_cause(), state="failed"), Miss.FAILED),
        (CASE, _outcome(), Miss.NOT_NAMED),
        (CASE, _outcome(_cause(path=[["project/train.py", 9, "main"]])), Miss.PLACE),
        (CASE, _outcome(_cause(share=0.8)), Miss.SHARE),
        (CASE, _outcome(_cause(), _cause("checkpoint", 0.2)), Miss.FALSE),
        (CASE, _outcome(_cause(), screen="neither data nor Python is what limits this run"), Miss.ALL_CLEAR),
        (CASE, _outcome(_cause(), waited=0.3, breakdown={}), Miss.SHARE),
        (HEALTHY, _outcome(_cause()), Miss.FALSE),
    ],
)
def test_each_kind_of_miss_is_seen(case: Case, outcome: Outcome, miss: Miss) -> None:
    assert _misses(case, outcome) == [miss]


def test_a_smaller_cause_must_not_be_named_first() -> None:
    case = CASE.model_copy(update={"causes": (*CASE.causes, TrueCause(category=("input",), share=(0.2, 0.2)))})

    assert _misses(case, _outcome(_cause("input", 0.2), _cause())) == [Miss.ORDER]
    assert _misses(case, _outcome(_cause(), _cause("input", 0.2))) == []


def test_time_without_a_core_may_be_taken_out_of_a_share() -> None:
    truth = [{"rank": 0, "wall": 10.0, "parts": {"python": [3.8, 6.5]}}]

    assert judge(CASE, replace(_outcome(_cause(share=0.4), waited=0.3), truth=truth)) == []


def test_repeats_differ_by_their_first_cause_and_not_by_a_cause_near_the_limit() -> None:
    python, checkpoint = _outcome(_cause()), _outcome(_cause("checkpoint", 0.5))

    assert len(differences([python, _outcome(_cause(), _cause("log", 0.11))])) == 1
    assert len(differences([python, checkpoint, python])) == 2


def test_the_table_tells_why_a_case_is_missed() -> None:
    outcome = _outcome(_cause("checkpoint"))
    row = {"case": "loop", "commit": "abc", **{name: getattr(outcome, name) for name in Outcome.__slots__}}
    page = markdown(verdicts([CASE], [row]), {"loop": "it is not here now", "other": "no package"}, "# Results")

    assert "| loop | quiet | 0 of 1 | false<br>not named | checkpoint 60%" in page
    assert page.partition("Not tried:")[2].split() == ["-", "other:", "no", "package"]
