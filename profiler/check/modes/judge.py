"""Completes the result of a check from its measurements: causes, state and sentence. It reads and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from profiler.check.counters.compare import budget_warnings, unused_limits, worst
from profiler.check.counters.operators import GROWTH
from profiler.check.model import FAIL, Change, CounterLine, GateResult, Hunk, WorseCause
from profiler.check.outputs.first_screen import verdict_sentence
from profiler.check.outputs.text import counted_cause
from profiler.check.places import LineTimes, slower_lines
from profiler.core.errors import Notice

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Comparison
    from profiler.analyse.model.finding import RuleText

Copied = Mapping[tuple[str, int, str], float]
"""File, line and function -> bytes that the line copies to the device per step."""


def judge(
    result: GateResult,
    comparison: Comparison | None = None,
    times: tuple[LineTimes, LineTimes] | None = None,
    hunks: Sequence[Hunk] | None = None,
) -> GateResult:
    """The complete result of what was measured.

    :param comparison: of the runs of both sides.
    :param times: the time of each side by line.
    :param hunks: what the diff changed in the files of a FAIL; None: not known.
    :raises ValueError: nothing was compared.
    """
    warnings = (*result.warnings, *budget_warnings(result.counters), *unused_limits(result))
    # a comparison with a baseline has its diff already
    result = replace(result, warnings=warnings, hunks=result.hunks if hunks is None else tuple(hunks))
    if times is not None and hunks is not None:
        result = replace(result, slower_lines=slower_lines(*times, hunks))
    timed: tuple[WorseCause, ...] = ()
    if comparison is not None:
        timed = tuple(worse_causes(comparison, hunks))
        if any(side.detail for side in comparison.sides):
            result = replace(result, explanation=comparison.verdict)  # it tells where the time went
    known = {cause.rule for cause in timed}
    counted = (cause for cause in counted_causes(result.counters) if cause.rule not in known)
    return conclude(replace(result, causes=changed_first((*timed, *counted), result.hunks)))


def conclude(result: GateResult) -> GateResult:
    """The result with its state, as bad as its worst part, and its sentence.

    :raises ValueError: it has no part.
    """
    parts = [result.counters_state, result.throughput.state if result.throughput else None]
    states = [state for state in parts if state is not None]
    if not states:
        raise ValueError("nothing was compared")
    counters = list(result.counters)
    for index, line in enumerate(counters):
        # a gain over equally many steps can be written down in the baseline, where there is one
        if line.reasons[:1] == (Notice("fewer"),) and not (result.baseline_file and len(line.reasons) > 1):
            code = "fewer-than-baseline" if result.baseline_file else "fewer"
            counters[index] = replace(line, reasons=(Notice(code),))
    result = replace(result, counters=tuple(counters), state=worst(states))
    return replace(result, sentence=verdict_sentence(result))


# ---------------------------------------------------------------- causes


def worse_causes(comparison: Comparison, hunks: Sequence[Hunk] | None = None) -> Iterator[WorseCause]:
    """The findings about the candidate that the base does not have, or that cost less in it.

    A finding at a line far from every change is not new: it costs more than in the base, where it was too small to be
    named.

    :param hunks: all that changed in the files of findings; None: not known.
    """
    from profiler.analyse.model.finding import FindingState, compare_findings
    from profiler.report.finding_text import change_sentence, finding_text

    base, candidate = ((side.detail or side.runs[0]).judged for side in comparison.sides)
    for change in compare_findings(base, candidate) if base and candidate else ():
        if change.state in (FindingState.NEW, FindingState.GREW):
            finding = change.finding
            site = finding.sites[0] if finding.sites else None
            is_old = site is not None and hunks is not None and not _is_changed(site.file, site.line, hunks)
            if is_old and change.state is FindingState.NEW:
                change = replace(change, state=FindingState.GREW)
            yield WorseCause(
                finding.rule.name,
                site.file if site else "",
                site.line if site else 0,
                change.before.seconds if change.before else (None if is_old else 0.0),
                finding.seconds,
                change_sentence(change),
                finding_text(finding).fix,
                source=site.source if site else "",
            )


def changed_first(causes: Iterable[WorseCause], hunks: Sequence[Hunk]) -> tuple[WorseCause, ...]:
    """The causes, those at lines that the diff changed first."""
    return tuple(sorted(causes, key=lambda cause: not _is_changed(cause.file, cause.line, hunks)))


def _is_changed(file: str, line: int, hunks: Sequence[Hunk]) -> bool:
    """Whether a hunk has the line, as one that changed or as one beside it: a statement may take several lines."""
    name = PurePath(file).name
    return any(PurePath(hunk.file).name == name and line in dict(hunk.numbered()) for hunk in hunks)


def counted_causes(lines: Sequence[CounterLine]) -> list[WorseCause]:
    """The causes that a rise of a counter at a line shows, of the counters that fail the check.

    Only the number of calls is known, and not what they cost. A cause that the base has at the same line comes after
    the others. Memory that stays in use is a cause of its own where there is no other: another one, such as a mask
    that selects more in the last step, changes it too.
    """
    lines = [line for line in lines if line.scope == "step"]
    copied = copied_bytes(change for line in lines for change in line.changes)
    found: list[tuple[bool, bool, WorseCause]] = []
    for line in lines:
        for change in line.changes if line.state == FAIL else ():
            rule = rule_of_line(change, copied) if change.after > change.before else None
            if rule is not None:
                is_old = change.before > 0 and rule_of_line(replace(change, after=change.before), copied) is rule
                sentence, counter = counted_cause(rule, line, change), line.counter
                cause = WorseCause(rule.name, change.file, change.line, None, None, sentence, rule.fix, counter=counter)
                found.append((counter == GROWTH, is_old, cause))
    found.sort(key=lambda each: each[:2])
    return [cause for is_growth, _, cause in found if is_growth == found[0][0]]


# ---------------------------------------------------------------- the rule for what a line counts


def copied_bytes(changes: Iterable[Change]) -> Copied:
    """The bytes that lines copy to the device."""
    return {
        (change.file, change.line, change.function): change.after for change in changes if change.counter == "h2d_bytes"
    }


def rule_of_line(change: Change, copied: Copied) -> RuleText | None:
    """The rule for what a line counts; None: what it is for is not known."""
    rule = _RULES.get(change.counter, "")
    return rules().get(rule if isinstance(rule, str) else rule(change, copied))


def _rule_of_wait(change: Change, _: Copied) -> str:
    from profiler.diagnose.rules.reads import rule_of_waits

    return rule_of_waits(change.after, change.operation)


def _rule_of_copy(change: Change, copied: Copied) -> str:
    from profiler.diagnose.rules.device import MANY, TINY, filled_on_device, made_on_host

    if filled_on_device(change.source) is not None:
        return made_on_host.name
    size = copied.get((change.file, change.line, change.function))
    is_tiny = change.after >= MANY and size is not None and size / change.after < TINY
    return "tiny-copies" if is_tiny else ""


_RULES: Final[Mapping[str, str | Callable[[Change, Copied], str]]] = {
    "syncs": _rule_of_wait,
    "h2d": _rule_of_copy,
    "recompilations": "recompilation",
    "zero_fills": "zero-filled-gradients",
    "graph_breaks": "graph-breaks",
    GROWTH: "memory-creep",
}
"""Counter -> the rule of which its rise at a line is the sign."""


@cache
def rules() -> Mapping[str, RuleText]:
    """All rules by name."""
    from profiler.core.plugins import discover

    return {rule.name: rule for rule in discover("profiler.diagnose.rules")}
