"""The ladder in the JSON report: every null has a reason, each key is documented. tests/approval holds the values."""

from __future__ import annotations

from dataclasses import replace

from profiler.report.render.json import compare_json, render
from reference_trainer.report.ladder_json import ROW_KEYS
from tests.fakes.ladders import made_up
from tests.report import samples
from tests.report.render.test_json import DOCS, nulls, strict

COMPARISON = replace(samples.comparison(), extensions={"ladder": made_up({"async": 4.0, "learn": 0.5})})


def test_it_is_strict_and_every_null_has_its_reason() -> None:
    document = compare_json(COMPARISON)
    assert strict(render(document)) == document
    assert set(nulls(document)) == set(document["not_measured"])
    without = compare_json(samples.comparison())
    assert without["ladder"] is None
    assert "--ladder" in without["not_measured"]["ladder"]


def test_keys_are_documented() -> None:
    text, document = DOCS.read_text(encoding="utf-8"), compare_json(COMPARISON)["ladder"]
    for key in (*document, *document["rows"][0], *ROW_KEYS):
        assert f"`{key}`" in text, f"docs/json.md does not explain {key}"
    for kind in {row["kind"] for row in document["rows"]}:
        assert f"`{kind}`" in text, f"docs/json.md does not explain {kind}"
