"""check.sarif: what SARIF 2.1.0 requires, and fingerprints that stay when a line moves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from profiler.gate.model import FAIL, INCONCLUSIVE, Change, GateResult
from profiler.report.gate import sarif
from profiler.report.gate.places import Places
from tests.report.gate import results

WHERE = Places("/repo", "/repo")
URI = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z0-9\-._~/%@!$&'()*+,;=]*$")


def run_of(result: GateResult, where: Places = WHERE) -> dict[str, Any]:
    document = json.loads(sarif.render(result, where))
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
    assert len(run["results"]) == sum(len(line.changes) for line in results.everything()[name].counters)


def test_an_error_at_a_relative_path() -> None:
    (one,) = run_of(results.failed())["results"]
    assert one["level"] == "error"
    assert one["ruleId"] == "counter/syncs"
    assert one["message"]["text"] == ("+1 sync per step (train_step, item). Syncs per step: baseline 12, candidate 13.")
    physical = one["locations"][0]["physicalLocation"]
    assert physical == {
        "artifactLocation": {"uri": "examples/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 104},
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
    assert outside == {"artifactLocation": {"uri": "file:///usr/lib/a%20b%23c.py"}}
    assert unquote(odd["artifactLocation"]["uri"]) == "src/ä%20?.py"
    assert unknown["artifactLocation"]["uri"] == "unknown"
