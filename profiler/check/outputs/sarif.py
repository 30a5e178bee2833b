"""A gate's counters with a line as SARIF 2.1.0: alerts of code scanning.

Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020; section numbers
below are its own.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from profiler import __version__
from profiler.check.model import Change, CounterLine, GateResult
from profiler.check.outputs import said, words
from profiler.check.outputs.findings import Finding, findings
from profiler.check.outputs.places import Places
from profiler.report.render.json import clean

VERSION: Final = "2.1.0"
SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST_NAME: Final = 255
MOST_TEXT: Final = 1024
"""Characters of a rule's name and of its texts. Source, as for what it requires of a region: GitHub's documentation of
SARIF support for code scanning."""
ROOT: Final = "%SRCROOT%"
"""What code scanning takes for the repository's root (3.14.14); where that lies is no one's business."""


def render(result: GateResult, where: Places) -> str:
    """The file, complete."""
    return json.dumps(clean(document(result, where)), indent=2, allow_nan=False) + "\n"


def document(result: GateResult, where: Places) -> dict[str, Any]:
    """One run of one tool."""
    found = findings(result, where)
    rules = {one.rule: one.line for one in found}
    places = list(rules)
    run = {
        "tool": {
            "driver": {
                "name": "training-profiler check",
                "semanticVersion": __version__,
                "version": __version__,
                "rules": [_rule(name, line, said.base_word(result)) for name, line in rules.items()],
            }
        },
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [_result(one, places.index(one.rule), where) for one in found],
        "properties": {"state": result.state, "sentence": result.sentence},
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(name: str, line: CounterLine, base: str) -> dict[str, Any]:
    title = words.title(line)
    meant = " A rise that is meant goes into the baseline: check --update." if base == "baseline" else ""
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.replace("/", "_").split("_"))[:MOST_NAME],
        "shortDescription": {"text": f"{title} per step changed"[:MOST_TEXT]},
        "fullDescription": {
            "text": f"{title} in a training step: the candidate's count against the {base}'s."[:MOST_TEXT]
        },
        "help": {"text": f"Counts are exact.{meant}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["performance"], "precision": "very-high", "problem.severity": "error"},
    }


def _result(one: Finding, index: int, where: Places) -> dict[str, Any]:
    return {
        "ruleId": one.rule,
        "ruleIndex": index,
        "level": one.level,
        "kind": "fail",
        "message": {"text": _unlinked(one.message)},
        "locations": [_location(one.change, where)],
        # the only one that GitHub's code scanning reads; the number tells equal ones apart, which these never are
        "partialFingerprints": {"primaryLocationLineHash": f"{one.fingerprint}:1"},
        "properties": {
            "before": words.amount(one.change.before, one.line.counter),
            "after": words.amount(one.change.after, one.line.counter),
        },
    }


def _unlinked(text: str) -> str:
    """Without links, which a plain text message may have too (3.11.6)."""
    return text.replace("](", "] (")


def _location(change: Change, where: Places) -> dict[str, Any]:
    # the whole line; code scanning shows nothing without one, so the first stands for a line that is not known
    line = max(1, change.line)
    region = {"startLine": line, "startColumn": 1, "endLine": line}
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(change.file, where), "region": region}
    }
    if change.function:
        location["logicalLocations"] = [{"fullyQualifiedName": change.function, "kind": "function"}]
    return location


def _artifact(file: str, where: Places) -> dict[str, Any]:
    """Relative to the root; what lies elsewhere by its whole path (3.4.3: a URI)."""
    inside = where.inside(file)
    if inside is not None:
        return {"uri": _uri(inside), "uriBaseId": ROOT}
    path = PurePath(file)
    return {"uri": f"file://{_uri(path.as_posix())}" if path.is_absolute() else _uri(file or "unknown")}


def _uri(path: str) -> str:
    return quote(path.encode("utf-8", "replace"), safe="/")
