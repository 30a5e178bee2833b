"""A gate's result as single cases, one for every counter and every time line: what continuous integration counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler.check.model import FAIL, PASS, STATES, Change, GateResult
from profiler.check.outputs import said, words
from profiler.check.outputs import text as sentences
from profiler.core.terminal import plain

COUNTERS: Final = "counters"
THROUGHPUT: Final = "throughput"
CHECK: Final = "check"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that passes, fails, or could not be told."""

    group: str
    """COUNTERS | THROUGHPUT | CHECK"""
    name: str
    key: str
    """The counter, as the program names it; else the name."""
    state: str
    message: str
    changes: tuple[Change, ...] = ()
    fewer: bool = False
    """It passes with less than the baseline."""


def cases(result: GateResult) -> tuple[Case, ...]:
    """All of them; where a part, or the whole, is worse than everything in it, a case of its own says so."""
    found = [*_counters(result), *_throughput(result)]
    if _worse(result.state, found):
        found.append(Case(CHECK, "verdict", CHECK, result.state, plain(result.sentence)))
    return tuple(found)


def _worse(state: str | None, found: list[Case]) -> bool:
    return state is not None and (not found or _rank(state) > max(_rank(case.state) for case in found))


def _rank(state: str) -> int:
    """An unknown state is the worst."""
    return STATES.index(state) if state in STATES else len(STATES)


def _counters(result: GateResult) -> Iterator[Case]:
    found = []
    for line in result.counters:
        sites = "".join(f"; {words.site(change)}" for change in line.changes)
        fewer = line.state == PASS and words.fewer(line)
        message = said.counter_sentence(line, said.base_word(result)) + sites
        key = f"{line.counter}.worker" if line.scope == "worker" else line.counter
        found.append(Case(COUNTERS, words.title(line), plain(key), line.state, message, line.changes, fewer))
    if _worse(result.counters_state, found):
        state = result.counters_state or FAIL
        found.append(
            Case(
                COUNTERS,
                "all counters",
                "counters",
                state,
                plain(sentences.reasons(result.counters_reasons) or result.sentence),
            )
        )
    yield from found


def _throughput(result: GateResult) -> Iterator[Case]:
    gate = result.throughput
    if gate is None:
        return
    found = []
    for line in gate.lines:
        state = said.line_state(gate, line)
        reason = f"; {plain(sentences.sentence(gate.reason))}" if gate.reason and state != PASS else ""
        found.append(
            Case(
                THROUGHPUT, plain(line.name), plain(line.name), state, said.time_sentence(result, line, state) + reason
            )
        )
    if _worse(gate.state, found):
        found.append(
            Case(
                THROUGHPUT,
                "all rounds",
                "throughput",
                gate.state,
                plain(sentences.sentence(gate.reason) if gate.reason else result.sentence),
            )
        )
    yield from found
