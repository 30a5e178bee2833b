"""What a recording states of a program fits the types that readers rely on."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.core.files import fitting
from profiler.run.declared import Facts

_SEEN = {"batches": 4, "padded_batches": 4, "elements": 100, "padding": 60, "ids": [0]}
_LINE = {"file": "train.py", "line": 4, "function": "collate"}


@pytest.mark.parametrize(
    ("fact", "is_kept"),
    [
        ({"padding": {"texts": _SEEN}}, True),
        ({"padding": {"texts": {**_SEEN, "line": _LINE}}}, True),
        ({"padding": {"texts": {**_SEEN, "line": None}}}, True),
        ({"padding": {"texts": {**_SEEN, "line": "train.py:4"}}}, False),
        ({"padding": {"texts": {"batches": 4}}}, False),
        ({"denormal": 0.25}, True),
        ({"denormal": "many"}, False),
        ({"setting_lines": {"processes of an object": _LINE}}, True),
    ],
)
def test_a_fact_is_kept_if_it_has_the_declared_type(fact: dict[str, Any], is_kept: bool) -> None:
    kept, others = fitting(fact, Facts)
    assert (kept == fact, bool(others)) == (is_kept, not is_kept)
