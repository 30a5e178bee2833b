"""junit.xml: valid for any text, a test for every counter and line, INCONCLUSIVE skipped."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE
from profiler.check.outputs import junit
from profiler.check.outputs.findings import cases
from tests.check.outputs import results


@pytest.mark.parametrize("name", results.everything())
def test_counts_are_those_of_the_cases(name: str) -> None:
    result = results.everything()[name]
    text = junit.render(result)
    root = ET.fromstring(text.encode("utf-8"))
    assert root.tag == "testsuites"
    (suite,) = root.findall("testsuite")
    tests = suite.findall("testcase")
    assert len(tests) == len(cases(result)) == int(suite.get("tests", "")) > 0
    assert len(suite.findall("testcase/failure")) == int(suite.get("failures", ""))
    assert len(suite.findall("testcase/skipped")) == int(suite.get("skipped", ""))
    assert bool(suite.findall("testcase/failure")) == (result.state == FAIL)
    assert bool(suite.findall("testcase/skipped")) or result.state != INCONCLUSIVE
    assert len({(case.get("classname"), case.get("name")) for case in tests}) == len(tests)


def suite_of(name: str) -> ET.Element:
    (suite,) = ET.fromstring(junit.render(results.everything()[name]).encode()).findall("testsuite")
    return suite


def test_messages_and_machine() -> None:
    suite = suite_of("failed")
    found = {
        path: element.attrib
        for path in (
            "testcase[@name='Syncs']/failure",
            "testcase[@name='all steps']/skipped",
            "properties/*[@name='machine.torch']",
        )
        for element in suite.findall(path)
    }
    failure, skipped, torch = found.values()
    assert "+1 sync per step at examples/train.py:104" in failure["message"]
    assert skipped["message"].startswith("INCONCLUSIVE: all steps: +3.8%")
    assert torch["value"] == "2.13.0+cpu"
    assert suite.get("time") == "61.400"
    assert suite_of("hostile").get("time") is None, "none was measured"
