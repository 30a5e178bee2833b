"""A gate's counters as a Code Quality report of GitLab, shown in the merge request.

Source: GitLab's documentation of Code Quality, report format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from profiler.check.model import FAIL, PASS, GateResult
from profiler.check.outputs import said
from profiler.check.outputs.findings import ERROR, NOTE, WARNING, findings, hashed, rule
from profiler.check.outputs.places import Places
from profiler.report.render.json import clean

_SEVERITIES: Final = {ERROR: "major", WARNING: "minor", NOTE: "info"}
"""Of info, minor, major, critical, blocker."""


def render(result: GateResult, where: Places) -> str:
    """The file, complete."""
    return json.dumps(clean([*_sites(result, where), *_without(result, where)]), indent=2, allow_nan=False) + "\n"


def _sites(result: GateResult, where: Places) -> Iterator[dict[str, Any]]:
    for one in findings(result, where):
        place = (where.shown(one.change.file) or "unknown", one.change.line)
        yield _entry(one.message, one.rule, one.fingerprint, _SEVERITIES[one.level], place)


def _without(result: GateResult, where: Places) -> Iterator[dict[str, Any]]:
    """Counters that fail and name no line: at the baseline, where what they may be is written."""
    for line in result.counters:
        if line.state != PASS and not line.changes and result.baseline_file:
            severity = _SEVERITIES[ERROR if line.state == FAIL else WARNING]
            print_ = hashed(rule(line), result.baseline_file)
            place = (where.shown(result.baseline_file), 1)
            yield _entry(said.counter_sentence(line, said.base_word(result)), rule(line), print_, severity, place)


def _entry(description: str, check: str, print_: str, severity: str, place: tuple[str, int]) -> dict[str, Any]:
    return {
        "description": description,
        "check_name": check,
        "fingerprint": print_,
        "severity": severity,
        "location": {"path": place[0], "lines": {"begin": max(1, place[1])}},
    }
