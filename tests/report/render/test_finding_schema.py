"""Findings in JSON reports are as their schema says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from profiler.analyse.finding import Confidence, Finding, Gain, GainMethod, NotJudged, RuleText
from profiler.analyse.model import Analysis
from profiler.core.notice import Notice
from profiler.report.finding_text import FINDING_COLUMNS, finding_row
from profiler.report.render.finding_schema import FindingsDocument
from profiler.report.render.json import finding_keys
from profiler.run.model import RunInfo, Site

RULE = RuleText("python-loop", "Python takes time", ("{share:share} of it.",), "Use operators.", code="x.sum()")
FINDING = Finding(
    RULE,
    *(0.04, 0.4, 0.35, 0.45),
    Confidence.HIGH,
    (Site("t.py", 7, "main"),),
    {"share": 0.4},
    tuple(Gain(method, 1.6, 1.5, 1.7) for method in GainMethod),
    costs={"python": 0.04},
)
ANALYSIS = Analysis(
    RunInfo(2, "run", "", ("t.py",)),
    *({}, {}, {}),
    findings=(FINDING, replace(FINDING, sites=(), gains=(), overlaps="python-loop")),
    not_judged=(NotJudged(RULE, Notice("python-or-device-wait")),),
)


def test_findings_of_every_kind_fit_the_schema() -> None:
    document = FindingsDocument.model_validate(finding_keys(ANALYSIS))
    assert [gain.method for gain in document.findings[0].gains] == [method.value for method in GainMethod]
    assert document.not_judged[0].reason


@pytest.mark.parametrize("change", [{"rule": None}, {"seconds": "1"}, {"more": 1}, {"confidence": "certain"}])
def test_what_is_no_finding_does_not_fit(change: dict[str, Any]) -> None:
    keys = finding_keys(ANALYSIS)
    keys["findings"][0] |= change
    with pytest.raises(ValidationError):
        FindingsDocument.model_validate(keys)


def test_a_table_has_the_same_columns_with_and_without_findings() -> None:
    import profiler

    table = profiler.findings(ANALYSIS)
    assert [*table.columns] == [*FINDING_COLUMNS] == [*profiler.findings(replace(ANALYSIS, findings=())).columns]
    assert table["gain"].isna().tolist() == [False, True]
    assert finding_row(FINDING)["lines"] == "t.py:7"
