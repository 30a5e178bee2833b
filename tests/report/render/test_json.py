"""The JSON report: strict, complete, every null with its reason, and the keys that docs/json.md promises."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.analyse.model import Comparison
from profiler.report.render.json import SIDE_KEYS, analysis_json, compare_json, render
from tests.report import samples

COMPARISONS = (samples.comparison, samples.three_sides, samples.forced_comparison, samples.empty_comparison)
DOCS = Path(__file__).parents[3] / "docs" / "json.md"


def nulls(value: Any, path: str = "") -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from nulls(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from nulls(one, f"{path}.{index}")


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("make", COMPARISONS, ids=lambda make: make.__name__)
def test_comparison_is_strict_and_every_null_has_its_reason(make: Callable[[], Comparison]) -> None:
    document = compare_json(make())
    assert strict(render(document)) == document
    assert set(nulls(document)) == set(document["not_measured"])
    assert all(document["not_measured"].values())


@pytest.mark.parametrize("make", [samples.analysis, samples.empty_analysis], ids=lambda make: make.__name__)
def test_run_is_strict_and_every_null_has_its_reason(make: Callable[[], Any]) -> None:
    document = analysis_json(make())
    assert strict(render(document)) == document
    assert set(nulls(document)) == set(document["not_measured"])
    assert document["schema"] == "run/1"


def test_documented_keys_and_given_keys_are_the_same() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for key in (*compare_json(samples.comparison()), *SIDE_KEYS, *analysis_json(samples.analysis())):
        assert f"`{key}`" in text, f"docs/json.md does not explain {key}"


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_was_not_measured(broken: float) -> None:
    side = samples.side("as-found", samples.AS_FOUND)
    loss = dataclasses.replace(side.measures["loss"], value=broken, low=broken, high=broken)
    side = dataclasses.replace(side, measures={**side.measures, "loss": loss})
    subject = dataclasses.replace(samples.comparison(), sides=(side, samples.comparison().sides[1]))
    document = compare_json(subject)
    assert document["before"]["loss"] is None
    assert "not a finite number" in document["not_measured"]["before.loss"]
    assert "loss" not in document["before"]["ranges"]
    strict(render(document))


def test_facts_of_any_kind_become_json() -> None:
    info = samples.info("x", weird=math.nan, path=Path("/a"), nested={"a": (1, None)}, surrogate="\udc80")
    document = analysis_json(dataclasses.replace(samples.analysis(), info=info))
    render(document).encode("utf-8")
    assert set(nulls(document)) == set(document["not_measured"])
