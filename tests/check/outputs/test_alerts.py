"""Alerts: what SARIF 2.1.0 and GitLab's Code Quality require, and fingerprints that stay when a line moves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, Change, GateResult
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
"""Of the objects that are written, properties of sarif-schema-2.1.0.json, which allows no others."""
REQUIRED = {
    "": {"$schema", "version", "runs"},
    "runs": {"tool", "results"},
    "driver": {"name", "rules"},
    "rules": {"id", "shortDescription", "fullDescription", "help"},
    "invocations": {"executionSuccessful"},
    "results": {"message", "locations", "partialFingerprints"},
    "locations": {"physicalLocation"},
    "physicalLocation": {"artifactLocation", "region"},
    "artifactLocation": {"uri"},
    "region": {"startLine", "startColumn", "endLine"},
}
"""By the schema, or by GitHub's documentation of SARIF support."""


def assert_allowed(value: Any, name: str = "") -> None:
    """Every object below `value` has what it must have, and nothing that the schema does not know."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            assert name not in ALLOWED or set(item) <= ALLOWED[name], (name, set(item) - ALLOWED[name])
            assert REQUIRED.get(name, set()) <= set(item), (name, set(item))
            for key, inner in item.items():
                if key not in {"properties", "originalUriBaseIds", "partialFingerprints"}:
                    assert_allowed(inner, key)


def sarif(result: GateResult, repository: RepositoryPaths = REPOSITORY) -> dict[str, Any]:
    return dict(json.loads(alerts.render_sarif(result, repository)))


def sarif_run(result: GateResult, repository: RepositoryPaths = REPOSITORY) -> dict[str, Any]:
    document = sarif(result, repository)
    # 3.13: version and runs are required; 2.1.0 is the only version
    assert document["version"] == "2.1.0"
    assert document["$schema"].startswith("https://")
    (run,) = document["runs"]
    return dict(run)


@pytest.mark.parametrize("name", results.everything())
def test_it_has_what_the_standard_requires(name: str) -> None:
    run = sarif_run(results.everything()[name])
    rules = run["tool"]["driver"]["rules"]
    ids = [rule["id"] for rule in rules]
    assert len(set(ids)) == len(ids)
    assert all(rule[key]["text"] for rule in rules for key in ("shortDescription", "fullDescription", "help"))
    for alert in run["results"]:
        assert alert["message"]["text"]
        assert "](" not in alert["message"]["text"], "3.11.6: it would be a link"
        assert alert["level"] in {"error", "warning", "note"}
        assert ids[alert["ruleIndex"]] == alert["ruleId"]
        (location,) = alert["locations"]
        physical = location["physicalLocation"]
        assert URI.match(physical["artifactLocation"]["uri"]), physical
        assert physical["region"]["startLine"] >= 1
        base = physical["artifactLocation"].get("uriBaseId")
        assert base is None or base in run["originalUriBaseIds"]
    assert_allowed(sarif(results.everything()[name]))
    assert len(run["results"]) == sum(len(line.changes) for line in results.everything()[name].counters)


def with_changes(*changes: Change, state: str = FAIL) -> GateResult:
    result = results.failed()
    return replace(result, counters=(replace(result.counters[0], state=state, changes=changes),))


def fingerprints(result: GateResult, repository: RepositoryPaths = REPOSITORY) -> list[str]:
    return [
        alert["partialFingerprints"]["primaryLocationLineHash"] for alert in sarif_run(result, repository)["results"]
    ]


def test_a_fingerprint_stays_when_the_line_moves_and_changes_with_what_is_there() -> None:
    (here,) = fingerprints(with_changes(results.SYNC))
    assert fingerprints(with_changes(replace(results.SYNC, line=999, after=3.0))) == [here]
    assert fingerprints(with_changes(replace(results.SYNC, file="/repo/examples/train.py"))) == [here], (
        "one file, one fingerprint"
    )
    for change in ({"file": "x.py"}, {"function": "other"}, {"operation": "to"}):
        assert fingerprints(with_changes(replace(results.SYNC, **change))) != [here], change
    twice = fingerprints(with_changes(results.SYNC, replace(results.SYNC, line=110)))
    assert twice[0] == here
    assert len(set(twice)) == 2


def test_levels_and_a_relative_path() -> None:
    (alert,) = sarif_run(results.failed())["results"]
    assert (alert["level"], alert["ruleId"]) == ("error", "counter/syncs")
    assert alert["message"]["text"] == "+1 sync per step (train_step, item). Syncs per step: base 12, candidate 13."
    assert alert["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "examples/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 104, "startColumn": 1, "endLine": 104},
    }
    fell = replace(results.SYNC, before=2.0, after=1.0, line=50, function="g")
    for changes, state, levels in (
        ((results.SYNC, fell), FAIL, ["error", "note"]),
        ((results.SYNC,), INCONCLUSIVE, ["warning"]),
        ((results.SYNC,), "PASS", ["note"]),
    ):
        assert [one["level"] for one in sarif_run(with_changes(*changes, state=state))["results"]] == levels


def test_files_elsewhere_and_names_with_odd_letters() -> None:
    changes = (
        replace(results.SYNC, file="/usr/lib/a b#c.py", line=0),
        replace(results.SYNC, file="src/ä%20?.py"),
        replace(results.SYNC, file=""),
    )
    outside, odd, unknown = (
        alert["locations"][0]["physicalLocation"] for alert in sarif_run(with_changes(*changes))["results"]
    )
    assert outside["artifactLocation"] == {"uri": "file:///usr/lib/a%20b%23c.py"}
    assert outside["region"]["startLine"] == 1, "code scanning requires a line"
    assert unquote(odd["artifactLocation"]["uri"]) == "src/ä%20?.py"
    assert unknown["artifactLocation"]["uri"] == "unknown"


def test_rules_keep_the_limits_of_code_scanning_and_only_a_baseline_is_refreshed() -> None:
    long = replace(results.failed().counters[0], counter="n" * 5000)
    (rule,) = sarif_run(replace(results.failed(), counters=(long,)))["tool"]["driver"]["rules"]
    assert len(rule["name"]) == alerts.MAX_RULE_NAME
    assert len(rule["shortDescription"]["text"]) == len(rule["fullDescription"]["text"]) == alerts.MAX_RULE_TEXT
    for mode, shown in (("against", False), ("baseline", True)):
        rule = sarif_run(replace(results.failed(), mode=mode))["tool"]["driver"]["rules"][0]
        assert ("--update" in rule["help"]["text"]) == shown


def entries(result: GateResult) -> list[dict[str, Any]]:
    return list(json.loads(alerts.render_code_quality(result, RepositoryPaths("/repo", "/repo/examples"))))


@pytest.mark.parametrize("name", results.everything())
def test_every_entry_has_what_gitlab_requires(name: str) -> None:
    report = entries(results.everything()[name])
    for entry in report:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert entry["location"]["path"]
        assert entry["location"]["lines"]["begin"] >= 1
    assert len({entry["fingerprint"] for entry in report}) == len(report)


def test_entries_are_at_the_line_or_at_the_baseline() -> None:
    (entry,) = entries(results.failed())
    assert entry["location"] == {"path": "examples/examples/train.py", "lines": {"begin": 104}}
    assert (entry["severity"], entry["check_name"]) == ("major", "counter/syncs")
    report = entries(replace(results.failed(), mode="baseline", baseline_file="baseline.json"))
    assert [entry["location"]["path"] for entry in report] == ["examples/examples/train.py", "examples/baseline.json"]
    assert report[1]["check_name"] == "counter/would_sync"
    assert entries(results.passed()) == []
