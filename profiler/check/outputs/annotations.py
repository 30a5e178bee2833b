"""A gate's result as workflow commands of GitHub, which become notes beside the lines of a pull request.

Syntax and escaping: GitHub's documentation of workflow commands. GitHub shows ten of a kind for a step, so the last
one names how many more there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Change, GateResult
from profiler.check.outputs import said, words
from profiler.check.outputs import text as sentences
from profiler.check.outputs.cases import Case, cases
from profiler.check.outputs.places import Places
from profiler.core.terminal import plain

ERROR: Final = "error"
WARNING: Final = "warning"
NOTICE: Final = "notice"
MOST: Final = 10
"""Of a kind and step. Source: GitHub's documentation of limits of annotations."""
_KINDS: Final = {FAIL: ERROR, INCONCLUSIVE: WARNING}


def workflow_commands(result: GateResult, where: Places) -> tuple[str, ...]:
    """Lines to print, worst first: errors at sites that fail, warnings of doubt, notices of a baseline to refresh."""
    found: dict[str, list[str]] = {ERROR: [], WARNING: [], NOTICE: []}
    for case in cases(result):
        kind = _KINDS.get(case.state, NOTICE if case.fewer else "")
        if kind:
            found[kind] += _of_case(case, kind, where, said.base_word(result))
    found[WARNING] += [
        command(WARNING, warning, title="A warning about this check") for warning in sentences.warnings(result)
    ]
    return tuple(line for kind, lines in found.items() for line in _most(kind, lines))


def _of_case(case: Case, kind: str, where: Places, base: str) -> Iterator[str]:
    """One for each line that changed in the direction that matters; without any, one for the case."""
    fewer = "fewer, refresh the baseline" if base == "baseline" else "fewer"
    title = f"{case.name}: {case.state if case.state != PASS else fewer}"
    sites = [change for change in case.changes if (change.after > change.before) == (kind != NOTICE)]
    for change in sites:
        yield _at(kind, title, change, where)
    if not sites:
        yield command(kind, case.message, title=title)


def _at(kind: str, title: str, change: Change, where: Places) -> str:
    inside = where.inside(change.file)
    message = words.site(change) if inside is None else words.rise(change) + words.inside(change)
    return command(kind, message, title=title, file=inside, line=change.line if inside is not None else 0)


def command(kind: str, message: str, *, title: str, file: str | None = None, line: int = 0) -> str:
    """One workflow command."""
    properties = [f"file={_property(file)}"] if file else []
    properties += [f"line={line}"] if line > 0 else []
    properties.append(f"title={_property(title)}")
    return f"::{kind} {','.join(properties)}::{_data(message)}"


def _data(text: str) -> str:
    # first the sign of the escapes; then what plain leaves none of, and a later one of it might
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _most(kind: str, lines: list[str]) -> list[str]:
    if len(lines) <= MOST:
        return lines
    more = len(lines) - MOST + 1
    rest = command(kind, f"{more:,} more are in the job's summary and in check.md.", title=f"{more:,} more")
    return [*lines[: MOST - 1], rest]
