"""Counters that changed as alerts of code hosts: SARIF 2.1.0 for GitHub, Code Quality for GitLab.

Sources: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020 (the section
numbers below); GitHub's documentation of SARIF support for code scanning; GitLab's documentation of Code Quality.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from profiler import __version__
from profiler.check.model import FAIL, PASS, Change, CounterLine, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.findings import (
    ERROR,
    NOTE,
    WARNING,
    Finding,
    RepositoryPaths,
    findings,
    fingerprint,
    rule_name,
)
from profiler.report.render.json import clean

SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_RULE_NAME: Final = 255
MAX_RULE_TEXT: Final = 1024
"""Characters that GitHub's code scanning allows."""
ROOT: Final = "%SRCROOT%"
"""What code scanning takes for the repository's root (3.14.14)."""
_SEVERITIES: Final = {ERROR: "major", WARNING: "minor", NOTE: "info"}
"""Of Code Quality's info, minor, major, critical, blocker."""


def render_sarif(result: GateResult, repository: RepositoryPaths) -> str:
    """The complete SARIF file."""
    return _render(sarif_document(result, repository))


def render_code_quality(result: GateResult, repository: RepositoryPaths) -> str:
    """The complete Code Quality report."""
    entries = [
        _quality_entry(
            finding.message,
            finding.rule,
            finding.fingerprint,
            _SEVERITIES[finding.level],
            (repository.label(finding.change.file) or "unknown", finding.change.line),
        )
        for finding in findings(result, repository)
    ]
    for line in result.counters:
        if line.state != PASS and not line.changes and result.baseline_file:  # shown at the baseline
            sentence = fmt.counter_sentence(line, fmt.base_noun(result), text.reasons(line.reasons))
            digest = fingerprint(rule_name(line), result.baseline_file)
            severity = _SEVERITIES[ERROR if line.state == FAIL else WARNING]
            location = (repository.label(result.baseline_file), 1)
            entries.append(_quality_entry(sentence, rule_name(line), digest, severity, location))
    return _render(entries)


def _render(document: Any) -> str:
    return json.dumps(clean(document), indent=2, allow_nan=False) + "\n"


def _quality_entry(
    description: str, rule: str, digest: str, severity: str, location: tuple[str, int]
) -> dict[str, Any]:
    return {
        "description": description,
        "check_name": rule,
        "fingerprint": digest,
        "severity": severity,
        "location": {"path": location[0], "lines": {"begin": max(1, location[1])}},
    }


# ---------------------------------------------------------------- SARIF


def sarif_document(result: GateResult, repository: RepositoryPaths) -> dict[str, Any]:
    """One run of one tool."""
    changed = findings(result, repository)
    rules = {finding.rule: finding.line for finding in changed}
    indices = {rule: index for index, rule in enumerate(rules)}
    driver = {
        "name": "training-profiler check",
        "semanticVersion": __version__,
        "version": __version__,
        "rules": [_rule(name, line, fmt.base_noun(result)) for name, line in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [_sarif_result(finding, indices[finding.rule], repository) for finding in changed],
        "properties": {"state": result.state, "sentence": result.sentence},
    }
    return {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}


def _rule(name: str, line: CounterLine, base: str) -> dict[str, Any]:
    title = fmt.counter_title(line)
    hint = " Write an intended rise to the baseline: check --update." if base == "baseline" else ""
    full = f"{title} in a training step: the candidate's count compared to the {base}'s."
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.replace("/", "_").split("_"))[:MAX_RULE_NAME],
        "shortDescription": {"text": f"{title} per step changed"[:MAX_RULE_TEXT]},
        "fullDescription": {"text": full[:MAX_RULE_TEXT]},
        "help": {"text": f"Counts are exact.{hint}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["performance"], "precision": "very-high", "problem.severity": "error"},
    }


def _sarif_result(finding: Finding, rule_index: int, repository: RepositoryPaths) -> dict[str, Any]:
    change = finding.change
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.level,
        "kind": "fail",
        # a plain text message may contain links too (3.11.6): the space keeps brackets from being one
        "message": {"text": finding.message.replace("](", "] (")},
        "locations": [_sarif_location(change, repository)],
        # GitHub reads only this fingerprint; its number tells equal ones apart, which these never are
        "partialFingerprints": {"primaryLocationLineHash": f"{finding.fingerprint}:1"},
        "properties": {
            "before": fmt.amount(change.before, finding.line.counter),
            "after": fmt.amount(change.after, finding.line.counter),
        },
    }


def _sarif_location(change: Change, repository: RepositoryPaths) -> dict[str, Any]:
    file = repository.relative(change.file)
    path = PurePath(change.file)
    if file is not None:
        artifact = {"uri": _uri(file), "uriBaseId": ROOT}
    elif path.is_absolute():  # elsewhere, by its complete path (3.4.3: a URI)
        artifact = {"uri": f"file://{_uri(path.as_posix())}"}
    else:
        artifact = {"uri": _uri(change.file or "unknown")}
    # code scanning shows nothing without a line, so an unknown one becomes the first
    line = max(1, change.line)
    region = {"startLine": line, "startColumn": 1, "endLine": line}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if change.function:
        location["logicalLocations"] = [{"fullyQualifiedName": change.function, "kind": "function"}]
    return location


def _uri(path: str) -> str:
    return quote(path.encode("utf-8", "replace"), safe="/")
