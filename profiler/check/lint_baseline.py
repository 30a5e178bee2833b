"""Keeps the findings of `lint` that a project has accepted in a file, so that only new ones fail."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from profiler.check.model import LintFinding, LintResult
from profiler.core.atomic_file import locked
from profiler.core.checked import read_bytes
from profiler.core.errors import ProfilerError

DESCRIPTION: Final = "Findings of `python -m profiler lint` that are accepted: change them with --update only."
_FIELDS: Final = ("rule", "file", "function", "source")
"""They name a finding. The number of its line is not one of them, because lines move."""
Key = tuple[str, ...]


def without_known(result: LintResult, path: Path) -> LintResult:
    """The result with the findings only that the file does not have; of equal ones, those beyond its number.

    :raises ProfilerError: there is no such file, or it is damaged.
    """
    known = Counter(_read(path))
    new = []
    for finding in result.findings:
        known[_key(finding)] -= 1
        if known[_key(finding)] < 0:
            new.append(finding)
    return replace(result, findings=tuple(new))


def write(result: LintResult, path: Path) -> None:
    """Write the findings of a result to a file, and make its folder.

    :raises ProfilerError: it cannot be written.
    """
    rows = [dict(zip(_FIELDS, key, strict=True)) for key in sorted(map(_key, result.findings))]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfilerError(f"cannot make the folder of {path}: {error.strerror}") from error
    with locked(path, "baseline") as file:
        file.replace(json.dumps({"what": DESCRIPTION, "findings": rows}, indent=2, ensure_ascii=False) + "\n")


def _key(finding: LintFinding) -> Key:
    change = finding.change
    return finding.rule, change.file, change.function, change.source


def _read(path: Path) -> Iterable[Key]:
    try:
        rows: Any = json.loads(read_bytes(path).decode("utf-8"))["findings"]
        return [tuple(str(row[name]) for name in _FIELDS) for row in rows]
    except FileNotFoundError:
        raise ProfilerError(f"there is no baseline {path}: write it with lint --update") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProfilerError(f"{path} is no baseline of lint, or is damaged: write it with lint --update") from error
