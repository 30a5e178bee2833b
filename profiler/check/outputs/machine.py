"""Writes a check for programs: as SARIF 2.1.0, as JUnit XML and as annotations of GitHub, all from one list of cases.

Sources: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard, 27 March 2020 (the section
numbers below); GitHub's documentation of SARIF support for code scanning, of workflow commands and of annotations.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from profiler import __version__
from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    LOOKS,
    NOT_COMPARABLE,
    PASS,
    STATES,
    Change,
    ChangeKind,
    CounterLine,
    GateResult,
    Throughput,
)
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.first_screen import excerpt, hunk_at
from profiler.check.outputs.format import RepositoryPaths
from profiler.check.places import Rise, find_rises
from profiler.core import units
from profiler.core.terminal import plain
from profiler.report.render.json import clean
from profiler.report.text import capitalized, plural

COUNTERS: Final = "counters"
THROUGHPUT: Final = "throughput"
CHECK: Final = "check"
SUITE: Final = "profiler check"
ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
"""Levels of SARIF."""
NOTICE: Final = "notice"
"""What GitHub calls an annotation that is neither an error nor a warning."""
_LEVELS: Final = {FAIL: ERROR, INCONCLUSIVE: WARNING, NOT_COMPARABLE: WARNING, PASS: NOTE}
_FINGERPRINT_DIGITS: Final = 32
"""Hexadecimal digits of a SHA-256, 128 bits."""
SARIF_VERSION: Final = "2.1.0"
SARIF_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_RULE_NAME: Final = 255
MAX_RULE_TEXT: Final = 1024
"""Characters that GitHub's code scanning allows."""
ROOT: Final = "%SRCROOT%"
"""Code scanning takes this for the repository's root (3.14.14)."""
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: Extensible Markup Language 1.0, section 2.2, Char."""
MAX_ANNOTATIONS: Final = 10
"""GitHub shows no more of a kind and step. Source: GitHub's documentation of limits of annotations."""


# ---------------------------------------------------------------- cases and their alerts


@dataclass(frozen=True, slots=True)
class Alert:
    """A line of code at which a counter changed, or that is the cause of a FAIL."""

    rule: str
    """'counter/syncs', 'counter/h2d/worker', 'budget/syncs', 'cause/hidden-sync'"""
    title: str
    help: str
    level: str
    """ERROR | WARNING | NOTE"""
    message: str
    at: Change
    """The line. That of a cause has no counter."""
    properties: Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """A part of the check with a state of its own."""

    group: str
    """COUNTERS | THROUGHPUT | CHECK"""
    name: str
    state: str
    message: str
    alerts: tuple[Alert, ...] = ()
    """The lines at which it rose, and those that count most where a budget is exceeded."""
    fewer: tuple[Alert, ...] | None = None
    """The lines at which it shrank, where it passes with less than the baseline; None: it does not."""


def cases(result: GateResult) -> tuple[Case, ...]:
    """Return a case for every counter and time line, and one for each part that is worse than all in it."""
    counters = [_counter_case(result, line) for line in result.counters]
    if _is_worse(result.counters_state, counters):
        reason = plain(text.reasons(result.counters_reasons) or result.sentence)
        counters.append(Case(COUNTERS, "all counters", result.counters_state or FAIL, reason))
    parts = [*counters, *(_time_cases(result, result.throughput) if result.throughput else ())]
    if _is_worse(result.state, parts):
        parts.append(Case(CHECK, "verdict", result.state, plain(result.sentence)))
    return tuple(parts)


def find_alerts(result: GateResult) -> tuple[Alert, ...]:
    """Return the alerts of all cases, and those of the causes that the time of steps shows."""
    alerts = [alert for case in cases(result) for alert in case.alerts]
    level = ERROR if result.throughput is not None and result.throughput.state == FAIL else WARNING
    for cause in result.causes:
        if cause.file and not cause.counter:
            costs = {"before": cause.before, "after": cause.after}
            known = {
                key: units.seconds(cost) for key, cost in costs.items() if cost is not None and math.isfinite(cost)
            }
            alerts.append(
                Alert(
                    f"cause/{_identifier(cause.rule)}",
                    f"{plain(cause.rule)} appeared or grew",
                    cause.fix,
                    level,
                    f"{cause.sentence} {cause.fix}",
                    Change("", cause.file, cause.line, "", "", 0.0, 0.0),
                    {**known, "cause": cause.rule},
                )
            )
    return tuple(alerts)


