"""What programs read: SARIF as its standard requires, fingerprints that stay when a line moves, JUnit, annotations.

Cases are never better than the verdict that they belong to. tests/approval has the complete text of each format for
every made-up result.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from profiler.check.causes import counted_causes
from profiler.check.model import FAIL, INCONCLUSIVE, PASS, STATES, Change, CounterLine, GateResult, TimeLine
from profiler.check.outputs import machine
from profiler.check.outputs.machine import (
    CHECK,
    MAX_ANNOTATIONS,
    THROUGHPUT,
    RepositoryPaths,
    cases,
    command,
    render_junit,
    workflow_commands,
)
from tests.check.outputs import results
from tests.check.outputs.results import free

REPOSITORY = RepositoryPaths("/repo", "/repo")
URI = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z0-9\-._~/%@!$&'()*+,;=]*$")
COMMAND = re.compile(r"^::(error|warning|notice) (?:[a-z]+=[^,:\r\n]*,?)+::[^\r\n]*$")
ALLOWED = {
    "": {"$schema", "version", "runs"},
    "runs": {"tool", "invocations", "columnKind", "originalUriBaseIds", "results", "properties"},
    "tool": {"driver"},
    "driver": {"name", "semanticVersion", "version", "rules"},
    "rules": {"id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration", "properties"},
    "defaultConfiguration": {"level"},
    "shortDescription": {"text"},
    "fullDescription": {"text"},
    "help": {"text"},
    "invocations": {"executionSuccessful"},
    "results": {*("ruleId", "ruleIndex", "level", "kind", "message", "locations", "partialFingerprints", "properties")},
    "message": {"text"},
    "locations": {"physicalLocation", "logicalLocations"},
    "physicalLocation": {"artifactLocation", "region"},
    "logicalLocations": {"fullyQualifiedName", "kind"},
    "artifactLocation": {"uri", "uriBaseId"},
    "region": {"startLine", "startColumn", "endLine"},
}
"""Properties of sarif-schema-2.1.0.json for the objects that are written; the schema allows no others."""
OPTIONAL = {
    "runs": {"invocations", "columnKind", "originalUriBaseIds", "properties"},
    "driver": {"semanticVersion", "version"},
    "rules": {"name", "defaultConfiguration", "properties"},
    "results": {"ruleId", "ruleIndex", "level", "kind", "properties"},
    "locations": {"logicalLocations"},
    "artifactLocation": {"uriBaseId"},
}
"""The other ones are required by the schema, or by GitHub's documentation of SARIF support."""


