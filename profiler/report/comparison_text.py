"""Makes sentences of the verdict on a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from profiler.analyse.model import ELSEWHERE, UNATTRIBUTED, Comparison
from profiler.core.units import count, ratio, seconds, share
from profiler.diagnose.model import ComparisonDiagnosis, Growth, PhaseChange, SideDiagnosis, TimeChange, TimeChangeKind
from profiler.report.category_text import CATEGORIES, phase_label
from profiler.report.rank_text import comparison_sentences
from profiler.report.table import factor, ratio_text
from profiler.report.text import at, capitalized, describe, listed, mismatches
from profiler.report.verdict_text import Statement
from profiler.run.model import Site


def with_comparison_verdict(comparison: Comparison, diagnosis: ComparisonDiagnosis) -> Comparison:
    """`comparison` with its verdict as a sentence."""
    diagnosis = replace(diagnosis, sides=tuple(_with_hinted_line(comparison, side) for side in diagnosis.sides))
    statement = comparison_statement(diagnosis)
    extensions = comparison.extensions.values() if comparison.comparable or comparison.forced else ()
    sentences = (statement.text, *(extension.verdict_sentence() for extension in extensions))
    return replace(
        comparison,
        verdict=" ".join(filter(None, sentences)),
        headline=statement.headline,
        why=tuple(_why(diagnosis.sides[-1], is_upgrade=bool(comparison.packages))) if diagnosis.sides else (),
    )


def _with_hinted_line(comparison: Comparison, side: SideDiagnosis) -> SideDiagnosis:
    """The diagnosis of a side; of time of an unknown category with its line, which tables below name."""
    change = side.change
    if change is None or change.kind is not TimeChangeKind.HOST or change.name != UNATTRIBUTED:
        return side
    slower = side.base if change.faster else side.side
    lines = [line for each in comparison.sides if each.label == slower and each.detail for line in each.detail.lines]
    largest = max(lines, key=lambda line: line.unrecorded, default=None)
    if largest is None or not largest.unrecorded:
        return side
    return replace(side, change=replace(change, site=largest.site))


def _why(side: SideDiagnosis, *, is_upgrade: bool) -> Iterator[str]:
    """What changed along with the speed of a side, as sentences of their own.

    :param is_upgrade: packages differ: of a slower side all that grew is named, by package.
    """
    speed = side.speed
    if speed is None or speed.value is None:
        yield _sentence(describe(side.reason))
    elif speed.n > 1 and not speed.different and speed.low is not None and speed.high is not None:
        interval = f"{factor(speed.low)[0]} to {ratio_text(speed.high)}"
        yield f"The ratio lies between {interval} with 95% confidence, which includes 1."
    elif side.moved:
        yield f"Its work is {_moved(side)}."
    elif is_upgrade and side.grown:
        entries = [_growth(each) for each in side.grown[:_MOST_GROWN]]
        yield f"What takes longer in each step: {listed(entries)}."
    elif side.change:
        yield _sentence(change_text(side.change))
    for one in side.counters:
        yield _sentence(f"{_COUNTERS[one.name]} changed from {count(one.before)} to {count(one.after)} a step")


_MOST_GROWN: Final = 3


def _growth(each: Growth) -> str:
    """`code of torch at train.py:12 (1.20 ms → 2.40 ms)`"""
    where = f"code of {each.package}" if each.package else "the line itself"
    return f"{where}{at(each.site) if each.site else ''} ({seconds(each.before)} → {seconds(each.after)})"


def _sentence(text: str) -> str:
    return f"{capitalized(text)}."


def comparison_statement(diagnosis: ComparisonDiagnosis) -> Statement:
    """Says whether a side is faster, slower or not different, with the interval, and what changed along with it."""
    if not diagnosis.comparable and not diagnosis.forced:
        return Statement(f"Not comparable: {mismatches(diagnosis.mismatches)}.")
    statements = [_side_statement(side) for side in diagnosis.sides]
    texts = [statement.text for statement in statements]
    head = f"Not comparable ({mismatches(diagnosis.mismatches)}), compared nevertheless:" if diagnosis.forced else ""
    more = (*comparison_sentences(diagnosis.ranks), *_starts(diagnosis.starts))
    if head:
        return Statement(head, (f"{'; '.join(texts)}.", *more))
    if len(statements) == 1 and statements[0].details:
        return Statement(statements[0].headline, (f"{statements[0].details[0]}.", *more))
    return Statement(f"{'; '.join(texts)}.", more)


def _side_statement(side: SideDiagnosis) -> Statement:
    speed = side.speed
    if speed is None or speed.known is None:
        details = ", ".join((describe(side.reason), *filter(None, [_with_counts(side)])))
        return Statement(f"the speed of {side.side} relative to {side.base} is not known:", (details,))
    where = f" on the {' and the '.join(side.devices)}" if side.devices else ""
    if speed.value is None:
        least = f"at {'least' if speed.known > 1 else 'most'} {ratio_text(speed.known)}"
        head = (
            f"{side.side} runs {least} the {side.unit} of {side.base}{where}, a bound because {describe(side.reason)}"
        )
        return Statement(f"{head},", (more,)) if (more := _with_counts(side)) else Statement(head)
    interval = f" ({ONE_PAIR if speed.n == 1 else describe(speed.reason)})" if speed.reason else ""
    if speed.low is not None and speed.high is not None:
        interval = f" (95% {factor(speed.low)[0]} to {factor(speed.high)[0]})"
    if speed.n > 1 and not speed.different:
        head = f"no difference seen between {side.side} and {side.base} in {side.unit}{where}:"
        return Statement(head, (f"{ratio_text(speed.value)}{interval}",))
    head = f"{side.side} runs {ratio_text(speed.value)}{interval} the {side.unit} of {side.base}{where}"
    more = f"with its work {_moved(side)}" if side.moved else _changed(side)
    if side.explained:
        return Statement(f"{head}, {more}")
    return Statement(f"{head},", (more,)) if more else Statement(head)


ONE_PAIR: Final = "one pair of runs: it may be chance"


def _moved(side: SideDiagnosis) -> str:
    assert side.moved is not None
    workers = "one worker" if side.moved.workers == 1 else f"{side.moved.workers} workers"
    return f"done by {workers} (engine {side.moved.engine})"


def _changed(side: SideDiagnosis) -> str:
    """The changes along with the speed; `because` only where the recordings show time that explains most of it."""
    counted = _counts(side)
    more = f", with {' and '.join(counted)}" if counted else ""
    slowed = ""
    if side.slowed:
        label, factor = side.slowed
        slowed = f" (the breakdown pass of {label} took {ratio(factor)} the time of its light runs)"
    change = side.change
    if change and (side.explained or change.is_several):
        because = "because" if side.explained else "and"
        return f"{because} {change_text(change)}{more}{slowed}"
    first = f"{_what(change)} {_amounts(change)}" if change else ""
    if side.busy:
        first = f"device utilization from {share(side.busy[0])} to {share(side.busy[1])}"
    parts = list(filter(None, (first, *counted)))
    return f"with {listed(parts)}{slowed}" if parts else ""


def _counts(side: SideDiagnosis) -> list[str]:
    """`syncs from 6,000 to 1`, `H2D copies from 9,000 to 1 a step`"""
    counted = [f"{_COUNTERS[one.name]} from {count(one.before)} to {count(one.after)}" for one in side.counters]
    return [*counted[:-1], f"{counted[-1]} a step"] if counted else []


def _with_counts(side: SideDiagnosis) -> str:
    return f"with {listed(counted)}" if (counted := _counts(side)) else ""


_COUNTERS: Final[Mapping[str, str]] = {
    "syncs": "syncs",
    "might_sync": "reads that may wait on a GPU",
    "h2d": "H2D copies",
    "d2h": "D2H copies",
    "allocations": "allocations",
    "launches": "launches",
}


def change_text(change: TimeChange) -> str:
    """`idle in and after syncs fell from 50% to 17% of a step (train.py:88)`"""
    return f"{_what(change)} {_verb(change)} {_amounts(change)}"


def _what(change: TimeChange) -> str:
    if change.kind is TimeChangeKind.IDLE:
        return f"idle {CATEGORIES[change.name].idle}"
    if change.kind is TimeChangeKind.HOST and change.name == UNATTRIBUTED and change.site:
        return "the host's time of an uncertain category"
    if change.kind is TimeChangeKind.HOST:
        return f"the host's time {CATEGORIES[change.name].spent}"
    if change.kind is TimeChangeKind.PHASE:
        return f"the time of {'the ' * (change.name == ELSEWHERE)}{phase_label(change.name)}"
    return "all parts" if change.kind is TimeChangeKind.ALL_PHASES else "several parts"


def _verb(change: TimeChange) -> str:
    if change.is_several:
        return "shrank:" if change.faster else "grew:"
    return "fell" if change.faster else "rose"


def _amounts(change: TimeChange) -> str:
    """`from 50% to 17% of a step (train.py:88)`, `forward +3.00 ms, data +1.00 ms (of +4.00 ms a step)`"""
    if change.is_several:
        phases = ", ".join(map(_phase_change, change.phases))
        against = "".join(f"; in the other direction {_phase_change(phase)}" for phase in change.against)
        return f"{phases}{against} (of {_signed(change.step_seconds)} a step)"
    if change.kind is TimeChangeKind.PHASE:
        cost = f", {seconds(change.site_seconds)}" if change.site_seconds is not None else ""
        before, after = seconds(change.before), seconds(change.after)
        most = _most_at(change.site, cost)
        return f"from {before}{most if change.faster else ''} to {after}{'' if change.faster else most} a step"
    where = f" ({at(change.site).strip().removeprefix('at ')})" if change.site else ""
    if change.as_shares:
        return f"from {share(change.before)} to {share(change.after)} of a step{where}"
    return f"from {seconds(change.before)} to {seconds(change.after)} a step in the breakdown pass{where}"


def _phase_change(change: PhaseChange) -> str:
    return f"{phase_label(change.phase)} {_signed(change.seconds)}{_most_at(change.site)}"


def _most_at(site: Site | None, cost: str = "") -> str:
    return f" (most{at(site)}{cost})" if site else ""


def _signed(value: float) -> str:
    return f"{'+' * (value > 0)}{seconds(value)}"


def _starts(starts: tuple[tuple[str, float], ...]) -> Iterator[str]:
    if not starts:
        return
    named = listed([f"{seconds(start)} in {label}" for label, start in starts])
    yield f"These figures do not include the time before the first step ({named})."
