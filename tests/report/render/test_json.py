"""The JSON report: strict, by the names of the fields, with a reason for what was not measured."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison
from profiler.analyse.model.device import HostState
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, NotJudged, RuleText
from profiler.analyse.model.ledger import Cell, Ledger, Owner, Period, Recurrence
from profiler.core.errors import Notice
from profiler.report.finding_text import FINDING_COLUMNS, finding_row
from profiler.report.render.json import (
    COMPARISON_SCHEMA,
    HISTORY,
    LEFT_OUT,
    RUN_SCHEMA,
    WORDS,
    analysis_json,
    clean,
    compare_json,
    render,
)
from profiler.run.model import RunInfo, Site
from tests.report import samples

COMPARISONS = (samples.comparison, samples.three_sides, samples.forced_comparison, samples.empty_comparison)
DOCS = Path(__file__).parents[3] / "docs" / "json.md"

RULE = RuleText("python-loop", "Python takes time", ("{share:share} of it.",), "Use operators.", code="x.sum()")
FINDING = Finding(
    RULE,
    *(0.04, 0.4, 0.35, 0.45),
    Confidence.HIGH,
    (Site("t.py", 7, "main", "for x in y:"),),
    {"share": 0.4},
    tuple(Gain(method, 1.6, 1.5, 1.7) for method in GainMethod),
    costs={"python": 0.04},
)
ANALYSIS = Analysis(
    RunInfo(2, "run", "", ("t.py",), cwd="/home/someone", project="/home/someone"),
    *({}, {}, {}),
    findings=(FINDING, dataclasses.replace(FINDING, sites=(), gains=(), overlaps="python-loop")),
    not_judged=(NotJudged(RULE, Notice("python-or-device-wait")),),
)


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


def check_reasons(document: dict[str, Any]) -> None:
    """Each reason is of a null, and each value of a measure or a ratio that is null has one."""
    reasons, missing = document["not_measured"], set(nulls(document))
    assert reasons.keys() <= missing
    assert all(reasons.values())
    assert {path for path in missing if path.endswith(".value")} <= reasons.keys()


@pytest.mark.parametrize("make", COMPARISONS, ids=lambda make: make.__name__)
def test_comparison_is_strict_and_what_was_not_measured_has_its_reason(make: Callable[[], Comparison]) -> None:
    document = compare_json(make())
    assert strict(render(document)) == document
    assert document["schema"] == "comparison/2"
    check_reasons(document)


@pytest.mark.parametrize("make", [samples.analysis, samples.empty_analysis], ids=lambda make: make.__name__)
def test_run_is_strict_and_what_was_not_measured_has_its_reason(make: Callable[[], Any]) -> None:
    document = analysis_json(make())
    assert strict(render(document)) == document
    assert document["schema"] == "run/2"
    check_reasons(document)


def test_the_history_ends_with_the_schemas_of_today() -> None:
    assert {f"run/{max(HISTORY)}", f"comparison/{max(HISTORY)}"} == {RUN_SCHEMA, COMPARISON_SCHEMA}


@pytest.mark.parametrize("results", [samples.analysis(), samples.comparison()], ids=["run", "comparison"])
def test_keys_are_the_fields_and_those_that_the_page_explains(results: Analysis | Comparison) -> None:
    document = analysis_json(results) if isinstance(results, Analysis) else compare_json(results)
    kind = type(results).__name__
    names = {each.name for each in dataclasses.fields(results) if f"{kind}.{each.name}" not in LEFT_OUT}
    assert names <= document.keys()
    page = DOCS.read_text(encoding="utf-8")
    for key in document.keys() - names:
        assert f"`{key}`" in page, f"docs/json.md does not explain {key}"


def test_fields_that_are_left_out_exist() -> None:
    from profiler.analyse.model import analysis, comparison, device, finding, host, ledger, ranks
    from profiler.run import model as run

    modules = (analysis, comparison, device, finding, host, ledger, ranks, run)

    for name in LEFT_OUT:
        kind, _, field = name.partition(".")
        classes = [getattr(module, kind) for module in modules if hasattr(module, kind)]
        assert any(field == each.name for each in dataclasses.fields(classes[0])), name


def test_the_page_explains_the_measures() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for name in samples.AS_FOUND:
        assert f"`{name}`" in page, f"docs/json.md does not explain {name}"


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_was_not_measured(broken: float) -> None:
    side = samples.side("as-found", samples.AS_FOUND)
    loss = dataclasses.replace(side.measures["loss"], value=broken, low=broken, high=broken)
    side = dataclasses.replace(side, measures={**side.measures, "loss": loss})
    subject = dataclasses.replace(samples.comparison(), sides=(side, samples.comparison().sides[1]))
    document = compare_json(subject)
    assert document["sides"][0]["measures"]["loss"]["value"] is None
    assert "not a finite number" in document["not_measured"]["sides.0.measures.loss.value"]
    strict(render(document))


def test_facts_of_any_kind_become_json() -> None:
    info = samples.info("x", weird=math.nan, path=Path("/a"), nested={"a": (1, None)}, surrogate="\udc80")
    document = analysis_json(dataclasses.replace(samples.analysis(), info=info))
    render(document).encode("utf-8")
    facts = document["info"]["facts"]
    assert (facts["weird"], facts["path"], facts["nested"]) == (None, "/a", {"a": [1, None]})
    check_reasons(document)


def test_values_are_plain() -> None:
    assert clean({(0, Period.STEPS): HostState.AFTER_SYNC}) == {"0/steps": "after-sync"}
    assert clean([Owner.TORCH, Path("a/b"), True, "a\x1bb"]) == ["torch", "a/b", True, "a\ufffdb"]
    assert clean(Site("t.py", 7, "main")) == {"file": "t.py", "line": 7, "function": "main", "source": ""}


def test_no_folder_of_the_machine_is_told() -> None:
    assert "/home/someone" not in render(analysis_json(ANALYSIS))


def test_a_finding_has_its_words() -> None:
    document = analysis_json(ANALYSIS)
    first, second = document["findings"]
    assert {name: first[name] for name in ("rule", *WORDS)} == {
        "rule": "python-loop", "title": "Python takes time", "evidence": ["40% of it."], "fix": "Use operators.",
        "code": "x.sum()",
    }  # fmt: skip
    assert first["sites"] == [{"file": "t.py", "line": 7, "function": "main", "source": "for x in y:"}]
    assert [gain["method"] for gain in first["gains"]] == [method.value for method in GainMethod]
    assert (second["sites"], second["gains"], second["overlaps"]) == ([], [], "python-loop")
    assert document["not_judged"][0]["reason"]


def test_cells_that_are_too_small_are_left_out() -> None:
    def cell(seconds: float) -> Cell:
        place = Site("t.py", 7, "main")
        return Cell(
            *(0, "main", Period.STEPS, "forward", "compute", Owner.TORCH, "", place, "torch.mm"),
            *(Recurrence.EACH, 0.0, seconds, seconds, seconds, 0.0),
        )

    ledger = Ledger((cell(9.0), cell(0.01), cell(0.0099)), {(0, "main", Period.STEPS): 10.0})
    found = analysis_json(dataclasses.replace(ANALYSIS, ledger=ledger))["ledger"]
    assert [each["seconds"] for each in found["cells"]] == [9.0, 0.01]
    assert found["cells"][0]["place"]["line"] == 7
    assert found["wall"] == {"0/main/steps": 10.0}


def test_a_table_has_the_same_columns_with_and_without_findings() -> None:
    import profiler

    table = profiler.findings(ANALYSIS)
    assert (
        [*table.columns]
        == [*FINDING_COLUMNS]
        == [*profiler.findings(dataclasses.replace(ANALYSIS, findings=())).columns]
    )
    assert table["gain"].isna().tolist() == [False, True]
    assert finding_row(FINDING)["lines"] == "t.py:7"
