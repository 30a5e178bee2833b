"""A gate's result as JUnit XML: a test for every counter and every time line; INCONCLUSIVE is skipped, with its reason.

JUnit's files have no standard; this keeps to the elements that Jenkins' and GitLab's readers both know.
"""

from __future__ import annotations

import math
import re
from typing import Final
from xml.etree import ElementTree as ET

from profiler.check.model import FAIL, PASS, GateResult
from profiler.check.outputs import said
from profiler.check.outputs import text as sentences
from profiler.check.outputs.cases import Case, cases
from profiler.core.terminal import plain

SUITE: Final = "profiler check"
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: Extensible Markup Language 1.0, section 2.2, Char."""


def render(result: GateResult) -> str:
    """The file, complete."""
    found = cases(result)
    counts = {
        "tests": str(len(found)),
        "failures": str(sum(case.state == FAIL for case in found)),
        "errors": "0",
        "skipped": str(sum(case.state not in {FAIL, PASS} for case in found)),
    }
    if math.isfinite(result.seconds):
        counts["time"] = f"{result.seconds:.3f}"
    root = ET.Element("testsuites", {"name": SUITE, **counts})
    suite = ET.SubElement(root, "testsuite", {"name": SUITE, **counts})
    if result.created_at:
        suite.set("timestamp", _text(result.created_at))
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(result):
        ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for case in found:
        _case(suite, case)
    output = ET.SubElement(suite, "system-out")
    output.text = "\n".join(
        map(
            _text,
            (
                result.sentence,
                *filter(None, (result.explanation,)),
                *sentences.warnings(result),
                *sentences.notes(result),
            ),
        )
    )
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _properties(result: GateResult) -> list[tuple[str, str]]:
    """The machine, and what was held against what."""
    known = [(f"machine.{name}", value) for name, value in sorted(result.machine.items())]
    known += [("state", result.state), ("mode", result.mode)]
    known += [("base", said.side(result.base)), ("candidate", said.side(result.candidate))]
    known += [("baseline", result.baseline_file)] if result.baseline_file else []
    return known


def _case(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", {"classname": f"check.{case.group}", "name": _text(case.name)})
    message = _text(case.message)
    if case.state == FAIL:
        failure = ET.SubElement(element, "failure", {"message": message, "type": "regression"})
        failure.text = message
    elif case.state != PASS:
        ET.SubElement(element, "skipped", {"message": f"{_text(case.state)}: {message}"})
    else:
        ET.SubElement(element, "system-out").text = message


def _text(text: str) -> str:
    """Text that XML can hold: it has no word for control characters, escaped or not."""
    return _NOT_XML.sub("\ufffd", plain(text))
