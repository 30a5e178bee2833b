"""The ladder in the JSON report: its keys are documented, and what was not measured has a reason."""

from __future__ import annotations

from dataclasses import replace

from profiler.report.render.json import compare_json, render
from tests.fakes.ladders import made_up
from tests.report import samples
from tests.report.render.test_json import DOCS, check_reasons, strict

COMPARISON = replace(samples.comparison(), extensions={"ladder": made_up({"async": 4.0, "learn": 0.5})})


def test_it_is_strict_and_what_was_not_measured_has_its_reason() -> None:
    document = compare_json(COMPARISON)
    assert strict(render(document)) == document
    check_reasons(document)
    assert "ladder" not in compare_json(samples.comparison())


def test_keys_are_documented() -> None:
    text, document = DOCS.read_text(encoding="utf-8"), compare_json(COMPARISON)["ladder"]
    for key in (*document, *document["rows"][0]):
        assert f"`{key}`" in text, f"docs/json.md does not explain {key}"
    for kind in {row["kind"] for row in document["rows"]}:
        assert f"`{kind}`" in text, f"docs/json.md does not explain {kind}"
