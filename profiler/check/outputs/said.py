"""Sentences of a gate's result that more than one output says: a time line's limits, sides, how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    MEASURE,
    PASS,
    CounterLine,
    GateResult,
    SideInfo,
    Throughput,
    TimeLine,
)
from profiler.check.outputs import text as sentences
from profiler.check.outputs import words
from profiler.core import units
from profiler.core.terminal import plain

SHORT_COMMIT = 10
CHANGES = "+changes"
"""Behind the commit of a checkout that has some."""
FIRST_LOOK: Final = 5
"""Rounds: profiler.check.sequential, LOOKS."""
POWER: Final = "80%"
"""Of what would have been a FAIL: profiler.check.sequential, POWER."""
_NAMED = 7
"""Digits by which a side's name tells its commit already."""
_SHORT_NAME = 24
"""Characters of a revision that the head of a column has room for."""


def headline(result: GateResult) -> str:
    """The verdict's sentence with a capital letter, unless it begins with a name."""
    first = plain(result.sentence)
    return first[:1].upper() + first[1:] if first.partition(" ")[0].isalpha() else first


def line_state(throughput: Throughput, line: TimeLine) -> str:
    """A line's own state; no FAIL where the rounds that were to confirm it did not."""
    if line.state == FAIL and throughput.state != FAIL:
        return throughput.state if throughput.confirmed is None else INCONCLUSIVE
    return line.state


def seen(line: TimeLine, state: str) -> tuple[str, ...]:
    """What this run rules out, and how much it would have seen; nothing where it has seen as much.

    :param state: of the line in its gate (`line_state`).
    """
    if state == FAIL or (state == INCONCLUSIVE and _enough(line)):
        return ()
    limit = ruled_out(line) if state == PASS else None
    first = () if limit is None else (f"slower by more than {limit} is ruled out",)
    if words.in_percent(line.smallest) is None:
        return (*first, "from which slow-down on it would have been a FAIL: not measured")
    start = words.percent(line.smallest)
    if state == INCONCLUSIVE and line.rounds < FIRST_LOOK:
        return (*first, f"so few rounds would show a FAIL only from {start} on ({POWER})")
    return (*first, f"from {start} on it would have been a FAIL ({POWER})")


def _enough(line: TimeLine) -> bool:
    """Whether so much was found that something else than the amount makes it INCONCLUSIVE: nothing confirmed it."""
    return line.slowdown is not None and line.smallest is not None and line.slowdown >= line.smallest


def ruled_out(line: TimeLine) -> str | None:
    """The slow-down above which a PASS rules out every other; None: it has no bound."""
    return None if words.in_percent(line.high) is None else words.percent(max(line.high or 0.0, 0.0)).lstrip("+")


def more(result: GateResult, line: TimeLine) -> str:
    """How much longer would settle it; empty where that is no question."""
    if line.state == INCONCLUSIVE and line.rounds < FIRST_LOOK:
        return f"a verdict needs {FIRST_LOOK} rounds at least"
    if line.more_rounds is None and line.more_seconds is None:
        return ""
    time = f"about {words.duration(line.more_seconds)}" if line.more_seconds is not None else ""
    if line.more_rounds is None:
        return f"{time} more would probably settle it"
    more = f"{line.more_rounds:,} more round{'s' * (line.more_rounds != 1)}"
    rounds = result.throughput.rounds if result.throughput else ()
    most = result.limits.max_rounds
    beyond = sum(one.kind == MEASURE for one in rounds) + line.more_rounds > most
    over = f": more than --max-rounds {most:,} allows" if beyond else ""
    return f"{more}{f' ({time})' if time else ''} would probably settle it{over}"


def estimate(line: TimeLine) -> str:
    """'+5.2% (+4.1% to +6.3%)'."""
    ends = words.interval(line.low, line.high)
    return words.slowdown(line.slowdown) + (f" ({ends})" if ends else "")


def counter_sentence(line: CounterLine, base: str) -> str:
    """'Syncs per step: 13, baseline 12, at most 12 allowed; fewer: refresh the baseline'.

    :param base: what the other side is called (`base_word`).
    """
    before, after, allowed = words.row(line)
    limit = "gates nothing" if line.allowed is None else f"at most {allowed} allowed"
    reason = f"; {plain(sentences.reasons(line.reasons))}" if line.reasons else ""
    return f"{words.title(line)} per step: {after}, {base} {before}, {limit}{reason}"


