"""Makes sentences of findings: fills the templates of their rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final

from profiler.analyse.finding import Finding, GainMethod, NotJudged
from profiler.core.units import ratio, seconds, share, significant, size
from profiler.report.text import at, describe, file_name, function_name, listed


@dataclass(frozen=True, slots=True)
class FindingText:
    """A finding in words."""

    title: str
    place: str
    """The lines that cause it; empty: not known."""
    evidence: tuple[str, ...]
    fix: str
    code: str
    example: str


def finding_text(finding: Finding) -> FindingText:
    """The words of a finding, from the templates of its rule."""
    rule = finding.rule
    return FindingText(
        _fill(rule.title, finding.values) or rule.name,
        listed([at(site).removeprefix(" at ") for site in finding.sites]) if finding.sites else "",
        tuple(filter(None, (_fill(template, finding.values) for template in rule.evidence))),
        _fill(rule.fix, finding.values),
        _fill(rule.code, finding.values),
        rule.example,
    )


def not_judged_text(not_judged: NotJudged) -> str:
    """`rule: reason`"""
    return f"{not_judged.rule.name}: {describe(not_judged.reason)}"


def gain_text(finding: Finding) -> str:
    """`at most 1.6×`, `1.4× (1.3 to 1.5)`; empty without a prediction."""
    if not finding.gains:
        return ""
    gain = finding.gains[0]
    if gain.method is GainMethod.BOUND:
        return f"at most {ratio(gain.high)}"
    return f"{ratio(gain.factor)} ({significant(gain.low)} to {ratio(gain.high)})"


# ---------------------------------------------------------------- templates


def _function(site: Any) -> str:
    return f"{function_name(site)} of {file_name(site)}"


_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "time": seconds,
    "share": share,
    "size": size,
    "ratio": ratio,
    "number": significant,
    "count": lambda value: f"{round(value):,}",
    "place": lambda site: at(site).removeprefix(" at "),
    "function": _function,
    "": str,
}
"""Format of a field of a template -> how its value is written."""


class _Template(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise LookupError
        return _FORMATS[format_spec](value)


def _fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its values; empty where one of them is not known."""
    try:
        return _Template().vformat(template, (), values)
    except LookupError:
        return ""
