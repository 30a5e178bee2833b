"""What continuous integration counts of a check: cases that pass or fail, and findings at lines of code."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from profiler.check.model import FAIL, PASS, STATES, Change, CounterLine, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.core.terminal import plain

COUNTERS: Final = "counters"
THROUGHPUT: Final = "throughput"
CHECK: Final = "check"
ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
_FINGERPRINT_DIGITS: Final = 32
"""Of a SHA-256: 128 bits."""


# ---------------------------------------------------------------- cases


@dataclass(frozen=True, slots=True)
class Case:
    """A part of the check with a state of its own."""

    group: str
    """COUNTERS | THROUGHPUT | CHECK"""
    name: str
    state: str
    message: str
    changes: tuple[Change, ...] = ()
    fewer: bool = False
    """It passes with less than the baseline."""


def cases(result: GateResult) -> tuple[Case, ...]:
    """A case for every counter and time line, and one for each part that is worse than all in it."""
    counters = [
        Case(
            COUNTERS,
            fmt.counter_title(line),
            line.state,
            "; ".join(
                [
                    fmt.counter_sentence(line, fmt.base_noun(result), text.reasons(line.reasons)),
                    *map(fmt.site, line.changes),
                ]
            ),
            line.changes,
            fewer=line.state == PASS and fmt.is_fewer(line),
        )
        for line in result.counters
    ]
    if _is_worse(result.counters_state, counters):
        reason = plain(text.reasons(result.counters_reasons) or result.sentence)
        counters.append(Case(COUNTERS, "all counters", result.counters_state or FAIL, reason))
    times = []
    if speed := result.throughput:
        reason = plain(text.sentence(speed.reason)) if speed.reason else ""
        for line in speed.lines:
            state = fmt.line_state(speed, line)
            tail = f"; {reason}" if reason and state != PASS else ""
            times.append(Case(THROUGHPUT, plain(line.name), state, fmt.time_sentence(result, line, state) + tail))
        if _is_worse(speed.state, times):
            times.append(Case(THROUGHPUT, "all rounds", speed.state, reason or plain(result.sentence)))
    parts = [*counters, *times]
    if _is_worse(result.state, parts):
        parts.append(Case(CHECK, "verdict", result.state, plain(result.sentence)))
    return tuple(parts)


def _is_worse(state: str | None, parts: Sequence[Case]) -> bool:
    """Whether `state` is worse than that of every part; an unknown state is the worst."""

    def rank(state: str) -> int:
        return STATES.index(state) if state in STATES else len(STATES)

    return state is not None and (not parts or rank(state) > max(rank(part.state) for part in parts))


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class RepositoryPaths:
    """Names files as a repository does, which is where annotations and alerts are shown."""

    root: str
    """Absolute; empty: there is none."""
    cwd: str
    """What relative files are relative to."""

    @classmethod
    def around(cls, directory: Path) -> RepositoryPaths:
        """The nearest folder upward from `directory` that has a .git."""
        here = directory.absolute()
        root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
        return cls(str(root) if root else "", str(here))

    def relative(self, file: str) -> str | None:
        """`file` relative to the root, with forward slashes; None if it lies elsewhere."""
        if not file or not self.root:
            return None
        # only by its text: the file may be deleted, or of a revision
        path = PurePath(os.path.normpath(PurePath(self.cwd) / file))
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None

    def label(self, file: str) -> str:
        """The same; a file that lies elsewhere unchanged."""
        return self.relative(file) or file


# ---------------------------------------------------------------- findings


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of code at which a counter changed."""

    line: CounterLine
    change: Change
    level: str
    """ERROR | WARNING | NOTE"""
    fingerprint: str
    """Of the counter, the file, the function and the operation: it stays when the line moves."""
    message: str

    @property
    def rule(self) -> str:
        return rule_name(self.line)


def findings(result: GateResult, repository: RepositoryPaths) -> tuple[Finding, ...]:
    """All lines of code that changed, in the order of counters and changes."""
    result_findings: list[Finding] = []
    counts = Counter[str]()
    for line in result.counters:
        before, after, _ = fmt.counter_amounts(line)
        total = f"{fmt.counter_title(line)} per step: {fmt.base_noun(result)} {before}, candidate {after}"
        for change in line.changes:
            file = repository.label(change.file)
            digest = fingerprint(rule_name(line), file, change.function, change.operation)
            counts[digest] += 1
            if counts[digest] > 1:  # several of the same function and operation are numbered in their order
                digest = fingerprint(digest, str(counts[digest]))
            message = f"{fmt.rise(change)}{fmt.function_and_operation(change)}. {total}."
            result_findings.append(Finding(line, change, _level(line, change), digest, message))
    return tuple(result_findings)


def rule_name(line: CounterLine) -> str:
    """'counter/syncs', 'counter/h2d/worker'."""
    name = "".join(char if char.isalnum() or char in "-._" else "-" for char in plain(line.counter))
    return f"counter/{name}" + ("/worker" if line.scope == "worker" else "")


def fingerprint(*texts: str) -> str:
    """A hexadecimal digest of texts."""
    joined = "\0".join(texts).encode("utf-8", "replace")
    return hashlib.sha256(joined).hexdigest()[:_FINGERPRINT_DIGITS]


def _level(line: CounterLine, change: Change) -> str:
    if line.state == PASS or change.after <= change.before:
        return NOTE
    return ERROR if line.state == FAIL else WARNING