def assert_allowed(value: Any, name: str = "") -> None:
    """Every object below `value` has what it must have, and nothing that the schema does not know."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            if name in ALLOWED:
                assert ALLOWED[name] - OPTIONAL.get(name, set()) <= set(item) <= ALLOWED[name], (name, set(item))
            for key, inner in item.items():
                if key not in {"properties", "originalUriBaseIds", "partialFingerprints"}:
                    assert_allowed(inner, key)


def sarif(result: GateResult) -> dict[str, Any]:
    return dict(json.loads(machine.render_sarif({"": result}, REPOSITORY)))


@pytest.mark.parametrize("name", results.everything())
def test_sarif_has_what_the_standard_and_github_require(name: str) -> None:
    result = results.everything()[name]
    document = sarif(result)
    assert_allowed(document)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for alert in run["results"]:
        assert alert["message"]["text"]
        assert "](" not in alert["message"]["text"], "3.11.6: it would be a link"
        assert alert["level"] in {"error", "warning", "note"}
        assert rules[alert["ruleIndex"]] == alert["ruleId"]
        (location,) = alert["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert URI.match(artifact["uri"]), artifact
        assert artifact.get("uriBaseId", machine.ROOT) in run["originalUriBaseIds"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1, "code scanning requires a line"
    timed = sum(not cause.counter for cause in result.causes)
    assert len(run["results"]) == sum(len(line.changes) for line in result.counters) + timed


def test_an_alert_has_the_cause_and_its_line() -> None:
    result = results.failed()
    counted = tuple(counted_causes(result.counters))
    [cause] = [each for each in counted if each.line == results.SYNC.line]
    (run,) = sarif(replace(result, causes=(*result.causes, *counted)))["runs"]
    [alert] = [
        each
        for each in run["results"]
        if each["properties"].get("cause") == cause.rule and each["ruleId"] == "counter/syncs"
    ]
    assert cause.sentence in alert["message"]["text"]
    assert cause.fix in alert["message"]["text"]
    [timed] = [each for each in run["results"] if each["ruleId"] == "cause/hidden-sync"]
    assert timed["level"] == machine.ERROR
    assert timed["locations"][0]["physicalLocation"]["region"]["startLine"] == result.causes[0].line
    assert result.causes[0].fix in timed["message"]["text"]


def fingerprints(*changes: Change) -> list[str]:
    line = replace(results.failed().counters[0], changes=changes)
    (run,) = sarif(replace(results.failed(), counters=(line,), causes=()))["runs"]
    return [alert["partialFingerprints"]["primaryLocationLineHash"] for alert in run["results"]]


def test_a_fingerprint_stays_when_the_line_moves_and_changes_with_what_is_there() -> None:
    (here,) = fingerprints(results.SYNC)
    assert fingerprints(replace(results.SYNC, line=999, after=3.0)) == [here]
    assert fingerprints(replace(results.SYNC, file="/repo/examples/train.py")) == [here], "one file, one fingerprint"
    for change in ({"file": "x.py"}, {"function": "other"}, {"operation": "to"}):
        assert fingerprints(replace(results.SYNC, **change)) != [here], change
    twice = fingerprints(results.SYNC, replace(results.SYNC, line=110))
    assert twice[0] == here
    assert len(set(twice)) == 2


def test_rules_keep_the_limits_of_code_scanning() -> None:
    change = replace(results.SYNC, counter="n" * 5000)
    long = replace(results.failed().counters[0], counter=change.counter, changes=(change,))
    (rule,) = sarif(replace(results.failed(), counters=(long,), causes=()))["runs"][0]["tool"]["driver"]["rules"]
    assert len(rule["name"]) == machine.MAX_RULE_NAME
    assert len(rule["shortDescription"]["text"]) == len(rule["fullDescription"]["text"]) == machine.MAX_RULE_TEXT


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
    assert repository.relative("/elsewhere/x.py") is None
    assert RepositoryPaths("", "/anywhere").relative("x.py") is None


@pytest.mark.parametrize("name", results.everything())
def test_the_worst_case_is_the_verdict_and_junit_counts_them(name: str) -> None:
    result = results.everything()[name]
    parts = cases(result)
    assert max((case.state for case in parts), key=STATES.index) == result.state
    assert all(case.message for case in parts)
    root = ET.fromstring(render_junit({"": result}).encode("utf-8"))
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


def test_a_time_names_what_the_rounds_rule_out_and_no_amount_that_they_measured_already() -> None:
    line = TimeLine("typical step", PASS, 0.0, None, 0.012, 20, 0.031, None, None)

    def message(**changes: Any) -> str:
        changed = replace(line, **changes)
        speed = replace(results.speed(results.passed()), lines=(changed,), state=changed.state)
        result = replace(results.passed(), throughput=speed, state=changed.state)
        return next(case.message for case in cases(result) if case.group == THROUGHPUT)

    assert "slower by more than 1.2% is ruled out; from +3.1% on it would have been a FAIL (80%)" in message()
    assert "would have been" not in message(state=INCONCLUSIVE, slowdown=0.3)
    assert "would have been" not in message(state=INCONCLUSIVE, rounds=2)


def test_many_unchanged_lines_are_one_alert() -> None:
    changes = tuple(Change("operators", "a.py", at, "f", "", 1.0, 2.0) for at in range(1, 6))
    line = CounterLine("operators", FAIL, (5.0, 5.0), (10.0, 10.0), 5.0, changes=changes)
    result = replace(results.failed(), counters=(line,), causes=())
    [alert] = sarif(result)["runs"][0]["results"]
    [error] = [each for each in workflow_commands(result, REPOSITORY) if "title=Operators" in each]
    assert alert["message"]["text"].startswith("5 lines of f() count 2 times as many operators")
    assert alert["message"]["text"] in error
