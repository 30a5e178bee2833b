"""Numbers, counters, sites, sides and lines of a check as short texts.

A slow-down is ln(time of the candidate / time of the base), shown as 100 (exp(x) - 1) percent of a step's time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePath
from typing import Final

from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    POWER,
    Change,
    ChangeKind,
    CounterLine,
    GateResult,
    SideInfo,
    SlowerLine,
    Throughput,
    TimeLine,
)
from profiler.core import units
from profiler.core.facts import CHANGED, UNKNOWN_CHANGES, repository_folder
from profiler.core.metrics import counter_period, counter_unit, find_counter
from profiler.core.terminal import plain
from profiler.report.text import capitalized, plural

WORKERS: Final = "in loader workers"
DETECTED: Final = f"{100 * POWER:g}%"
"""Probability of a FAIL at the smallest detectable slow-down."""
STAGES: Final = {
    "before": "before the backward pass",
    "in": "in the backward pass",
    "after": "after the backward pass",
    "thread": "in another thread",
}
"""When in a step a wait is."""
_ROUNDING: Final = 1e-9
"""Relative difference of means of equal counts, by rounding of the division."""
_MAX_SLOWDOWN: Final = 20.0
"""The largest slow-down that is written as a number."""
_MAX_DECIMALS: Final = 6
_WHOLE_SECONDS_FROM: Final = 10.0
_COMMIT_DIGITS: Final = 7
_LONG_COMMIT_DIGITS: Final = 10
NOT_REPORTED: Final = "this machine does not report it"
NOT_COMPARED: Final = "no round could be compared"
NO_BOUND: Final = "too few rounds for a bound"
_MAX_COLUMN_NAME: Final = 24
"""Characters of a revision's name for which the head of a column has room."""


# ---------------------------------------------------------------- counters


def counter_noun(counter: str, amount: float = 2.0) -> str:
    """Return what is counted, in the singular or plural for `amount`."""
    entry = find_counter(counter)
    return entry.noun(amount) if entry else plain(counter).removesuffix("_bytes").removesuffix("_ns").replace("_", " ")


def counter_title(line: CounterLine) -> str:
    """Return 'Syncs'; 'H2D copies, in loader workers'."""
    entry = find_counter(line.counter)
    name = entry.plural if entry else plain(line.counter).replace("_", " ")
    return f"{capitalized(name)}{f', {WORKERS}' if line.scope == 'worker' else ''}"


def lowered(title: str) -> str:
    """Return a title within a sentence: 'syncs', but 'H2D copies'."""
    return title[:1].lower() + title[1:] if title[1:2].islower() or title[1:2] == " " else title


def counter_name(line: CounterLine) -> str:
    """Return the title among counters per step, such as in a table: 'Syncs', but 'Syncs per evaluation'."""
    return counter_title(line) if counter_period(line.counter) == "per step" else counter_and_period(line)


def counter_and_period(line: CounterLine) -> str:
    """Return 'Syncs per step'"""
    return f"{counter_title(line)} {counter_period(line.counter)}"


def amount(value: float, counter: str) -> str:
    return units.value(value, counter_unit(counter)) if math.isfinite(value) else units.NOT_MEASURED


def amounts(values: Sequence[float], counter: str) -> list[str]:
    """Return amounts with so many digits that different ones look different: 12,004.2 and 12,004.4."""
    texts = [amount(value, counter) for value in values]
    unit = "B" if counter_unit(counter) == "bytes" else counter_unit(counter)
    for decimals in range(_MAX_DECIMALS):
        finite = [pair for pair in zip(values, texts, strict=True) if math.isfinite(pair[0])]
        if all(is_same(a, b) == (text_a == text_b) for (a, text_a), (b, text_b) in combinations(finite, 2)):
            break
        texts = [
            f"{value:,.{decimals}f} {unit}".rstrip() if math.isfinite(value) else units.NOT_MEASURED for value in values
        ]
    return texts


def is_over_budget_only(line: CounterLine) -> bool:
    """Return whether a counter fails although it has not risen above what its base and limits allow."""
    return line.state == FAIL and line.exceeded is not None and not line.is_risen


def over_budget(counter: str, value: float, budget: float) -> str:
    """Return 'peak of memory in use: 2.1 GB per step, above its budget of 2 GB'."""
    entry = find_counter(counter)
    texts = amounts((value, budget), counter)
    name = entry.plural if entry else counter_noun(counter)
    return f"{name}: {texts[0]} {counter_period(counter)}, above its budget of {texts[1]}"


