"""Cases are never better than the verdict that they belong to; JUnit and annotations are valid for any text.

tests/approval has the complete text of both for every made-up result.
"""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, STATES, CounterLine
from profiler.check.outputs.alerts import RepositoryPaths
from profiler.check.outputs.cases import (
    CHECK,
    MAX_ANNOTATIONS,
    THROUGHPUT,
    cases,
    command,
    render_junit,
    workflow_commands,
)
from tests.check.outputs import results
from tests.check.outputs.results import free

REPOSITORY = RepositoryPaths("/repo", "/repo")
COMMAND = re.compile(r"^::(error|warning|notice) (?:[a-z]+=[^,:\r\n]*,?)+::[^\r\n]*$")


@pytest.mark.parametrize("name", results.everything())
def test_the_worst_case_is_the_verdict_and_junit_counts_them(name: str) -> None:
    result = results.everything()[name]
    parts = cases(result)
    assert max((case.state for case in parts), key=STATES.index) == result.state
    assert all(case.message for case in parts)
    root = ET.fromstring(render_junit(result).encode("utf-8"))
    assert root.tag == "testsuites"
    (suite,) = root.findall("testsuite")
    tests = suite.findall("testcase")
    assert len(tests) == len(parts) == int(suite.get("tests", "")) > 0
    assert len(suite.findall("testcase/failure")) == int(suite.get("failures", ""))
    assert len(suite.findall("testcase/skipped")) == int(suite.get("skipped", ""))
    assert bool(suite.findall("testcase/failure")) == (result.state == FAIL)
    assert bool(suite.findall("testcase/skipped")) or result.state != INCONCLUSIVE
    assert len({(case.get("classname"), case.get("name")) for case in tests}) == len(tests)


def test_a_fail_that_was_not_confirmed_is_inconclusive() -> None:
    speed = results.speed(results.failed())
    unconfirmed = replace(speed, state=INCONCLUSIVE, confirmed=False, reason=free("it was too close"))
    parts = cases(replace(results.passed(), state=INCONCLUSIVE, throughput=unconfirmed))
    states = {case.name: case.state for case in parts if case.group == THROUGHPUT}
    assert states == {"typical step": INCONCLUSIVE, "all steps": INCONCLUSIVE}


def test_a_verdict_that_is_worse_than_its_parts_has_a_case() -> None:
    parts = cases(replace(results.passed(), state=FAIL))
    assert [(case.group, case.state) for case in parts if case.state != PASS] == [(CHECK, FAIL)]
    speed = results.speed(results.passed())
    biased = replace(results.passed(), throughput=replace(speed, state=INCONCLUSIVE, reason=free("slot bias")))
    assert [case.message for case in cases(biased) if case.state != PASS] == ["slot bias"]


@pytest.mark.parametrize("name", results.everything())
def test_every_annotation_is_one_command(name: str) -> None:
    for line in workflow_commands(results.everything()[name], REPOSITORY):
        assert COMMAND.match(line), line
        assert not set(line) & set("\r\n\x1b\x00")
        line.encode()


def test_the_escapes_of_github() -> None:
    line = command("error", "50% of a:b, c", title="50%: a, b", file="a,b:c.py", line=3)
    assert line == "::error file=a%2Cb%3Ac.py,line=3,title=50%25%3A a%2C b::50%25 of a:b, c"


def test_more_than_github_shows_are_counted() -> None:
    counters = tuple(CounterLine(f"counter_{at}", FAIL, (0.0, 0.0), (1.0, 1.0), 0.0) for at in range(25))
    lines = workflow_commands(replace(results.failed(), counters=counters), REPOSITORY)
    errors = [line for line in lines if line.startswith("::error")]
    assert len(errors) == MAX_ANNOTATIONS
    assert errors[-1].startswith("::error title=17 more::17 more are in")
