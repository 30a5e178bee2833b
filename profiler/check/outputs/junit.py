"""The result of a check as JUnit XML: a test for every counter and time line; INCONCLUSIVE is skipped.

There is no standard of JUnit files; this uses elements that the readers of Jenkins and GitLab both know.
"""

from __future__ import annotations

import math
import re
from typing import Final
from xml.etree import ElementTree as ET

from profiler.check.model import FAIL, PASS, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.findings import Case, cases
from profiler.core.terminal import plain

SUITE: Final = "profiler check"
_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: Extensible Markup Language 1.0, section 2.2, Char."""


def render(result: GateResult) -> str:
    """The complete file."""
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
        _add_test(suite, case)
    explanation = [result.explanation] if result.explanation else []
    lines = (result.sentence, *explanation, *text.warnings(result), *text.notes(result))
    ET.SubElement(suite, "system-out").text = "\n".join(map(_xml_text, lines))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_test(suite: ET.Element, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", {"classname": f"check.{case.group}", "name": _xml_text(case.name)})
    message = _xml_text(case.message)
    if case.state == FAIL:
        ET.SubElement(element, "failure", {"message": message, "type": "regression"}).text = message
    elif case.state != PASS:
        ET.SubElement(element, "skipped", {"message": f"{_xml_text(case.state)}: {message}"})
    else:
        ET.SubElement(element, "system-out").text = message


def _xml_text(value: str) -> str:
    """Text that XML can contain: control characters are not allowed even if escaped."""
    return _NOT_XML.sub("\ufffd", plain(value))
