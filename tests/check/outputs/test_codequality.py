"""codequality.json: the keys that GitLab requires, and a fingerprint of its own for every entry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from profiler.check.model import GateResult
from profiler.check.outputs import codequality
from profiler.check.outputs.places import Places
from tests.check.outputs import results

WHERE = Places("/repo", "/repo/examples")


def entries(result: GateResult) -> list[dict[str, Any]]:
    return list(json.loads(codequality.render(result, WHERE)))


@pytest.mark.parametrize("name", results.everything())
def test_every_entry_has_what_gitlab_requires(name: str) -> None:
    found = entries(results.everything()[name])
    for entry in found:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert entry["location"]["path"]
        assert entry["location"]["lines"]["begin"] >= 1
    assert len({entry["fingerprint"] for entry in found}) == len(found)


def test_a_site_is_a_path_from_the_root_on() -> None:
    (entry,) = entries(results.failed())
    assert entry["location"] == {"path": "examples/examples/train.py", "lines": {"begin": 104}}
    assert entry["severity"] == "major"
    assert entry["check_name"] == "counter/syncs"


def test_a_failure_without_a_line_stands_at_the_baseline() -> None:
    found = entries(replace(results.failed(), mode="baseline", baseline_file="baseline.json"))
    assert [entry["location"]["path"] for entry in found] == ["examples/examples/train.py", "examples/baseline.json"]
    assert found[1]["description"].startswith("Calls that would sync on a GPU per step: 2, baseline none")


def test_nothing_to_say_is_an_empty_list() -> None:
    assert entries(results.passed()) == []
