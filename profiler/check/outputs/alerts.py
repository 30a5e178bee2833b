"""Counters that changed and causes of a FAIL, as alerts of SARIF 2.1.0.

Sources: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020 (the section
numbers below); GitHub's documentation of SARIF support for code scanning.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote

from profiler import __version__
from profiler.check.model import FAIL, PASS, Change, CounterLine, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.outputs.first_screen import excerpt, hunk_at
from profiler.core import units
from profiler.core.facts import repository_folder
from profiler.core.metrics import counter_period
from profiler.core.terminal import plain
from profiler.report.render.json import clean
from profiler.report.text import capitalized

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
_FINGERPRINT_DIGITS: Final = 32
"""Hexadecimal digits of a SHA-256, 128 bits."""
SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_RULE_NAME: Final = 255
MAX_RULE_TEXT: Final = 1024
"""Characters that GitHub's code scanning allows."""
ROOT: Final = "%SRCROOT%"
"""Code scanning takes this for the repository's root (3.14.14)."""


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class RepositoryPaths:
    """Names files as a repository does, which is where annotations and alerts are shown."""

    root: str
    """Absolute; empty: there is none."""
    cwd: str
    """The directory of relative files."""

    @classmethod
    def around(cls, directory: Path) -> RepositoryPaths:
        """The nearest folder upward from `directory` that has a .git."""
        here = directory.absolute()
        return cls(str(repository_folder(here) or ""), str(here))

    def relative(self, file: str) -> str | None:
        """`file` relative to the root, with forward slashes; None if it lies elsewhere."""
        if not file or not self.root:
            return None
        # only by its text: the file may be deleted, or of a revision
        path = PurePath(os.path.normpath(PurePath(self.cwd) / file))
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None

    def label(self, file: str) -> str:
        """`file` relative to the root; unchanged if it lies elsewhere."""
        return self.relative(file) or file


# ---------------------------------------------------------------- alerts


@dataclass(frozen=True, slots=True)
class Alert:
    """A line of code at which a counter changed, or that is the cause of a FAIL."""

    rule: AlertRule
    file: str
    line: int
    function: str
    level: str
    """ERROR | WARNING | NOTE"""
    fingerprint: str
    """Depends on rule, file, function and operation, so it stays when the line moves."""
    message: str
    properties: Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """What alerts of one kind are about."""

    name: str
    title: str
    description: str
    help: str


def find_alerts(result: GateResult, repository: RepositoryPaths) -> tuple[Alert, ...]:
    """All lines of code that changed, in the order of counters and changes, each with its cause where that is known;
    then those that count most where a budget is exceeded, and the causes that the time of steps shows."""
    return (
        *_counter_alerts(result, repository),
        *_budget_alerts(result, repository),
        *_cause_alerts(result, repository),
    )


def _counter_alerts(result: GateResult, repository: RepositoryPaths) -> Iterator[Alert]:
    causes = {(cause.counter, cause.file, cause.line): cause for cause in result.causes if cause.counter}
    counts = Counter[str]()
    for line in result.counters:
        before, after, _ = fmt.counter_amounts(line)
        rule = _counter_rule(line, fmt.base_noun(result))
        total = f"{fmt.counter_title(line)} {counter_period(line.counter)}"
        total += f": {fmt.base_noun(result)} {before}, candidate {after}"
        for change in line.changes:
            file = repository.label(change.file)
            digest = fingerprint(rule_name(line), file, change.function, change.operation)
            counts[digest] += 1
            if counts[digest] > 1:  # several of the same function and operation are numbered in their order
                digest = fingerprint(digest, str(counts[digest]))
            message = f"{fmt.rise(change)}{fmt.function_and_operation(change)}. {total}."
            cause = causes.get((line.counter, change.file, change.line)) if line.scope == "step" else None
            if cause is not None:
                message += f" {cause.sentence} {cause.fix}"
            hunk = hunk_at(result, change.file, change.line) if line.state != PASS else None
            amounts = {
                "before": fmt.amount(change.before, line.counter),
                "after": fmt.amount(change.after, line.counter),
                **({"cause": cause.rule} if cause is not None else {}),
                **({"diff": excerpt(hunk, change.line)} if hunk is not None else {}),
            }
            level = _level(line, change)
            yield Alert(rule, change.file, change.line, change.function, level, digest, message, amounts)


def _budget_alerts(result: GateResult, repository: RepositoryPaths) -> Iterator[Alert]:
    for line in result.counters:
        if line.exceeded is None or line.after is None:
            continue
        name, title = f"budget/{_identifier(line.counter)}", fmt.counter_title(line)
        period = counter_period(line.counter)
        description = f"{title} {period}: the candidate's count compared to its budget."
        rule = AlertRule(
            name, f"{title} {period} above budget", description, "Have the line do less, or raise the budget."
        )
        level = ERROR if any(reason.code == "above-budget" for reason in line.reasons) else WARNING
        sentence = fmt.over_budget(line.counter, line.after[0], line.exceeded)
        for change in line.largest:
            digest = fingerprint(name, repository.label(change.file), change.function, change.operation)
            own = fmt.amount(change.after, line.counter)
            message = f"{capitalized(sentence)}; {own} of it at this line."
            amounts = {"budget": fmt.amount(line.exceeded, line.counter), "after": own}
            yield Alert(rule, change.file, change.line, change.function, level, digest, message, amounts)


