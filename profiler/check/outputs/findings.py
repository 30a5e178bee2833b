"""Lines at which a counter changed, as findings with a fingerprint that stays when the line moves."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Final

from profiler.check.model import FAIL, PASS, Change, CounterLine, GateResult
from profiler.check.outputs import said, words
from profiler.check.outputs.places import Places
from profiler.core.terminal import plain

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
_LETTERS: Final = 32
"""Of a SHA-256: 128 bits."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line, one counter."""

    line: CounterLine
    change: Change
    level: str
    """ERROR | WARNING | NOTE"""
    fingerprint: str
    """Hexadecimal, of the counter, the file, the function and the operation; the line's number is not in it."""
    base: str
    """What it is held against: baseline | base"""

    @property
    def rule(self) -> str:
        """The counter, as a rule's name: one word."""
        return rule(self.line)

    @property
    def message(self) -> str:
        """In a sentence, with the whole counter's amounts."""
        before, after, _ = words.row(self.line)
        whole = f"{words.title(self.line)} per step: {self.base} {before}, candidate {after}"
        return f"{words.rise(self.change)}{words.inside(self.change)}. {whole}."


def rule(line: CounterLine) -> str:
    """'counter/syncs', 'counter/h2d/worker'."""
    name = "".join(char if char.isalnum() or char in "-._" else "-" for char in plain(line.counter))
    return f"counter/{name}" + ("/worker" if line.scope == "worker" else "")


def findings(result: GateResult, where: Places) -> tuple[Finding, ...]:
    """All lines that changed, in the order of counters and changes."""
    found, seen = [], Counter[str]()
    for line in result.counters:
        for change in line.changes:
            print_ = fingerprint(line, change, where)
            seen[print_] += 1
            # two of the same function and operation: each its own, in their order
            own = print_ if seen[print_] == 1 else hashed(print_, str(seen[print_]))
            found.append(Finding(line, change, _level(line, change), own, said.base_word(result)))
    return tuple(found)


def _level(line: CounterLine, change: Change) -> str:
    if line.state == PASS or change.after <= change.before:
        return NOTE
    return ERROR if line.state == FAIL else WARNING


def fingerprint(line: CounterLine, change: Change, where: Places) -> str:
    """Of what stays when lines above it are added."""
    return hashed(rule(line), where.shown(change.file), change.function, change.operation)


def hashed(*texts: str) -> str:
    """Hexadecimal of texts, told apart by a zero byte."""
    joined = "\0".join(texts).encode("utf-8", "replace")
    return hashlib.sha256(joined).hexdigest()[:_LETTERS]
