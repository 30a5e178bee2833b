"""A gate's numbers in words: counters and their amounts, slow-downs in percent, lines of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Final

from profiler.check.model import BASE, CANDIDATE, CONFIRM, CONTROL, MEASURE, Change, CounterLine
from profiler.core import units
from profiler.core.metrics import counter_unit, find_counter
from profiler.core.terminal import plain

SIDES: Final[Mapping[str, str]] = {BASE: "base", CANDIDATE: "candidate", CONTROL: "control"}
ROUNDS: Final[Mapping[str, str]] = {MEASURE: "measure", CONFIRM: "confirm"}
WORKERS: Final = "in loader workers"
_SAME: Final = 1e-9
"""Relative difference of means of the same counts: rounding of a division."""
_MOST: Final = 20.0
"""ln of the largest slow-down that is written as a number."""
_DECIMALS: Final = 6
_WHOLE_FROM: Final = 10.0
"""s, from which a duration is told in whole ones."""


def noun(counter: str, amount: float = 2.0) -> str:
    """What is counted, of so many."""
    known = find_counter(counter)
    return known.noun(amount) if known else plain(counter).removesuffix("_bytes").removesuffix("_ns").replace("_", " ")


def title(line: CounterLine) -> str:
    """A counter's name as a row shows it: 'Syncs', 'H2D copies, in loader workers'."""
    known = find_counter(line.counter)
    name = known.plural if known else plain(line.counter).replace("_", " ")
    name = name[:1].upper() + name[1:]
    return f"{name}, {WORKERS}" if line.scope == "worker" else name


def amount(value: float, counter: str) -> str:
    """An amount with its unit."""
    return units.value(value, counter_unit(counter)) if math.isfinite(value) else units.NOT_MEASURED


def amounts(values: tuple[float, ...], counter: str) -> tuple[str, ...]:
    """Amounts with so many digits that different ones look different: a rise from 12,004.2 to 12,004.4 too."""
    texts = tuple(amount(value, counter) for value in values)
    for decimals in range(_DECIMALS):
        if _told_apart(values, texts):
            break
        texts = tuple(_exact(value, counter_unit(counter), decimals) for value in values)
    return texts


def _told_apart(values: tuple[float, ...], texts: tuple[str, ...]) -> bool:
    known = [pair for pair in zip(values, texts, strict=True) if math.isfinite(pair[0])]
    return all(same(a, b) == (s == t) for (a, s), (b, t) in combinations(known, 2))


def _exact(value: float, unit: str, decimals: int) -> str:
    if not math.isfinite(value):
        return units.NOT_MEASURED
    return f"{value:,.{decimals}f} {'B' if unit == 'bytes' else unit}".rstrip()


def duration(seconds: float) -> str:
    """1.23 s, 47 s, 2 min 05 s."""
    if not math.isfinite(seconds):
        return units.NOT_MEASURED
    return f"{seconds:.0f} s" if _WHOLE_FROM <= seconds < 60 else units.seconds(seconds)


def same(one: float, other: float) -> bool:
    """Whether two amounts differ by rounding at most."""
    return math.isclose(one, other, rel_tol=_SAME, abs_tol=_SAME)


def span(ends: tuple[float, float] | None, texts: tuple[str, ...]) -> str:
    """Least and most of a side's processes, once where it is constant."""
    if ends is None:
        return "none"
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"


def row(line: CounterLine) -> tuple[str, str, str]:
    """Baseline, candidate and what is allowed, with as many digits as tell them apart."""
    known = (*(line.before or ()), *(line.after or ()), *(() if line.allowed is None else (line.allowed,)))
    texts = list(amounts(known, line.counter))
    before = span(line.before, tuple(texts.pop(0) for _ in line.before or ()))
    after = span(line.after, tuple(texts.pop(0) for _ in line.after or ()))
    return before, after, texts[0] if texts else "any"


def changed(line: CounterLine) -> bool:
    """Whether the candidate counted something else than the baseline."""
    if line.before is None or line.after is None:
        return line.before is not line.after
    return not all(same(before, after) for before, after in zip(line.before, line.after, strict=True))


def place(change: Change) -> str:
    """file:line, as far as they are known."""
    return f"{plain(change.file)}:{change.line}" if change.line > 0 else plain(change.file) or "an unknown line"


def inside(change: Change) -> str:
    """The function and the operation there, in brackets; nothing where neither is known."""
    known = [plain(name) for name in (change.function, change.operation) if name and name != "<module>"]
    return f" ({', '.join(known)})" if known else ""


def rise(change: Change) -> str:
    """'+1 sync per step'."""
    difference = change.after - change.before
    if not math.isfinite(difference):
        return f"{units.NOT_MEASURED}: {noun(change.counter)} per step"
    size = amount(abs(difference), change.counter)
    of = " of " if counter_unit(change.counter) else " "
    return f"{'-' if difference < 0 else '+'}{size}{of}{noun(change.counter, difference)} per step"


def site(change: Change) -> str:
    """'+1 sync per step at train.py:104 (train_step, item)'."""
    return f"{rise(change)} at {place(change)}{inside(change)}"


def percent(slowdown: float | None) -> str:
    """A slow-down, given as a logarithm, in percent of a step's time with its sign: '+5.2%'."""
    value = in_percent(slowdown)
    if value is None:
        return units.NOT_MEASURED
    text = f"{value:+,.1f}%"
    return "0.0%" if text in {"+0.0%", "-0.0%"} else text


def in_percent(slowdown: float | None) -> float | None:
    """exp(x) - 1 in percent: how much longer a step takes; None where that is no number."""
    if slowdown is None or not math.isfinite(slowdown) or slowdown > _MOST:
        return None
    return 100 * math.expm1(slowdown)


def slowdown(value: float | None) -> str:
    """'+5.2%'; a gain is '3.1% faster': a step takes so much less time."""
    text = percent(value)
    return f"{text[1:]} faster" if text.startswith("-") else text


def interval(low: float | None, high: float | None) -> str:
    """Both ends; empty where there are none."""
    known = [percent(end) if in_percent(end) is not None else "" for end in (low, high)]
    if all(known):
        return " to ".join(known)
    if known[0]:
        return f"at least {known[0]}"
    return f"at most {known[1]}" if known[1] else ""


def share(value: float) -> str:
    """A limit as its user wrote it: 5%, 2.5%."""
    return f"{100 * value:.4g}%" if math.isfinite(value) else units.NOT_MEASURED


def rounds(count: int) -> str:
    """'1 round', '7 rounds'."""
    return f"{count:,} round{'s' * (count != 1)}"


def fewer(line: CounterLine) -> bool:
    """Whether the candidate counts less than the baseline."""
    if line.before is None:
        return False
    if line.after is None:
        return line.before[1] > 0
    return line.after[1] < line.before[1] and not same(line.after[1], line.before[1])
