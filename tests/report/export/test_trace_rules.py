"""The checker of traces finds what it is there for: each rule is broken once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.report.export.trace_rules import complaints

A = {"pid": 1, "tid": 2}
NAMES = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
    {"ph": "M", "name": "thread_name", **A, "args": {"name": "t"}},
]
BEGIN, END = {"ph": "B", **A, "ts": 1.5, "name": "a"}, {"ph": "E", **A, "ts": 2}
START = {"ph": "s", **A, "ts": 1.5, "name": "x", "cat": "c", "id": 0}
FINISH = {**START, "ph": "f", "ts": 1.75, "bp": "e"}
COUNTER = {"ph": "C", "pid": 1, "ts": 2, "name": "n", "args": {"value": 1.0}}


def found(*events: dict[str, Any]) -> list[str]:
    return complaints(json.dumps({"traceEvents": [*NAMES, *events]}))


def test_a_good_trace_has_none() -> None:
    assert found(BEGIN, START, FINISH, END, COUNTER) == []


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([BEGIN], "never ends"),
        ([END], "an end without a begin"),
        ([BEGIN, {**END, "ts": 1.0}], "not the end of"),
        ([BEGIN, {**END, "name": "b"}], "not the end of"),
        ([{**BEGIN, "ts": -1}, END], "ts is no time"),
        ([{**BEGIN, "ts": "1"}, END], "ts is no time"),
        ([{**BEGIN, "pid": "main"}], "pid is no number"),
        ([{**BEGIN, "tid": True}], "tid is no number"),
        ([{**BEGIN, "tid": 1 << 32}], "tid is no number"),
        ([{**BEGIN, "name": ""}], "no name"),
        ([{"ph": "Q", **A}], "phase 'Q'"),
        ([{**COUNTER, "args": {"value": "1"}}], "no finite number"),
        ([{"ph": "M", "name": "thread", **A, "args": {"name": "t"}}], "no metadata"),
        ([{"ph": "M", "name": "process_labels", **A, "args": {}}], "no metadata"),
        ([NAMES[0]], "is there 2 times"),
        ([BEGIN, START, END], "no arrow"),
        ([BEGIN, START, {**FINISH, "id": 1}, END], "no arrow"),
        ([START, BEGIN, FINISH, END], "an arrow's end in no slice"),
        ([BEGIN, {**START, "ts": 2.2}, FINISH, END], "no arrow"),
        ([BEGIN, START, {**FINISH, "bp": ""}, END], "without bp"),
        ([{**BEGIN, "tid": 3}, {**END, "tid": 3}], "track 3 of 1 has no name"),
        ([{**BEGIN, "pid": 9}, {**END, "pid": 9}], "track 2 of 9 has no name"),
    ],
)
def test_a_broken_rule_is_named(events: list[dict[str, Any]], wrong: str) -> None:
    assert any(wrong in complaint for complaint in found(*events)), found(*events)


def test_no_number_is_no_json() -> None:
    with pytest.raises(ValueError, match="NaN"):
        complaints('{"traceEvents": [{"ph": "C", "args": {"value": NaN}}]}')
