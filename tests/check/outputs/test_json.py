"""check.json: strict, every null with its reason, and rounds from which the verdict can be computed again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from profiler.check.model import Round
from profiler.check.outputs import json as gate_json
from tests.check.outputs import results

DOCS = Path(__file__).parents[3] / "docs" / "check-json.md"


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")


def document(name: str) -> dict[str, Any]:
    text = gate_json.render(gate_json.result_json(results.everything()[name]))
    loaded: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return loaded


def nulls(value: Any, path: str = "") -> set[str]:
    if value is None:
        return {path}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {null for key, item in pairs for null in nulls(item, f"{path}.{key}".lstrip("."))}


@pytest.mark.parametrize("name", results.everything())
def test_it_is_strict_and_every_null_has_its_reason(name: str) -> None:
    check = document(name)
    assert check["schema"] == "check/2"
    assert nulls(check) == set(check["not_measured"])
    assert all(check["not_measured"].values())


@pytest.mark.parametrize("name", ["passed", "failed", "inconclusive"])
def test_rounds_come_back_as_they_were(name: str) -> None:
    gate = results.speed(results.everything()[name])
    adapter = TypeAdapter(Round)
    rounds = document(name)["throughput"]["rounds"]
    back = tuple(adapter.validate_python({**item, "blocks": item["turns"]}) for item in rounds)
    assert back == gate.rounds


def test_the_steps_of_a_block_are_on_one_line() -> None:
    text = gate_json.render(gate_json.result_json(results.passed()))
    steps = re.findall(r'"steps": (\[.*)', text)
    assert len(steps) == 5 * 8
    assert all(line.endswith("],") and line.count(",") == 8 for line in steps), steps[0]


def test_every_key_is_documented() -> None:
    marked = re.findall(r"`[^`\n]+`", DOCS.read_text(encoding="utf-8"))
    documented = set(re.findall(r"\w+", " ".join(marked)))

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(key for item in value.values() for key in keys(item))}
        return {key for item in value for key in keys(item)} if isinstance(value, list) else set()

    check = document("failed")
    free = {*check["not_measured"], *check["machine"], *check["base"]["facts"]}
    assert keys(check) - free - documented == set()