def _counter_case(result: GateResult, line: CounterLine) -> Case:
    before, after, allowed = fmt.counter_amounts(line)
    limit = "no limit" if line.allowed is None else f"at most {allowed} allowed"
    title = fmt.counter_and_period(line)
    reasons = filter(None, [plain(text.reasons(line.reasons))])
    rises = find_rises((line,), result.hunks)
    sentence = f"{title}: {after}, {fmt.base_noun(result)} {before}, {limit}"
    message = "; ".join((sentence, *reasons, *map(text.rise_sentence, rises)))
    alerts = (*(_rise_alert(result, line, rise) for rise in rises), *_budget_alerts(line))
    fewer = None
    if line.state == PASS and fmt.is_fewer(line):
        fell = (change for change in line.other_changes if change.kind is ChangeKind.SHRANK)
        fewer = tuple(_rise_alert(result, line, Rise((change,))) for change in fell)
    return Case(COUNTERS, fmt.counter_name(line), line.state, message, alerts, fewer)


def _time_cases(result: GateResult, speed: Throughput) -> list[Case]:
    """Make a case for each line: 'typical step: +5.2% (+4.1% to +6.3%) over 5 rounds', and what that rules out."""
    times = []
    reason = plain(text.sentence(speed.reason)) if speed.reason else ""
    for line in speed.lines:
        state, ends = fmt.line_state(speed, line), fmt.interval(line.low, line.high)
        estimate = fmt.slower_or_faster(line.slowdown) + (f" ({ends})" if ends else "")
        sentences = [f"{plain(line.name)}: {estimate} over {plural(line.rounds, 'round')}"]
        if state == PASS and (limit := fmt.ruled_out(line)):
            sentences.append(f"slower by more than {limit} is ruled out")
        is_known = state != FAIL and line.rounds >= LOOKS[0] and fmt.percentage(line.smallest) is not None
        if is_known and (line.slowdown or 0.0) < (line.smallest or 0.0):
            sentences.append(f"from {fmt.percent(line.smallest)} on it would have been a FAIL ({fmt.DETECTED})")
        message = "; ".join((*sentences, *([reason] if reason and state != PASS else [])))
        times.append(Case(THROUGHPUT, plain(line.name), state, message))
    if _is_worse(speed.state, times):
        times.append(Case(THROUGHPUT, "all rounds", speed.state, reason or plain(result.sentence)))
    return times


def _is_worse(state: str | None, parts: Sequence[Case]) -> bool:
    """Return whether `state` is worse than that of every part; an unknown state is the worst."""

    def rank(state: str) -> int:
        return STATES.index(state) if state in STATES else len(STATES)

    return state is not None and (not parts or rank(state) > max(rank(part.state) for part in parts))


def _rise_alert(result: GateResult, line: CounterLine, rise: Rise) -> Alert:
    """Return an alert at the line of a rise, with its cause where that is known; at the first line of many."""
    first, noun = rise.changes[0], fmt.base_noun(result)
    title = fmt.counter_and_period(line)
    before, after, _ = fmt.counter_amounts(line)
    message = f"{fmt.rise(first)}{fmt.function_and_operation(first)}" if rise.lines == 1 else text.rise_sentence(rise)
    message += f". {title}: {noun} {before}, candidate {after}."
    properties: dict[str, str | Sequence[str]] = {
        "before": fmt.amount(first.before, line.counter),
        "after": fmt.amount(first.after, line.counter),
    }
    places = {(cause.counter, cause.file, cause.line): cause for cause in result.causes if line.scope == "step"}
    if cause := places.get((line.counter, first.file, first.line)):
        message += f" {cause.sentence} {cause.fix}"
        properties["cause"] = cause.rule
    if line.state != PASS and (hunk := hunk_at(result, first.file, first.line)):
        properties["diff"] = excerpt(hunk, first.line)
    return Alert(
        f"counter/{_identifier(line.counter)}" + "/worker" * (line.scope == "worker"),
        f"{title} changed",
        "Counts are exact." + " Write an intended rise to the baseline: check --update." * (noun == "baseline"),
        NOTE if first.after <= first.before else _LEVELS.get(line.state, WARNING),
        message,
        first,
        properties,
    )


def _budget_alerts(line: CounterLine) -> Iterator[Alert]:
    """Yield an alert for each line that counts most where a budget is exceeded."""
    if line.exceeded is None or line.after is None:
        return
    title = fmt.counter_and_period(line)
    sentence = capitalized(fmt.over_budget(line.counter, line.after[0], line.exceeded))
    for change in line.largest:
        after = fmt.amount(change.after, line.counter)
        yield Alert(
            f"budget/{_identifier(line.counter)}",
            f"{title} above budget",
            "Have the line do less, or raise the budget.",
            ERROR if any(reason.code == "above-budget" for reason in line.reasons) else WARNING,
            f"{sentence}; {after} of it at this line.",
            change,
            {"budget": fmt.amount(line.exceeded, line.counter), "after": after},
        )


