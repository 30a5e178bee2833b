"""Programs that state nothing of their work: what a step is and which script it was are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.comparable import differences
from profiler.analyse.comparison import SideRuns
from profiler.run.model import WHOLE_RUN, Analysis, RunInfo


def side(source: str, script: str = "train.py", **facts: str) -> SideRuns:
    info = RunInfo(1, "r", script, ("python", f"here/{script}", "--fast"))
    return SideRuns("one", "", (Analysis(replace(info, facts=facts), {}, {}, {}, step_source=source),), None)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("steps of AdamW (train.py:8)", "steps of AdamW (train.py:9); within them SGD (a.py:1) stepped too", ()),
        ("steps of AdamW (train.py:8)", "", ()),
        ("steps of SGD (a.py:1)", f"{WHOLE_RUN}: no optimizer", (f"step: steps of SGD against {WHOLE_RUN}",)),
    ],
)
def test_what_a_step_is(one: str, other: str, said: tuple[str, ...]) -> None:
    assert differences((side(one), side(other))) == said


def test_runs_of_two_scripts_are_no_pair_unless_someone_says_so() -> None:
    both = (side(""), side("", "other.py"))
    assert differences(both, same_program=True) == ("program: train.py against other.py",)
    assert differences(both) == ()
    stated = (side("", work="a"), side("", "other.py", work="a"))
    assert differences(stated, same_program=True) == (), "what they say their work is decides"
