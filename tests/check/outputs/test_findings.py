"""Cases are never better than the verdict that they belong to; files are named as the repository does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, STATES
from profiler.check.outputs.findings import CHECK, COUNTERS, THROUGHPUT, RepositoryPaths, cases
from tests.check.outputs import results
from tests.check.outputs.results import free


@pytest.mark.parametrize("name", results.everything())
def test_the_worst_case_is_the_verdict(name: str) -> None:
    result = results.everything()[name]
    parts = cases(result)
    assert max((case.state for case in parts), key=STATES.index) == result.state
    assert all(case.message for case in parts)


def test_a_case_for_every_counter_and_line() -> None:
    parts = cases(results.failed())
    assert [case.group for case in parts] == [COUNTERS] * 7 + [THROUGHPUT] * 2
    assert [case.name for case in parts if case.fewer] == ["H2D copies"]
    assert "+1 sync per step at examples/train.py:104" in parts[0].message
    (case,) = cases(results.other_machine())
    assert (case.group, case.state) == (COUNTERS, INCONCLUSIVE)
    assert "torch 2.9.0" in case.message


def test_a_fail_that_was_not_confirmed_is_inconclusive() -> None:
    speed = results.speed(results.failed())
    unconfirmed = replace(speed, state=INCONCLUSIVE, confirmed=False, reason=free("the control failed too"))
    parts = cases(replace(results.passed(), state=INCONCLUSIVE, throughput=unconfirmed))
    states = {case.name: case.state for case in parts if case.group == THROUGHPUT}
    assert states == {"typical step": INCONCLUSIVE, "all steps": INCONCLUSIVE}


def test_a_verdict_that_is_worse_than_its_parts_has_a_case() -> None:
    parts = cases(replace(results.passed(), state=FAIL))
    assert [(case.group, case.state) for case in parts if case.state != PASS] == [(CHECK, FAIL)]
    speed = results.speed(results.passed())
    biased = replace(results.passed(), throughput=replace(speed, state=INCONCLUSIVE, reason=free("slot bias")))
    assert [case.message for case in cases(biased) if case.state != PASS] == ["slot bias"]


def test_the_root_is_the_nearest_folder_with_git(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    inner = tmp_path / "repo" / "examples" / "deep"
    inner.mkdir(parents=True)
    repository = RepositoryPaths.around(inner)
    assert repository.root == str(tmp_path / "repo")
    for file, expected in (
        ("train.py", "examples/deep/train.py"),
        (str(tmp_path / "repo" / "lib" / "x.py"), "lib/x.py"),
        ("../../../outside.py", None),
        ("", None),
    ):
        assert repository.relative(file) == expected
    assert repository.label("/elsewhere/x.py") == "/elsewhere/x.py"
    assert RepositoryPaths("", "/anywhere").relative("x.py") is None