def _identifier(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-._" else "-" for char in plain(name))


# ---------------------------------------------------------------- SARIF


def render_sarif(found: Mapping[str, GateResult], repository: RepositoryPaths) -> str:
    """Return the complete SARIF file: one run of the tool for each configuration.

    :param found: name of a configuration -> its result; the name is empty where there is only one.
    """
    runs = [_sarif_run(name, result, repository) for name, result in found.items()]
    document = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": runs}
    return json.dumps(clean(document), indent=2, allow_nan=False) + "\n"


def _sarif_run(name: str, result: GateResult, repository: RepositoryPaths) -> dict[str, Any]:
    alerts = find_alerts(result)
    ids = list(dict.fromkeys(alert.rule for alert in alerts))
    rules = [
        {
            "id": rule.rule,
            "name": "".join(part.capitalize() for part in rule.rule.replace("/", "_").split("_"))[:MAX_RULE_NAME],
            "shortDescription": {"text": rule.title[:MAX_RULE_TEXT]},
            "fullDescription": {"text": f"{rule.title}. {rule.help}"[:MAX_RULE_TEXT]},
            "help": {"text": rule.help},
            "defaultConfiguration": {"level": "error"},
            "properties": {"tags": ["performance"], "precision": "very-high", "problem.severity": "error"},
        }
        for rule in {alert.rule: alert for alert in alerts}.values()
    ]
    driver = {"name": "training-profiler check", "semanticVersion": __version__, "version": __version__, "rules": rules}
    prints = _fingerprints(alerts, repository)
    return {
        "tool": {"driver": driver},
        # code scanning takes several runs of one tool only if their categories differ (3.17.3)
        **({"automationDetails": {"id": f"{name}/"}} if name else {}),
        "invocations": [{"executionSuccessful": result.state in STATES}],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [
            _sarif_result(alert, ids.index(alert.rule), digest, repository)
            for alert, digest in zip(alerts, prints, strict=True)
        ],
        "properties": {"state": result.state, "sentence": result.sentence},
    }


def _fingerprints(alerts: Iterable[Alert], repository: RepositoryPaths) -> Iterator[str]:
    """Return a digest of rule, file, function and operation of each alert, which stays when its line moves."""
    counts = Counter[str]()
    for alert in alerts:
        code = (alert.at.function, alert.at.operation) if alert.at.counter else ()
        digest = _digest("\0".join((alert.rule, repository.relative(alert.at.file) or alert.at.file, *code)))
        counts[digest] += 1
        # several of the same function and operation are numbered in their order
        yield _digest(f"{digest}\0{counts[digest]}") if counts[digest] > 1 else digest


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_FINGERPRINT_DIGITS]


def _sarif_result(alert: Alert, rule_index: int, digest: str, repository: RepositoryPaths) -> dict[str, Any]:
    file, path = repository.relative(alert.at.file), PurePath(alert.at.file)
    name = (file or (path.as_posix() if path.is_absolute() else alert.at.file) or "unknown").encode("utf-8", "replace")
    artifact = {"uri": quote(name, safe="/")}
    if file is not None:
        artifact["uriBaseId"] = ROOT
    elif path.is_absolute():  # elsewhere, by its complete path (3.4.3: a URI)
        artifact["uri"] = f"file://{artifact['uri']}"
    # code scanning shows nothing without a line, so an unknown one becomes the first
    line = max(1, alert.at.line)
    region = {"startLine": line, "startColumn": 1, "endLine": line}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if alert.at.function:
        location["logicalLocations"] = [{"fullyQualifiedName": alert.at.function, "kind": "function"}]
    return {
        "ruleId": alert.rule,
        "ruleIndex": rule_index,
        "level": alert.level,
        "kind": "fail",
        # a plain text message may contain links too (3.11.6): the space keeps brackets from being one
        "message": {"text": alert.message.replace("](", "] (")},
        "locations": [location],
        # GitHub reads only this fingerprint; its number tells equal ones apart, which these never are
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1"},
        "properties": dict(alert.properties),
    }


# ---------------------------------------------------------------- JUnit