def time_sentence(result: GateResult, line: TimeLine, state: str) -> str:
    """A line of the throughput gate in one sentence.

    :param state: of the line in its gate (`line_state`).
    """
    found = f"{plain(line.name)}: {estimate(line)} over {words.rounds(line.rounds)}"
    return "; ".join(one for one in (found, *seen(line, state), more(result, line)) if one)


def side(info: SideInfo) -> str:
    """'main at 3fa2c1d0e9'; 'working tree (3fa2c1d+changes)' tells its commit already."""
    at = (
        f" at {commit(info.commit, digits=SHORT_COMMIT)}"
        if info.commit and info.commit[:_NAMED] not in info.what
        else ""
    )
    return f"{plain(info.what) or plain(info.label)}{at}"


def commit(of: str, what: str = "", *, digits: int = _NAMED) -> str:
    """The commit of a side that is called `what`, short: '3fa2c1d+changes' where its checkout had some."""
    known = plain(of).removesuffix(CHANGES)
    short = known[:digits]
    changed = bool(short) and (of.endswith(CHANGES) or f"{known[:_NAMED]}{CHANGES}" in what)
    return f"{short}{CHANGES}" if changed else short


def held_against(result: GateResult) -> str:
    """The file, the other side, or both."""
    file = [plain(result.baseline_file)] if result.baseline_file else []
    return " and ".join(file or [side(result.base)] if result.mode == "baseline" else [side(result.base), *file])


def if_meant(result: GateResult) -> str:
    """What to do about a counter that is meant to rise; empty where there is no file to write it in, or none rose."""
    known = result.mode == "baseline" and any(line.state == FAIL for line in result.counters)
    return "if this is meant: --update --reason TEXT" if known else ""


def base_word(result: GateResult) -> str:
    """What the candidate is held against: a file that was checked in, or another side."""
    return "baseline" if result.mode == "baseline" else "base"


def base_title(result: GateResult) -> str:
    """The same as the head of a column: 'Baseline', or 'Base (origin/main)'."""
    name = plain(result.base.what).partition(" (")[0].strip()
    # with a file beside the revision a line is of one or of the other, and its reason says of which
    known = result.mode == "against" and not result.baseline_file and 0 < len(name) <= _SHORT_NAME
    return f"{base_word(result).capitalize()}{f' ({name})' if known else ''}"


def side_times(side: SideInfo) -> str:
    """What is known of its speed; informational."""
    time, rate = side.step_time, side.tokens_per_s
    said = [f"a step of {words.duration(time)}"] if time is not None and math.isfinite(time) else []
    said += [units.rate(rate, "tokens/s")] if rate is not None and math.isfinite(rate) else []
    said += [f"steps: {plain(side.step_source).removeprefix('steps ').removeprefix('of ')}"] if side.step_source else []
    return ", ".join(said)


def control(throughput: Throughput) -> str:
    """What rounds that confirm said of the base against itself; empty without them, and where the reason says it."""
    if throughput.control is None or throughput.reason:
        return ""
    return f"The base against a second copy of itself: {words.slowdown(throughput.control)}."


def limits(result: GateResult) -> Iterator[str]:
    """What was asked for."""
    asked = result.limits
    if result.throughput is not None:
        caught = f"A slow-down of {words.share(asked.detect)} is caught (--detect)"
        yield f"{caught}; at most {words.rounds(asked.max_rounds)}."
    for counter, limit in sorted(asked.counters.items()):
        name = "every other counter" if counter == "*" else words.noun(counter)
        yield (
            f"Allowed above the baseline, {name}: {words.amount(limit.absolute, counter)} per step or "
            f"{words.share(limit.relative)}, whichever is more."
        )
    if asked.ignore:
        yield f"Counters that gate nothing: {', '.join(map(words.noun, asked.ignore))}."
    yield (
        "INCONCLUSIVE passes (--inconclusive=pass)."
        if asked.inconclusive == "pass"
        else "INCONCLUSIVE fails the job (--inconclusive=fail)."
    )