def _cause_alerts(result: GateResult, repository: RepositoryPaths) -> Iterator[Alert]:
    level = ERROR if result.throughput is not None and result.throughput.state == FAIL else WARNING
    for cause in result.causes:
        if cause.counter or not cause.file:
            continue
        description = "A cause of slowness that the candidate has and the base does not, or that costs more in it."
        name, title = f"cause/{_identifier(cause.rule)}", f"{plain(cause.rule)} appeared or grew"
        rule = AlertRule(name, title, description, cause.fix)
        costs = {"before": cause.before, "after": cause.after}
        amounts = {
            name: units.seconds(cost) for name, cost in costs.items() if cost is not None and math.isfinite(cost)
        }
        digest = fingerprint(rule.name, repository.label(cause.file))
        yield Alert(
            rule,
            cause.file,
            cause.line,
            "",
            level,
            digest,
            f"{cause.sentence} {cause.fix}",
            {**amounts, "cause": cause.rule},
        )


def rule_name(line: CounterLine) -> str:
    """'counter/syncs', 'counter/h2d/worker'."""
    return f"counter/{_identifier(line.counter)}" + ("/worker" if line.scope == "worker" else "")


def _identifier(text: str) -> str:
    return "".join(char if char.isalnum() or char in "-._" else "-" for char in plain(text))


def fingerprint(*texts: str) -> str:
    """A hexadecimal digest of texts."""
    joined = "\0".join(texts).encode("utf-8", "replace")
    return hashlib.sha256(joined).hexdigest()[:_FINGERPRINT_DIGITS]


def _level(line: CounterLine, change: Change) -> str:
    if line.state == PASS or change.after <= change.before:
        return NOTE
    return ERROR if line.state == FAIL else WARNING


# ---------------------------------------------------------------- SARIF


def render_sarif(result: GateResult, repository: RepositoryPaths) -> str:
    """The complete SARIF file: one run of one tool."""
    alerts = find_alerts(result, repository)
    rules = {alert.rule.name: alert.rule for alert in alerts}
    indices = {rule: index for index, rule in enumerate(rules)}
    driver = {
        "name": "training-profiler check",
        "semanticVersion": __version__,
        "version": __version__,
        "rules": list(map(_sarif_rule, rules.values())),
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [_sarif_result(alert, indices[alert.rule.name], repository) for alert in alerts],
        "properties": {"state": result.state, "sentence": result.sentence},
    }
    document = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return json.dumps(clean(document), indent=2, allow_nan=False) + "\n"


def _counter_rule(line: CounterLine, base: str) -> AlertRule:
    title = f"{fmt.counter_title(line)} {counter_period(line.counter)}"
    hint = " Write an intended rise to the baseline: check --update." if base == "baseline" else ""
    full = f"{title}: the candidate's count compared to the {base}'s."
    return AlertRule(rule_name(line), f"{title} changed", full, f"Counts are exact.{hint}")


def _sarif_rule(rule: AlertRule) -> dict[str, Any]:
    return {
        "id": rule.name,
        "name": "".join(part.capitalize() for part in rule.name.replace("/", "_").split("_"))[:MAX_RULE_NAME],
        "shortDescription": {"text": rule.title[:MAX_RULE_TEXT]},
        "fullDescription": {"text": rule.description[:MAX_RULE_TEXT]},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["performance"], "precision": "very-high", "problem.severity": "error"},
    }


def _sarif_result(alert: Alert, rule_index: int, repository: RepositoryPaths) -> dict[str, Any]:
    return {
        "ruleId": alert.rule.name,
        "ruleIndex": rule_index,
        "level": alert.level,
        "kind": "fail",
        # a plain text message may contain links too (3.11.6): the space keeps brackets from being one
        "message": {"text": alert.message.replace("](", "] (")},
        "locations": [_sarif_location(alert, repository)],
        # GitHub reads only this fingerprint; its number tells equal ones apart, which these never are
        "partialFingerprints": {"primaryLocationLineHash": f"{alert.fingerprint}:1"},
        "properties": dict(alert.properties),
    }


def _sarif_location(alert: Alert, repository: RepositoryPaths) -> dict[str, Any]:
    file = repository.relative(alert.file)
    path = PurePath(alert.file)
    if file is not None:
        artifact = {"uri": _uri(file), "uriBaseId": ROOT}
    elif path.is_absolute():  # elsewhere, by its complete path (3.4.3: a URI)
        artifact = {"uri": f"file://{_uri(path.as_posix())}"}
    else:
        artifact = {"uri": _uri(alert.file or "unknown")}
    # code scanning shows nothing without a line, so an unknown one becomes the first
    line = max(1, alert.line)
    region = {"startLine": line, "startColumn": 1, "endLine": line}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if alert.function:
        location["logicalLocations"] = [{"fullyQualifiedName": alert.function, "kind": "function"}]
    return location


def _uri(path: str) -> str:
    return quote(path.encode("utf-8", "replace"), safe="/")