def render_junit(found: Mapping[str, GateResult]) -> str:
    """Return the complete JUnit file: a suite for each configuration, a test for each case; INCONCLUSIVE is skipped.

    There is no standard of JUnit files; this uses elements that the readers of Jenkins and GitLab both know.

    :param found: as in `render_sarif`.
    """
    suites = {name: cases(result) for name, result in found.items()}
    seconds = math.fsum(result.seconds for result in found.values())
    root = ET.Element("testsuites", {"name": SUITE, **_junit_counts([*chain(*suites.values())], seconds)})
    for name, result in found.items():
        title = f"{SUITE}: {name}" if name else SUITE
        suite = ET.SubElement(root, "testsuite", {"name": title, **_junit_counts(suites[name], result.seconds)})
        if result.created_at:
            suite.set("timestamp", _xml_text(result.created_at))
        properties = {f"machine.{key}": value for key, value in sorted(result.machine.items())} | {
            "state": result.state,
            "mode": result.mode,
            "base": fmt.side_title(result.base),
            "candidate": fmt.side_title(result.candidate),
            **({"baseline": result.baseline_file} if result.baseline_file else {}),
        }
        element = ET.SubElement(suite, "properties")
        for key, value in properties.items():
            ET.SubElement(element, "property", {"name": _xml_text(key), "value": _xml_text(value)})
        for case in suites[name]:
            _junit_case(suite, f"check.{name}" if name else "check", case)
        explanation = [result.explanation] if result.explanation else []
        notes = map(text.sentence, result.notes)
        lines = (result.sentence, *explanation, *text.causes(result), *text.warnings(result), *notes)
        ET.SubElement(suite, "system-out").text = "\n".join(map(_xml_text, lines))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _junit_case(suite: ET.Element, group: str, case: Case) -> None:
    test = ET.SubElement(suite, "testcase", {"classname": f"{group}.{case.group}", "name": _xml_text(case.name)})
    message = _xml_text(case.message)
    if case.state == FAIL:
        ET.SubElement(test, "failure", {"message": message, "type": "regression"}).text = message
    elif case.state not in STATES:
        ET.SubElement(test, "error", {"message": message})
    elif case.state != PASS:
        ET.SubElement(test, "skipped", {"message": f"{_xml_text(case.state)}: {message}"})
    else:
        ET.SubElement(test, "system-out").text = message


def _junit_counts(tests: Sequence[Case], seconds: float) -> dict[str, str]:
    return {
        "tests": str(len(tests)),
        "failures": str(sum(case.state == FAIL for case in tests)),
        "errors": str(sum(case.state not in STATES for case in tests)),
        "skipped": str(sum(case.state in {INCONCLUSIVE, NOT_COMPARABLE} for case in tests)),
        **({"time": f"{seconds:.3f}"} if math.isfinite(seconds) else {}),
    }


def _xml_text(value: str) -> str:
    """Make a text that XML can contain: control characters are not allowed even if escaped."""
    return _NOT_XML.sub("\ufffd", plain(value))


# ---------------------------------------------------------------- annotations of GitHub


def workflow_commands(result: GateResult, repository: RepositoryPaths) -> tuple[str, ...]:
    """Return lines to print: errors and warnings at lines of code, warnings about the check, notices of counters that
    fell.

    A line of code gets one command. A case without a line gets one too.
    """
    commands: dict[str, list[str]] = {ERROR: [], WARNING: [], NOTICE: []}
    shown: set[tuple[str, int]] = set()
    refresh = ", refresh the baseline" * (fmt.base_noun(result) == "baseline")
    for case in cases(result):
        is_passed = case.state == PASS
        if is_passed and case.fewer is None:
            continue
        kind = NOTICE if is_passed else _LEVELS.get(case.state, WARNING)
        title = f"{case.name}: {f'fewer{refresh}' if is_passed else case.state}"
        alerts = case.fewer or () if is_passed else [each for each in case.alerts if each.level != NOTE]
        for alert in alerts:
            file, place = repository.relative(alert.at.file), (alert.at.file, alert.at.line)
            if file is None:
                commands[kind].append(command(kind, f"{fmt.location(alert.at)}: {alert.message}", title=title))
            elif place not in shown:
                shown.add(place)
                commands[kind].append(command(kind, alert.message, title=title, file=file, line=alert.at.line))
        if not alerts:
            commands[kind].append(command(kind, case.message, title=title))
    commands[WARNING] += [command(WARNING, line, title="A warning about this check") for line in text.warnings(result)]
    for kind, lines in commands.items():
        if (more := len(lines) - MAX_ANNOTATIONS + 1) > 1:
            message = f"{more:,} more are in the job's summary and in check.md."
            lines[MAX_ANNOTATIONS - 1 :] = [command(kind, message, title=f"{more:,} more")]
    return tuple(line for lines in commands.values() for line in lines)


def command(kind: str, message: str, *, title: str, file: str | None = None, line: int = 0) -> str:
    """Return one workflow command."""

    def escape(value: str, more: str = "") -> str:
        # "%" first, because the other escapes contain it
        value = plain(value)
        for char in f"%\r\n{more}":
            value = value.replace(char, f"%{ord(char):02X}")
        return value

    named = {"file": file or "", "line": str(line) if line > 0 else "", "title": title}
    properties = ",".join(f"{name}={escape(value, ':,')}" for name, value in named.items() if value)
    return f"::{kind} {properties}::{escape(message)}"
