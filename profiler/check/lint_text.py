"""Shows the findings of `lint` in the terminal and as data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from profiler.check.model import Change, LintFinding, LintResult
from profiler.check.outputs import format as fmt
from profiler.core.terminal import plain
from profiler.core.units import significant
from profiler.report.text import library_line, plural, shortened

_WIDTH: Final = 80


def lint_lines(result: LintResult) -> Iterator[str]:
    """A finding in three to six lines, as compilers print a warning; a summary last."""
    for finding in result.findings:
        change = finding.change
        yield f"{fmt.location(change)}: {finding.rule}: {finding.title}"
        if change.source:
            yield f"    {plain(change.source)}"
        if finding.library is not None:
            file, line, function, source = finding.library
            yield shortened(f"    {plain(f'{library_line(file, line, function)}  {source}'.rstrip())}", _WIDTH)
        if finding.made_at is not None:
            at = finding.made_at
            yield shortened(f"    made at {plain(f'{at.file}:{at.line}  {at.source}'.rstrip())}", _WIDTH)
        if change.counter:
            yield f"    {_amount(change)}"
        yield f"    {finding.fix}"
        if finding.instead:
            yield f"    instead: {plain(finding.instead)}"
        yield ""
    number = plural(len(result.findings), "finding") if result.findings else "No finding"
    waits = f"{significant(result.syncs)} waits for the device per step"
    yield f"{number} in {plural(result.steps, 'counted step')}; {waits}. Counts are exact, and no time was measured."


def _amount(change: Change) -> str:
    amount = fmt.amount(change.after, change.counter)
    if change.counter == "growth_bytes":
        return f"{amount} more of what this line makes stay in use after each step; another line may keep them"
    operation = f"{plain(change.operation)}: " if change.operation else ""
    return f"{operation}{amount} {fmt.counter_noun(change.counter, change.after)} per step"


def lint_json(result: LintResult) -> str:
    """Strict JSON: `steps`, `syncs_per_step`, and `findings`, each with its rule, line, amount, cure and
    `library`, the line of a library that makes the call, and `made_at`, the line that makes its object."""
    document = {
        "steps": result.steps,
        "syncs_per_step": result.syncs,
        "findings": [_finding(finding) for finding in result.findings],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def _finding(finding: LintFinding) -> dict[str, Any]:
    change = finding.change
    place = {name: getattr(change, name) for name in ("file", "line", "function", "operation", "counter")}
    cure = {"per_step": change.after, "source": change.source, "fix": finding.fix, "instead": finding.instead}
    library = finding.library and finding.library._asdict()
    made_at = finding.made_at and finding.made_at._asdict()
    return {"rule": finding.rule, "title": finding.title, **place, **cure, "library": library, "made_at": made_at}
