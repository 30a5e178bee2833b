"""Names the causes of a FAIL: findings that appeared or grew, and rules for what a line counts more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from profiler.check.counters.operators import GROWTH
from profiler.check.model import FAIL, Change, CounterLine, Hunk, WorseCause
from profiler.check.outputs.text import counted_cause

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Comparison
    from profiler.analyse.model.finding import RuleText

Copied = Mapping[tuple[str, int, str], float]
"""File, line and function -> bytes that the line copies to the device per step."""


def worse_causes(comparison: Comparison, hunks: Sequence[Hunk] | None = None) -> Iterator[WorseCause]:
    """Yield the findings about the candidate that the base does not have, or that cost less in it.

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
    """Return the causes, those at lines that the diff changed first."""
    return tuple(sorted(causes, key=lambda cause: not _is_changed(cause.file, cause.line, hunks)))


def _is_changed(file: str, line: int, hunks: Sequence[Hunk]) -> bool:
    """Return whether a hunk has the line, as one that changed or as one beside it: a statement may take several
    lines."""
    name = PurePath(file).name
    return any(PurePath(hunk.file).name == name and line in dict(hunk.numbered()) for hunk in hunks)


def counted_causes(lines: Sequence[CounterLine]) -> list[WorseCause]:
    """Return the causes that a rise of a counter at a line shows, of the counters that fail the check.

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
    """Return the bytes that lines copy to the device."""
    return {
        (change.file, change.line, change.function): change.after for change in changes if change.counter == "h2d_bytes"
    }


_RULES: Final = {
    "recompilations": "recompilation",
    "zero_fills": "zero-filled-gradients",
    "graph_breaks": "graph-breaks",
    GROWTH: "memory-creep",
}
"""Counter -> the rule of which its rise at a line is the sign. Waits and copies have several."""


def rule_of_line(change: Change, copied: Copied) -> RuleText | None:
    """Return the rule for what a line counts; None: what it is for is not known."""
    from profiler.diagnose.rules.device import MANY, TINY, filled_on_device, made_on_host
    from profiler.diagnose.rules.reads import rule_of_waits

    name = _RULES.get(change.counter, "")
    if change.counter == "syncs":
        name = rule_of_waits(change.after, change.operation)
    elif change.counter == "h2d" and filled_on_device(change.source) is not None:
        name = made_on_host.name
    elif change.counter == "h2d" and change.after >= MANY:
        size = copied.get((change.file, change.line, change.function))
        name = "tiny-copies" if size is not None and size / change.after < TINY else ""
    return rules().get(name)


@cache
def rules() -> Mapping[str, RuleText]:
    """Return all rules by name."""
    from profiler.core.plugins import discover

    return {rule.name: rule for rule in discover("profiler.diagnose.rules")}
