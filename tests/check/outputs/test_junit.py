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


def test_messages_and_machine() -> None:
    suite = ET.fromstring(junit.render(results.failed()).encode()).find("testsuite")
    assert suite is not None
    failure = suite.find("testcase[@name='Syncs']/failure")
    assert failure is not None
    assert "+1 sync per step at examples/train.py:104" in failure.get("message", "")
    skipped = suite.find("testcase[@name='all steps']/skipped")
    assert skipped is not None
    assert skipped.get("message", "").startswith("INCONCLUSIVE: all steps: +3.8%")
    machine = suite.find("properties/property[@name='machine.torch']")
    assert machine is not None
    assert machine.get("value") == "2.13.0+cpu"
    assert suite.get("time") == "61.400"


def test_no_time_where_none_was_measured() -> None:
    suite = ET.fromstring(junit.render(results.hostile()).encode()).find("testsuite")
    assert suite is not None
    assert suite.get("time") is None
