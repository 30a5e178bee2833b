"""Writes the cases of a check for continuous integration, as JUnit XML and as annotations of GitHub."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    PASS,
    STATES,
    ChangeKind,
    GateResult,
    Throughput,
)
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.alerts import ERROR, WARNING, RepositoryPaths
from profiler.check.outputs.rises import Rise, find_rises
from profiler.core.terminal import plain

COUNTERS: Final = "counters"
THROUGHPUT: Final = "throughput"
CHECK: Final = "check"
SUITE: Final = "profiler check"
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: Extensible Markup Language 1.0, section 2.2, Char."""
NOTICE: Final = "notice"
MAX_ANNOTATIONS: Final = 10
"""GitHub shows no more of a kind and step. Source: GitHub's documentation of limits of annotations."""
_KINDS: Final = {FAIL: ERROR, INCONCLUSIVE: WARNING, NOT_COMPARABLE: WARNING}


@dataclass(frozen=True, slots=True)
class Case:
    """A part of the check with a state of its own."""

    group: str
    """COUNTERS | THROUGHPUT | CHECK"""
    name: str
    state: str
    message: str
    rises: tuple[Rise, ...] = ()
    """The lines at which it rose, or shrank, in the order in which they are told."""
    fewer: bool = False
    """It passes with less than the baseline."""


def cases(result: GateResult) -> tuple[Case, ...]:
    """A case for every counter and time line, and one for each part that is worse than all in it."""
    parts = [*_counter_cases(result), *(_time_cases(result, result.throughput) if result.throughput else ())]
    if _is_worse(result.state, parts):
        parts.append(Case(CHECK, "verdict", result.state, plain(result.sentence)))
    return tuple(parts)


def _counter_cases(result: GateResult) -> list[Case]:
    counters = []
    for line in result.counters:
        sentence = fmt.counter_sentence(line, fmt.base_noun(result), text.reasons(line.reasons))
        rises = find_rises((line,), result.hunks)
        fell = [Rise((change,)) for change in line.other_changes if change.kind is ChangeKind.SHRANK]
        message = "; ".join((sentence, *map(text.rise_sentence, rises)))
        fewer = line.state == PASS and fmt.is_fewer(line)
        counters.append(Case(COUNTERS, fmt.counter_name(line), line.state, message, (*rises, *fell), fewer=fewer))
    if _is_worse(result.counters_state, counters):
        reason = plain(text.reasons(result.counters_reasons) or result.sentence)
        counters.append(Case(COUNTERS, "all counters", result.counters_state or FAIL, reason))
    return counters


def _time_cases(result: GateResult, speed: Throughput) -> list[Case]:
    times = []
    reason = plain(text.sentence(speed.reason)) if speed.reason else ""
    for line in speed.lines:
        state = fmt.line_state(speed, line)
        tail = f"; {reason}" if reason and state != PASS else ""
        times.append(Case(THROUGHPUT, plain(line.name), state, fmt.time_sentence(result, line, state) + tail))
    if _is_worse(speed.state, times):
        times.append(Case(THROUGHPUT, "all rounds", speed.state, reason or plain(result.sentence)))
    return times


def _is_worse(state: str | None, parts: Sequence[Case]) -> bool:
    """Whether `state` is worse than that of every part; an unknown state is the worst."""

    def rank(state: str) -> int:
        return STATES.index(state) if state in STATES else len(STATES)

    return state is not None and (not parts or rank(state) > max(rank(part.state) for part in parts))


# ---------------------------------------------------------------- JUnit


