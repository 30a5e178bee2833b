"""Programs that state nothing of their work: what a step is and which script it was are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.comparability import fact_mismatches, unstated_facts
from profiler.analyse.comparison import SideRuns
from profiler.analyse.model.analysis import Analysis
from profiler.report.notices import mismatch
from profiler.run.model import RunInfo, StepDefinition, StepKind


def side(definition: StepDefinition | None = None, script: str = "train.py", **facts: object) -> SideRuns:
    info = RunInfo(1, "r", script, ("python", f"here/{script}", "--fast"))
    return SideRuns("one", "", (Analysis(replace(info, facts=facts), {}, {}, {}, step=definition),), None)


def steps_of(name: str, nested: tuple[str, ...] = ()) -> StepDefinition:
    return StepDefinition(StepKind.OPTIMIZER, ((name,),), nested)


def shown(sides: tuple[SideRuns, ...], **options: bool) -> tuple[str, ...]:
    return tuple(map(mismatch, fact_mismatches(sides, **options)))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (steps_of("AdamW (train.py:8)"), steps_of("AdamW (train.py:9)", nested=("SGD (a.py:1)",)), ()),
        (steps_of("AdamW (train.py:8)"), None, ()),
        (
            steps_of("SGD (a.py:1)"),
            StepDefinition(StepKind.WHOLE_RUN, optimizer_steps=0),
            ("step: steps of SGD against the whole run as one step",),
        ),
    ],
)
def test_what_a_step_is(one: StepDefinition, other: StepDefinition | None, said: tuple[str, ...]) -> None:
    assert shown((side(one), side(other))) == said


def test_runs_of_two_scripts_are_no_pair_unless_someone_says_so() -> None:
    both = (side(), side(None, "other.py"))
    assert shown(both, same_program=True) == ("program: train.py against other.py",)
    assert shown(both) == ()
    stated = (side(None, work="a"), side(None, "other.py", work="a"))
    assert shown(stated, same_program=True) == (), "what they say their work is decides"


SWEEP = {"device": "cpu", "work": "sweep", "step": "group", "seeds": [0, 1], "student_dims": [8, 32]}


def test_sweeps_are_compared_by_their_seeds_and_sizes() -> None:
    assert shown((side(None, **SWEEP), side(None, "other.py", **SWEEP)), same_program=True) == ()
    larger = SWEEP | {"seeds": [0, 1, 2], "student_dims": [8, 64]}
    assert shown((side(None, **SWEEP), side(None, **larger))) == (
        "seeds: [0, 1] against [0, 1, 2]",
        "student_dims: [8, 32] against [8, 64]",
    )


def test_nobody_is_asked_for_the_facts_of_another_kind_of_program() -> None:
    assert {*unstated_facts((side(None, **SWEEP),))} == {
        "dtype", "unit", "methods", "teacher_ranks", "sequence_length", "measurements", "budget",
    }  # fmt: skip
    text = unstated_facts((side(None, device="cpu", corpus="a"),))
    assert "preset" in text
    assert not {"seeds", "unit", "methods"} & {*text}
    assert {*unstated_facts((side(),))} == {*text, "device", "corpus"}


@pytest.mark.parametrize("stated", [{"unit": "images"}, {"sequence_length": 512}, {"unit": "x", "sequence_length": 9}])
def test_a_word_that_anyone_may_state_makes_no_sweep(stated: dict[str, object]) -> None:
    assert unstated_facts((side(None, **stated),)) == unstated_facts((side(),))
