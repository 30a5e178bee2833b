"""The ladder in the JSON report: every row complete, every null with its reason, every key documented."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.report import blocks
from profiler.report.render.json import compare_json, render
from reference_trainer.report.ladder_json import ROW_KEYS
from tests.fakes.ladders import made_up
from tests.report import ladders, samples
from tests.report.render.test_json import DOCS, nulls, strict
from tests.report.test_build import of_kind

LADDER = made_up({"async": 4.0, "learn": 0.5})
SUBJECT = replace(samples.comparison(), extensions={"ladder": LADDER})


def test_it_is_strict_and_every_null_has_its_reason() -> None:
    document = compare_json(SUBJECT)
    assert strict(render(document)) == document
    assert set(nulls(document)) == set(document["not_measured"])


def test_rows_are_those_of_the_ladder() -> None:
    document = compare_json(SUBJECT)["ladder"]
    assert [row["label"] for row in document["rows"]] == [row.label for row in LADDER.rows]
    [item] = [row for row in document["rows"] if (row["kind"], row["fix"]) == ("without", "async")]
    [same] = [row for row in LADDER.rows if (row.kind, row.fix) == ("without", "async")]
    assert item["also"] == ["embed", "prefetch"]
    assert item["against"] == "fixed"
    assert item["gain"] == {
        "value": same.gain.value, "low": same.gain.low, "high": same.gain.high, "n": 3, "different": True, "reason": "",
    }  # fmt: skip
    assert item["tokens_per_s"] == same.measures["tokens_per_s"].value
    assert item["ranges"]["tokens_per_s"]["n"] == 3
    assert document["unavailable"] == [{"fix": "graph", "reason": "no CUDA here"}]
    assert (document["rounds"], document["interrupted"]) == (3, False)


def test_claims_are_those_of_the_page() -> None:
    """Row for row; numbers in base units, and reasons where there is none."""
    document = compare_json(ladders.with_ladder())
    claims = document["ladder"]["claims"]
    [table] = of_kind(ladders.with_ladder(), "claims", blocks.Table)
    assert [(c["what"], c["claimed"]) for c in claims] == [(row[0].text, row[1].text) for row in table.rows]
    assert len(claims) == 13
    by_name = {(c["what"], c["side"]): c for c in claims}
    busy = by_name[("Device busy", "fixed")]
    assert busy["measured"].startswith("88")
    assert busy["value"] == pytest.approx(0.88, abs=0.006)
    batch = by_name[("Tokenization of 8 samples in one batch", "")]
    assert (batch["value"], batch["measured"][:17]) == (None, "one call a sample")
    assert document["not_measured"][f"ladder.claims.{claims.index(batch)}.value"] == "in words only, see measured"
    for key in busy:
        assert key in DOCS.read_text(encoding="utf-8").partition("| `claims`")[2].partition("\n")[0]


def test_what_was_not_measured_has_its_reason() -> None:
    document = compare_json(SUBJECT)
    number = next(n for n, row in enumerate(document["ladder"]["rows"]) if row["kind"] == "work")
    path = f"ladder.rows.{number}"
    assert document["ladder"]["rows"][number]["total"]["value"] is None
    for key in ("gain.value", "total.value"):
        assert document["not_measured"][f"{path}.{key}"] == "does other work: no like-for-like ratio"
    assert document["not_measured"][f"{path}.loss"] == "not recorded in these runs"
    assert compare_json(samples.comparison())["ladder"] is None
    assert "--ladder" in compare_json(samples.comparison())["not_measured"]["ladder"]


def test_keys_are_documented() -> None:
    text, document = DOCS.read_text(encoding="utf-8"), compare_json(SUBJECT)["ladder"]
    for key in (*document, *document["rows"][0], *ROW_KEYS):
        assert f"`{key}`" in text, f"docs/json.md does not explain {key}"
    for kind in {row["kind"] for row in document["rows"]}:
        assert f"`{kind}`" in text, f"docs/json.md does not explain {kind}"
