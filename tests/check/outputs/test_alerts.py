"""Alerts: what SARIF 2.1.0 requires, and fingerprints that stay when a line moves.

tests/approval has their complete text for every made-up result.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler.check.model import Change, GateResult
from profiler.check.modes.causes import counted_causes
from profiler.check.outputs import alerts
from profiler.check.outputs.alerts import RepositoryPaths
from tests.check.outputs import results

REPOSITORY = RepositoryPaths("/repo", "/repo")
URI = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z0-9\-._~/%@!$&'()*+,;=]*$")
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
    return dict(json.loads(alerts.render_sarif(result, REPOSITORY)))


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
        assert artifact.get("uriBaseId", alerts.ROOT) in run["originalUriBaseIds"]
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
    assert timed["level"] == alerts.ERROR
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
    long = replace(results.failed().counters[0], counter="n" * 5000)
    (rule,) = sarif(replace(results.failed(), counters=(long,), causes=()))["runs"][0]["tool"]["driver"]["rules"]
    assert len(rule["name"]) == alerts.MAX_RULE_NAME
    assert len(rule["shortDescription"]["text"]) == len(rule["fullDescription"]["text"]) == alerts.MAX_RULE_TEXT


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