def is_same(a: float, b: float) -> bool:
    """Return whether two amounts are equal up to rounding."""
    return math.isclose(a, b, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def counter_amounts(line: CounterLine) -> tuple[str, str, str]:
    """Return baseline, candidate and what is allowed: '12', '13 to 14', 'any'."""
    limit = () if line.allowed is None else (line.allowed,)
    texts = iter(amounts((*(line.before or ()), *(line.after or ()), *limit), line.counter))
    before, after = (
        " to ".join(dict.fromkeys(next(texts) for _ in ends or ())) or "none" for ends in (line.before, line.after)
    )
    return before, after, next(texts, "any")


def is_changed(line: CounterLine) -> bool:
    """Return whether the candidate counted something else than the baseline."""
    if line.before is None or line.after is None:
        return line.before is not line.after
    return not all(is_same(before, after) for before, after in zip(line.before, line.after, strict=True))


def is_fewer(line: CounterLine) -> bool:
    """Return whether the candidate counts less than the baseline."""
    if line.before is None:
        return False
    if line.after is None:
        return line.before[1] > 0
    return line.after[1] < line.before[1] and not is_same(line.after[1], line.before[1])


# ---------------------------------------------------------------- lines of code


def location(change: Change, file: str = "") -> str:
    """Return file:line, as far as they are known; of a line that is gone, where it was.

    :param file: the name to show; by default that of the change.
    """
    name = file or plain(change.file)
    return f"{name}:{change.line}" if name and change.line > 0 else name or "an unknown line"


def function_and_operation(change: Change) -> str:
    """Return ' (train_step, item)'; empty if neither is known."""
    names = [plain(name) for name in (change.function, change.operation) if name and name != "<module>"]
    return f" ({', '.join(names)})" if names else ""


def rise(change: Change) -> str:
    """Return '+1 sync per step'."""
    difference = change.after - change.before
    if not math.isfinite(difference):
        return f"{units.NOT_MEASURED}: {counter_noun(change.counter)} {counter_period(change.counter)}"
    size = amount(abs(difference), change.counter) + (" of" if counter_unit(change.counter) else "")
    what = f"{counter_noun(change.counter, difference)} {counter_period(change.counter)}"
    return f"{'-' if difference < 0 else '+'}{size} {what}"


def site(change: Change, note: str = "") -> str:
    """Return '+1 sync per step at train.py:104 (train_step, item): total += loss.item()', with a note before the
    code."""
    source = f": {change.source}" if change.source else ""
    gone = " of the base" if change.kind is ChangeKind.VANISHED else ""
    gone += ", which is gone" if gone and not change.stage else ""
    stage = f", {STAGES[change.stage]}" if change.stage in STAGES else ""
    return f"{rise(change)} at {location(change)}{gone}{function_and_operation(change)}{stage}{note}{source}"


def slower_times(line: SlowerLine) -> tuple[str, str]:
    """Return the time of a line in the base and in the candidate; 0 for a line that took none."""
    times = (
        units.seconds(value) if math.isfinite(value) else units.NOT_MEASURED for value in (line.before, line.after)
    )
    before, after = times
    return before if line.before else "0", after


# ---------------------------------------------------------------- slow-downs, times


def percentage(slowdown: float | None) -> float | None:
    """Return how much longer a step takes, in percent; None if that is not a number."""
    if slowdown is None or not math.isfinite(slowdown) or slowdown > _MAX_SLOWDOWN:
        return None
    return 100 * math.expm1(slowdown)


def percent(slowdown: float | None) -> str:
    """Return '+5.2%'."""
    value = percentage(slowdown)
    if value is None:
        return units.NOT_MEASURED
    text = f"{value:+,.1f}%"
    return "0.0%" if text in {"+0.0%", "-0.0%"} else text


def size(slowdown: float) -> str:
    """Return '5.2%', whether slower or faster."""
    return f"{abs(100 * math.expm1(slowdown)):.1f}%"


def slower_or_faster(slowdown: float | None) -> str:
    """Return '+5.2%'; a gain is '3.1% faster': a step takes so much less time."""
    text = percent(slowdown)
    return f"{text[1:]} faster" if text.startswith("-") else text


def interval(low: float | None, high: float | None) -> str:
    """Return '+4.1% to +6.3%', 'at least +4.1%', 'at most +6.3%', or empty."""
    ends = [percent(end) if percentage(end) is not None else "" for end in (low, high)]
    if all(ends):
        return " to ".join(ends)
    if ends[0]:
        return f"at least {ends[0]}"
    return f"at most {ends[1]}" if ends[1] else ""


def share(value: float) -> str:
    """Return a limit as its user wrote it: 5%, 2.5%."""
    return f"{100 * value:.4g}%" if math.isfinite(value) else units.NOT_MEASURED


def duration(seconds: float) -> str:
    """Write a time as 1.23 s, 47 s or 2 min 05 s."""
    if not math.isfinite(seconds):
        return units.NOT_MEASURED
    return f"{seconds:.0f} s" if _WHOLE_SECONDS_FROM <= seconds < 60 else units.seconds(seconds)


# ---------------------------------------------------------------- lines of the verdict on speed


def line_state(throughput: Throughput, line: TimeLine) -> str:
    """Return the state of a line; not FAIL if the rounds that were to confirm it did not."""
    if line.state == FAIL and throughput.state != FAIL:
        return throughput.state if throughput.confirmed is None else INCONCLUSIVE
    return line.state


def ruled_out(line: TimeLine) -> str | None:
    """Return the slow-down above which a PASS rules out every other; None if it has no bound."""
    return None if percentage(line.high) is None else percent(max(line.high or 0.0, 0.0)).lstrip("+")


# ---------------------------------------------------------------- sides


def side_title(side: SideInfo) -> str:
    """Return 'main at 3fa2c1d0e9'; 'working tree (3fa2c1d+changes)' contains its commit already."""
    has_commit = not side.commit or side.commit[:_COMMIT_DIGITS] in side.what
    commit = "" if has_commit else f" at {short_commit(side.commit or '', digits=_LONG_COMMIT_DIGITS)}"
    return f"{plain(side.what) or plain(side.label)}{commit}"


def short_commit(commit: str, what: str = "", *, digits: int = _COMMIT_DIGITS) -> str:
    """Return the commit of a side that is called `what`: '3fa2c1d+changes' if its checkout had changes,
    '3fa2c1d+unknown' if git did not tell."""
    commit = plain(commit)
    end = next((end for end in (CHANGED, UNKNOWN_CHANGES) if commit.endswith(end)), "")
    full = commit.removesuffix(end)
    if full and f"{full[:_COMMIT_DIGITS]}{CHANGED}" in what:
        end = CHANGED
    return f"{full[:digits]}{end}" if full else ""


def reference_title(result: GateResult) -> str:
    """Return what the candidate is compared to: a file, the other side, or both."""
    file = [plain(result.baseline_file)] if result.baseline_file else []
    sides = [side_title(result.base)]
    return " and ".join(file or sides if result.mode == "baseline" else sides + file)


def base_noun(result: GateResult) -> str:
    """Return `baseline` for a file that was checked in, and `base` for another side."""
    return "baseline" if result.mode == "baseline" else "base"


def base_column(result: GateResult) -> str:
    """Return 'Baseline', or 'Base (origin/main)'."""
    name = plain(result.base.what).partition(" (")[0].strip()
    # with a baseline file too, a line refers to either, and its reason tells which
    is_clear = result.mode == "against" and not result.baseline_file and 0 < len(name) <= _MAX_COLUMN_NAME
    return f"{base_noun(result).capitalize()}{f' ({name})' if is_clear else ''}"


def side_speed(side: SideInfo) -> str:
    """Return 'a step of 50.2 ms, 10.2k tokens/s, steps: marked'."""
    parts = []
    if side.step_time is not None and math.isfinite(side.step_time):
        parts.append(f"a step of {duration(side.step_time)}")
    if side.tokens_per_s is not None and math.isfinite(side.tokens_per_s):
        parts.append(units.rate(side.tokens_per_s, "tokens/s"))
    if side.step_source:
        parts.append(f"steps: {plain(side.step_source).removeprefix('steps ').removeprefix('of ')}")
    return ", ".join(parts)


def limit_sentences(result: GateResult) -> Iterator[str]:
    """Yield the limits of the check."""
    limits = result.limits
    if result.throughput is not None:
        most = plural(limits.max_rounds, "round")
        yield f"A slow-down of {share(limits.detect)} is detected; at most {most}."
    for counter, limit in sorted(limits.counters.items()):
        name = "every other counter" if counter == "*" else counter_noun(counter)
        yield (
            f"Allowed above the baseline, {name}: {amount(limit.absolute, counter)} {counter_period(counter)} or "
            f"{share(limit.relative)}, whichever is more."
        )
    for counter, budget in sorted(limits.budgets.items()):
        parts = [
            f"{verb} above {amount(value, counter)}"
            for verb, value in (("warns", budget.warn), ("fails", budget.fail))
            if value is not None
        ]
        yield f"The budget for {counter_noun(counter)} {counter_period(counter)} {' and '.join(parts)}."
    if limits.ignore:
        yield f"Counters that cannot fail the check: {', '.join(map(counter_noun, limits.ignore))}."
    if limits.inconclusive == "pass":
        yield "INCONCLUSIVE and NOT COMPARABLE pass."


# ---------------------------------------------------------------- files of a repository


@dataclass(frozen=True, slots=True)
class RepositoryPaths:
    """Names files as a repository does, which is where annotations and alerts are shown."""

    root: str
    """Absolute; empty: there is none."""
    cwd: str
    """The directory of relative files."""

    @classmethod
    def around(cls, directory: Path) -> RepositoryPaths:
        """Return the nearest folder upward from `directory` that has a .git."""
        here = directory.absolute()
        return cls(str(repository_folder(here) or ""), str(here))

    def relative(self, file: str) -> str | None:
        """Return `file` relative to the root, with forward slashes; None if it lies elsewhere."""
        if not file or not self.root:
            return None
        # only by its text: the file may be deleted, or of a revision
        path = PurePath(os.path.normpath(PurePath(self.cwd) / file))
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None
