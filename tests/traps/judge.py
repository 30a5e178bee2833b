"""Compares the findings of a run with what was switched: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from profiler.report.finding_text import WORTH_LEADING
from tests.traps.cases import Case

THROTTLED: Final = "throttled"
"""The rule that must tell of a CPU quota."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is right and wrong about the findings of a run."""

    first: str
    """The rule that comes first among those that claim a gain worth naming; empty: none."""
    is_right: bool
    """Of one illness: it comes first. Of several: all are among as many first findings, though beside a large one
    another may be worth less than what leads a verdict. Healthy: no finding leads one."""
    has_line: bool | None
    """Whether the first finding names a line that is at fault; None: no line is."""
    gain: float | None
    """The gain that the first finding predicts."""


def judge(case: Case, findings: Sequence[Mapping[str, Any]]) -> Judgement:
    """Judge the findings of a JSON report, in their order."""
    sure = [each for each in findings if not each["overlaps"] and each["confidence"] != "low"]
    leading = [each for each in sure if _gain(each) >= WORTH_LEADING]
    names = [each["rule"] for each in leading]
    first = leading[0] if leading else None
    if not case.ill:
        return Judgement(names[0] if names else "", not names, None, _gain(first) if first else None)
    if len(case.ill) == 1:
        of_run = [each for each in findings if each["is_of_run"] and each["rule"] in case.rules]
        if of_run:  # it predicts no gain, and comes last: nothing else must lead
            first, names = of_run[0], names or [of_run[0]["rule"]]
        is_right = bool(names) and names[0] in case.rules
    else:
        most = [each["rule"] for each in sure if each["gains"]][: len(case.ill)]
        is_right = all(_is_among(name, most, case) for name in case.ill)
    lines = case.lines()
    named = {site["line"] for site in first["sites"] if site["file"].endswith(case.script)} if first else set()
    has_line = bool(lines & named) if lines else None
    return Judgement(names[0] if names else "", is_right, has_line, _gain(first) if first else None)


def judge_throttled(case: Case, findings: Sequence[Mapping[str, Any]]) -> Judgement:
    """Judge the findings about a case under a CPU quota: `throttled` must be among the first ones, as one illness more,
    and the others are judged as without the quota."""
    first = [each["rule"] for each in findings if each["gains"] and not each["overlaps"]][: len(case.ill) + 1]
    judgement = judge(case, [each for each in findings if each["rule"] != THROTTLED])
    return replace(judgement, is_right=judgement.is_right and THROTTLED in first)


def _is_among(name: str, names: Sequence[str], case: Case) -> bool:
    """Whether an illness is named, by its own rule or by one that is as right and stands for it."""
    return name in names or (name == case.ill[0] and any(other in names for other in case.also))


def _gain(finding: Mapping[str, Any]) -> float:
    return float(finding["gains"][0]["factor"]) if finding["gains"] else 1.0
