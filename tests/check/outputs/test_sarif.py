"""check.sarif: what SARIF 2.1.0 requires, and fingerprints that stay when a line moves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, Change, GateResult
from profiler.check.outputs import sarif
from profiler.check.outputs.places import Places
from tests.check.outputs import results

WHERE = Places("/repo", "/repo")
URI = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z0-9\-._~/%@!$&'()*+,;=]*$")


KNOWN = {
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
    "results": {
        *("ruleId", "ruleIndex", "level", "kind", "message", "locations", "partialFingerprints", "properties"),
    },
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


def assert_known(value: Any, name: str = "") -> None:
    """Every object below `value` has what it must have, and nothing that the schema does not know."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            assert name not in KNOWN or set(one) <= KNOWN[name], (name, set(one) - KNOWN[name])
            assert REQUIRED.get(name, set()) <= set(one), (name, set(one))
            for key, inner in one.items():
                if key not in {"properties", "originalUriBaseIds", "partialFingerprints"}:
                    assert_known(inner, key)


def document_of(result: GateResult, where: Places = WHERE) -> dict[str, Any]:
    return dict(json.loads(sarif.render(result, where)))


def run_of(result: GateResult, where: Places = WHERE) -> dict[str, Any]:
    document = document_of(result, where)
    # 3.13: version and runs are required; 2.1.0 is the only version
    assert document["version"] == "2.1.0"
    assert document["$schema"].startswith("https://")
    (run,) = document["runs"]
    return dict(run)


@pytest.mark.parametrize("name", results.everything())
def test_it_has_what_the_standard_requires(name: str) -> None:
    run = run_of(results.everything()[name])
    driver = run["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert rule["help"]["text"]
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)
    for one in run["results"]:
        assert one["message"]["text"]
        assert "](" not in one["message"]["text"], "3.11.6: it would be a link"
        assert one["level"] in {"error", "warning", "note"}
        assert ids[one["ruleIndex"]] == one["ruleId"]
        assert all(isinstance(print_, str) for print_ in one["partialFingerprints"].values())
        (location,) = one["locations"]
        physical = location["physicalLocation"]
        assert URI.match(physical["artifactLocation"]["uri"]), physical
        assert physical.get("region", {"startLine": 1})["startLine"] >= 1
        base = physical["artifactLocation"].get("uriBaseId")
        assert base is None or base in run["originalUriBaseIds"]
    assert_known(document_of(results.everything()[name]))
    assert len(run["results"]) == sum(len(line.changes) for line in results.everything()[name].counters)


def test_an_error_at_a_relative_path() -> None:
    (one,) = run_of(results.failed())["results"]
    assert one["level"] == "error"
    assert one["ruleId"] == "counter/syncs"
    assert one["message"]["text"] == ("+1 sync per step (train_step, item). Syncs per step: base 12, candidate 13.")
    physical = one["locations"][0]["physicalLocation"]
    assert physical == {
        "artifactLocation": {"uri": "examples/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 104, "startColumn": 1, "endLine": 104},
    }


def with_changes(*changes: Change, state: str = FAIL) -> GateResult:
    result = results.failed()
    return replace(result, counters=(replace(result.counters[0], state=state, changes=changes),))


def prints(result: GateResult, where: Places = WHERE) -> list[str]:
    return [one["partialFingerprints"]["primaryLocationLineHash"] for one in run_of(result, where)["results"]]


def test_a_fingerprint_stays_when_the_line_moves_and_changes_with_what_is_there() -> None:
    (here,) = prints(with_changes(results.SYNC))
    assert prints(with_changes(replace(results.SYNC, line=999, after=3.0))) == [here]
    assert prints(with_changes(replace(results.SYNC, file="/repo/examples/train.py"))) == [here], "one file, one print"
    for other in ({"file": "x.py"}, {"function": "other"}, {"operation": "to"}):
        assert prints(with_changes(replace(results.SYNC, **other))) != [here], other
    twice = prints(with_changes(results.SYNC, replace(results.SYNC, line=110)))
    assert twice[0] == here
    assert len(set(twice)) == 2


def test_levels() -> None:
    fell = replace(results.SYNC, before=2.0, after=1.0, line=50, function="g")
    levels = [one["level"] for one in run_of(with_changes(results.SYNC, fell))["results"]]
    assert levels == ["error", "note"]
    assert run_of(with_changes(results.SYNC, state=INCONCLUSIVE))["results"][0]["level"] == "warning"
    assert run_of(with_changes(results.SYNC, state="PASS"))["results"][0]["level"] == "note"


def test_files_elsewhere_and_names_with_odd_letters() -> None:
    changes = (
        replace(results.SYNC, file="/usr/lib/a b#c.py", line=0),
        replace(results.SYNC, file="src/ä%20?.py"),
        replace(results.SYNC, file=""),
    )
    outside, odd, unknown = (
        one["locations"][0]["physicalLocation"] for one in run_of(with_changes(*changes))["results"]
    )
    assert outside["artifactLocation"] == {"uri": "file:///usr/lib/a%20b%23c.py"}
    assert outside["region"]["startLine"] == 1, "code scanning requires a line"
    assert unquote(odd["artifactLocation"]["uri"]) == "src/ä%20?.py"
    assert unknown["artifactLocation"]["uri"] == "unknown"


def test_limits_of_code_scanning_hold_for_any_counter() -> None:
    long = replace(results.failed().counters[0], counter="n" * 5000)
    (rule,) = run_of(replace(results.failed(), counters=(long,)))["tool"]["driver"]["rules"]
    assert len(rule["name"]) == sarif.MOST_NAME
    assert len(rule["shortDescription"]["text"]) == len(rule["fullDescription"]["text"]) == sarif.MOST_TEXT


def test_only_a_baseline_is_refreshed() -> None:
    against, file = (
        run_of(replace(results.failed(), mode=mode))["tool"]["driver"]["rules"][0]["help"]["text"]
        for mode in ("against", "baseline")
    )
    assert "--update" not in against
    assert "--update" in file