def render_junit(result: GateResult) -> str:
    """The complete JUnit file: a test for each case; INCONCLUSIVE is skipped.

    There is no standard of JUnit files; this uses elements that the readers of Jenkins and GitLab both know.
    """
    tests = cases(result)
    counts = {
        "tests": str(len(tests)),
        "failures": str(sum(case.state == FAIL for case in tests)),
        "errors": "0",
        "skipped": str(sum(case.state not in {FAIL, PASS} for case in tests)),
    }
    if math.isfinite(result.seconds):
        counts["time"] = f"{result.seconds:.3f}"
    root = ET.Element("testsuites", {"name": SUITE, **counts})
    suite = ET.SubElement(root, "testsuite", {"name": SUITE, **counts})
    if result.created_at:
        suite.set("timestamp", _xml_text(result.created_at))
    properties = {f"machine.{name}": value for name, value in sorted(result.machine.items())} | {
        "state": result.state,
        "mode": result.mode,
        "base": fmt.side_title(result.base),
        "candidate": fmt.side_title(result.candidate),
        **({"baseline": result.baseline_file} if result.baseline_file else {}),
    }
    element = ET.SubElement(suite, "properties")
    for name, value in properties.items():
        ET.SubElement(element, "property", {"name": _xml_text(name), "value": _xml_text(value)})
    for case in tests:
        test = ET.SubElement(suite, "testcase", {"classname": f"check.{case.group}", "name": _xml_text(case.name)})
        message = _xml_text(case.message)
        if case.state == FAIL:
            ET.SubElement(test, "failure", {"message": message, "type": "regression"}).text = message
        elif case.state != PASS:
            ET.SubElement(test, "skipped", {"message": f"{_xml_text(case.state)}: {message}"})
        else:
            ET.SubElement(test, "system-out").text = message
    explanation = [result.explanation] if result.explanation else []
    lines = (result.sentence, *explanation, *text.causes(result), *text.warnings(result), *text.notes(result))
    ET.SubElement(suite, "system-out").text = "\n".join(map(_xml_text, lines))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _xml_text(value: str) -> str:
    """Text that XML can contain: control characters are not allowed even if escaped."""
    return _NOT_XML.sub("\ufffd", plain(value))


# ---------------------------------------------------------------- annotations of GitHub


def workflow_commands(result: GateResult, repository: RepositoryPaths) -> tuple[str, ...]:
    """Lines to print: errors at failing lines of code, warnings about the check, notices of counters that fell.

    Syntax and escaping: GitHub's documentation of workflow commands.
    """
    commands: dict[str, list[str]] = {ERROR: [], WARNING: [], NOTICE: []}
    shown: set[tuple[str, int]] = set()
    for case in cases(result):
        kind = _KINDS.get(case.state, NOTICE if case.fewer else "")
        if kind:
            commands[kind] += _case_commands(case, kind, repository, fmt.base_noun(result), shown)
    commands[WARNING] += [command(WARNING, line, title="A warning about this check") for line in text.warnings(result)]
    for kind, lines in commands.items():
        if len(lines) > MAX_ANNOTATIONS:
            more = len(lines) - MAX_ANNOTATIONS + 1
            message = f"{more:,} more are in the job's summary and in check.md."
            lines[MAX_ANNOTATIONS - 1 :] = [command(kind, message, title=f"{more:,} more")]
    return tuple(line for lines in commands.values() for line in lines)


def _case_commands(
    case: Case, kind: str, repository: RepositoryPaths, base: str, shown: set[tuple[str, int]]
) -> Iterator[str]:
    """One command for each line that changed in the direction that matters; if there is none, one for the case.

    :param shown: file and line of earlier commands, which get no other one; those of these are added.
    """
    fewer = "fewer, refresh the baseline" if base == "baseline" else "fewer"
    title = f"{case.name}: {case.state if case.state != PASS else fewer}"
    firsts = [(rise, rise.changes[0]) for rise in case.rises]
    firsts = [(rise, first) for rise, first in firsts if (first.after > first.before) == (kind != NOTICE)]
    for rise, first in firsts:
        file, place = repository.relative(first.file), (first.file, first.line)
        if file is None:
            yield command(kind, text.rise_sentence(rise), title=title)
        elif place not in shown:
            shown.add(place)
            message = fmt.rise(first) + fmt.function_and_operation(first)
            message = text.rise_sentence(rise) if rise.lines > 1 else message
            yield command(kind, message, title=title, file=file, line=first.line)
    if not firsts:
        yield command(kind, case.message, title=title)


def command(kind: str, message: str, *, title: str, file: str | None = None, line: int = 0) -> str:
    """One workflow command."""
    properties = [f"file={_escape_property(file)}"] if file else []
    properties += [f"line={line}"] if line > 0 else []
    properties.append(f"title={_escape_property(title)}")
    return f"::{kind} {','.join(properties)}::{_escape(message)}"


def _escape(value: str) -> str:
    # "%" first, because the other escapes contain it
    return plain(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(value: str) -> str:
    return _escape(value).replace(":", "%3A").replace(",", "%2C")
