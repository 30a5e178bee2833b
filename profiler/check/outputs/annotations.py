"""The result of a check as GitHub workflow commands, which become annotations at the lines of a pull request.

Syntax and escaping: GitHub's documentation of workflow commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.outputs.findings import Case, RepositoryPaths, cases
from profiler.core.terminal import plain

ERROR: Final = "error"
WARNING: Final = "warning"
NOTICE: Final = "notice"
MAX_ANNOTATIONS: Final = 10
"""Of a kind and step: GitHub shows no more. Source: GitHub's documentation of limits of annotations."""
_KINDS: Final = {FAIL: ERROR, INCONCLUSIVE: WARNING}


def workflow_commands(result: GateResult, repository: RepositoryPaths) -> tuple[str, ...]:
    """Lines to print: errors at failing lines of code, warnings about the check, notices of counters that fell."""
    commands: dict[str, list[str]] = {ERROR: [], WARNING: [], NOTICE: []}
    for case in cases(result):
        kind = _KINDS.get(case.state, NOTICE if case.fewer else "")
        if kind:
            commands[kind] += _case_commands(case, kind, repository, fmt.base_noun(result))
    commands[WARNING] += [command(WARNING, line, title="A warning about this check") for line in text.warnings(result)]
    for kind, lines in commands.items():
        if len(lines) > MAX_ANNOTATIONS:
            more = len(lines) - MAX_ANNOTATIONS + 1
            message = f"{more:,} more are in the job's summary and in check.md."
            lines[MAX_ANNOTATIONS - 1 :] = [command(kind, message, title=f"{more:,} more")]
    return tuple(line for lines in commands.values() for line in lines)


def _case_commands(case: Case, kind: str, repository: RepositoryPaths, base: str) -> Iterator[str]:
    """One command for each line that changed in the direction that matters; if there is none, one for the case."""
    fewer = "fewer, refresh the baseline" if base == "baseline" else "fewer"
    title = f"{case.name}: {case.state if case.state != PASS else fewer}"
    changes = [change for change in case.changes if (change.after > change.before) == (kind != NOTICE)]
    for change in changes:
        file = repository.relative(change.file)
        if file is None:
            yield command(kind, fmt.site(change), title=title)
        else:
            message = fmt.rise(change) + fmt.function_and_operation(change)
            yield command(kind, message, title=title, file=file, line=change.line)
    if not changes:
        yield command(kind, case.message, title=title)


def command(kind: str, message: str, *, title: str, file: str | None = None, line: int = 0) -> str:
    """One workflow command."""
    properties = [f"file={_escape_property(file)}"] if file else []
    properties += [f"line={line}"] if line > 0 else []
    properties.append(f"title={_escape_property(title)}")
    return f"::{kind} {','.join(properties)}::{_escape(message)}"


def _escape(value: str) -> str:
    # "%" first, because the other escapes contain it
    return plain(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(value: str) -> str:
    return _escape(value).replace(":", "%3A").replace(",", "%2C")
