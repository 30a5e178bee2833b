"""The checker of traces finds what it is there for: each rule is broken once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.report.export.trace_rules import complaints

A = {"pid": 1, "tid": 2}
NAMES: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "p"}},
    {"ph": "M", "name": "thread_name", **A, "args": {"name": "t"}},
]
BEGIN, END = {"ph": "B", **A, "ts": 1.5, "name": "a"}, {"ph": "E", **A, "ts": 2.5}
START = {"ph": "s", **A, "ts": 1.5, "name": "x", "cat": "c", "id": 0}
FINISH = {**START, "ph": "f", "ts": 2.0, "bp": "e"}


def found(*events: dict[str, Any]) -> list[str]:
    return complaints(json.dumps({"traceEvents": [*events, *NAMES]}))


def test_a_good_trace() -> None:
    counter = {"ph": "C", "pid": 1, "ts": 2, "name": "n", "args": {"value": 1.0}}
    whole = {"ph": "X", **A, "ts": 3, "dur": 0, "name": "x"}
    assert found(BEGIN, START, FINISH, END, counter, whole) == []


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([BEGIN], "never ends"),
        ([END], "an end without a begin"),
        ([BEGIN, {**END, "ts": 1.0}], "ends before its begin"),
        ([BEGIN, {**END, "name": "b"}], "the end of another slice"),
        ([{**BEGIN, "ts": -1}, END], "ts is -1"),
        ([{**BEGIN, "ts": "1"}, END], "ts is '1'"),
        ([{**BEGIN, "pid": "main"}], "pid is 'main'"),
        ([{**BEGIN, "tid": True}], "tid is True"),
        ([{**BEGIN, "tid": 1 << 32}], "tid is 4294967296"),
        ([{**BEGIN, "name": ""}], "name is ''"),
        ([{"ph": "X", **A, "ts": 1, "dur": -2, "name": "x"}], "dur is -2"),
        ([{"ph": "Q", **A}], "phase 'Q'"),
        ([{"ph": "C", "pid": 1, "ts": 1, "name": "n", "args": {"value": "1"}}], "no finite number"),
        ([{"ph": "M", "name": "thread", **A, "args": {"name": "t"}}], "metadata 'thread'"),
        ([{"ph": "M", "name": "process_labels", **A, "args": {}}], "labels is None"),
        ([NAMES[0]], "is said 2 times"),
        ([BEGIN, START, END], "flow ('c', 'x', 0) is ['s']"),
        ([BEGIN, START, {**FINISH, "id": 1}, END], "flow ('c', 'x', 1) is ['f']"),
        ([START, BEGIN, FINISH, END], "an arrow's end in no slice"),
        ([BEGIN, {**START, "ts": 2.2}, FINISH, END], "leads back in time"),
        ([BEGIN, START, {**FINISH, "bp": ""}, END], "without bp"),
        ([{**BEGIN, "tid": 3}, {**END, "tid": 3}], "track 3 of 1 has no name"),
        ([{**BEGIN, "pid": 9}, {**END, "pid": 9}], "process 9 has no name"),
    ],
)
def test_a_broken_rule_is_named(events: list[dict[str, Any]], said: str) -> None:
    assert any(said in one for one in found(*events)), found(*events)


def test_no_number_is_no_json() -> None:
    with pytest.raises(ValueError, match="NaN"):
        complaints('{"traceEvents": [{"ph": "C", "args": {"value": NaN}}]}')
