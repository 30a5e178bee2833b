"""Makes sentences of the verdict on a comparison, and those of its first screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from profiler.analyse.model.analysis import LOADED_MACHINE
from profiler.analyse.model.comparison import Comparison
from profiler.analyse.model.host import ELSEWHERE
from profiler.analyse.model.measures import UNATTRIBUTED
from profiler.core.metrics import PER_STEP, find_counter
from profiler.core.units import count, rate, ratio, seconds, share, significant
from profiler.diagnose.model import (
    ComparisonDiagnosis,
    Growth,
    PhaseChange,
    SideDiagnosis,
    TimeChange,
    TimeChangeKind,
)
from profiler.report import text as words
from profiler.report.blocks import Chip, Headline
from profiler.report.category_text import CATEGORIES, phase_label
from profiler.report.first_screen_text import WHY
from profiler.report.model import ReportInput, ReportSide, exit_status, noisy_machine
from profiler.report.notices import describe, different_results, mismatches, same_results
from profiler.report.rank_text import comparison_sentences
from profiler.report.table import factor, ratio_text
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
    """Return the diagnosis of a side; of time of an unknown category with its line, which tables below name."""
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
    """Tell what changed along with the speed of a side, as sentences of their own.

    :param is_upgrade: packages differ: of a slower side all that grew is named, by package.
    """
    speed = side.speed
    if speed is None or speed.value is None:
        yield _sentence(describe(side.reason))
    elif speed.n > 1 and not speed.different and speed.low is not None and speed.high is not None:
        interval = f"{factor(speed.low)[0]} and {ratio_text(speed.high)}"
        yield f"The ratio lies between {interval} with 95% confidence, which includes 1."
    elif side.moved:
        yield f"Its work is {_moved(side)}."
    elif is_upgrade and side.grown:
        entries = [_growth(each) for each in side.grown[:_MOST_GROWN]]
        yield f"What takes longer in each step: {words.listed(entries)}."
    elif side.change:
        yield _sentence(change_text(side.change))
    for one in side.counters:
        yield _sentence(f"{_COUNTERS[one.name]} changed from {count(one.before)} to {count(one.after)} a step")


_MOST_GROWN: Final = 3


def _growth(each: Growth) -> str:
    """`code of torch at train.py:12 (1.20 ms → 2.40 ms)`"""
    where = f"code of {each.package}" if each.package else "the line itself"
    return f"{where}{words.at(each.site) if each.site else ''} ({seconds(each.before)} → {seconds(each.after)})"


def _sentence(text: str) -> str:
    return f"{words.capitalized(text)}."


def comparison_statement(diagnosis: ComparisonDiagnosis) -> Statement:
    """Says whether a side is faster, slower or not different, with the interval, and what changed along with it."""
    if not diagnosis.comparable and not diagnosis.forced:
        return Statement(f"Not comparable: {mismatches(diagnosis.mismatches)}.")
    statements = [_side_statement(side) for side in diagnosis.sides]
    texts = [statement.text for statement in statements]
    head = f"Not comparable ({mismatches(diagnosis.mismatches)}), compared nevertheless:" if diagnosis.forced else ""
    more = (*comparison_sentences(diagnosis.ranks),)
    if diagnosis.starts:
        named = words.listed([f"{seconds(start)} in {label}" for label, start in diagnosis.starts])
        more = (*more, f"These figures do not include the time before the first step ({named}).")
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
    """Tell what changed with the speed; say `because` only if recorded time explains most of it."""
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
    return f"with {words.listed(parts)}{slowed}" if parts else ""


def _counts(side: SideDiagnosis) -> list[str]:
    """`syncs from 6,000 to 1`, `H2D copies from 9,000 to 1 a step`"""
    counted = [f"{_COUNTERS[one.name]} from {count(one.before)} to {count(one.after)}" for one in side.counters]
    return [*counted[:-1], f"{counted[-1]} a step"] if counted else []


def _with_counts(side: SideDiagnosis) -> str:
    return f"with {words.listed(counted)}" if (counted := _counts(side)) else ""


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
    verb = ("fell", "shrank:") if change.faster else ("rose", "grew:")
    return f"{_what(change)} {verb[change.is_several]} {_amounts(change)}"


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
    where = f" ({words.at(change.site).strip().removeprefix('at ')})" if change.site else ""
    if change.as_shares:
        return f"from {share(change.before)} to {share(change.after)} of a step{where}"
    return f"from {seconds(change.before)} to {seconds(change.after)} a step in the breakdown pass{where}"


def _phase_change(change: PhaseChange) -> str:
    return f"{phase_label(change.phase)} {_signed(change.seconds)}{_most_at(change.site)}"


def _most_at(site: Site | None, cost: str = "") -> str:
    return f" (most{words.at(site)}{cost})" if site else ""


def _signed(value: float) -> str:
    return f"{'+' * (value > 0)}{seconds(value)}"


# ---------------------------------------------------------------- the first screen


_DIGITS: Final = 2
"""Significant digits of a ratio on the first screen: runs vary by more than a third digit tells."""
_FINE: Final = 2.0
"""Ratio below which a third digit matters."""
_WAITS: Final = (
    (f"syncs{PER_STEP}", "waits for the device", "waits"),
    (f"might_sync{PER_STEP}", "reads a value for which it may wait on a GPU", "does so"),
    (f"launches{PER_STEP}", "launches a kernel", "launches one"),
    (f"h2d{PER_STEP}", "copies to the device", "copies"),
)
"""Counters that tell how often the host turns to the device, the most telling first, and verbs for both sides."""
EXACT: Final = ("syncs", "h2d", "d2h", "allocations", "launches")
"""Counters that a comparison names where it cannot compare times."""
_MUCH_LESS: Final = 2.0
"""Factor from which a counter of two sides tells why one is faster."""


SAME: Final = 0.005
"""Difference of a ratio from 1 that its text would not show."""


# ---------------------------------------------------------------- headline


def comparison_headline(report_input: ReportInput, comparison: Comparison) -> Headline:
    """`after trains 60× faster: 36.5k → 2.21M tokens/s`; of several sides the last one."""
    if not comparison.comparable and not comparison.forced:
        return Headline("These sides are not comparable", judged="bad")
    first, last = report_input.sides[0], report_input.sides[-1]
    if first is last:
        measure = first.measure(report_input.rate)
        speed_text = f"{first.label} trains at {rate(measure.value, measure.unit)}" if measure.value else first.label
        return Headline(speed_text)
    speed = report_input.ratio(last.label, report_input.rate)
    before, after = (side.measure(report_input.rate) for side in (first, last))
    if speed is None or speed.known is None or before.value is None or after.value is None:
        reason = f": {describe(speed.reason)}" if speed is not None and speed.is_doubted else ""
        return Headline(f"The speed of {last.label} relative to {first.label} is not known", "", reason, "open")
    amounts = f": {rate(before.value, '').strip()} → {rate(after.value, report_input.rate_unit(report_input.rate))}"
    if speed.n > 1 and not speed.different:
        return Headline(f"{last.label} and {first.label}: ", "no difference seen", amounts, judged="open")
    if abs(speed.known - 1) < SAME and comparison.comparable:
        return Headline(f"{last.label} trains as fast as {first.label}", "", amounts, "open")
    is_faster = speed.known >= 1
    gain = f"{times_text(speed.known if is_faster else 1 / speed.known)} {'faster' if is_faster else 'slower'}"
    if speed.value is None:
        least = significant(speed.known if is_faster else 1 / speed.known)  # as in the table and the verdict
        gain = f"at least {least}× {'faster' if is_faster else 'slower'}"
        amounts = f": {describe(speed.reason)}"
    if not comparison.comparable:
        return Headline(f"Not comparable, but compared: {last.label} trains ", gain, amounts, "bad")
    return Headline(f"{last.label} trains ", gain, amounts, "good" if is_faster else "bad")


def times_text(value: float) -> str:
    """`60×`, `5.6×`, `1.23×`"""
    return f"{_number(value)}×"


def _number(value: float) -> str:
    return significant(value, _DIGITS + (value < _FINE))


# ---------------------------------------------------------------- why


def comparison_why(report_input: ReportInput, comparison: Comparison) -> tuple[str, ...]:
    """Tell in some sentences what changed along with the speed, packages first, and what more time would give."""
    if not comparison.comparable:
        return (f"They differ: {mismatches(comparison.mismatches)}.",)
    more = (f"{describe(notice)}." for notice in comparison.method if notice.code == "more-time")
    return (*_packages(comparison), *_changes(report_input, comparison), *more)


_MOST_PACKAGES: Final = 4


def _packages(comparison: Comparison) -> Iterator[str]:
    """`2 packages differ: numpy (1.26.4 → 2.1.0) and torch (2.1.0 → 2.3.0).`"""
    rows = [f"{name} ({values[0]} → {values[-1]})" for name, values in comparison.packages]
    named, more = rows[:_MOST_PACKAGES], len(rows) - _MOST_PACKAGES
    if rows:
        others = [f"{more} more, which the page lists"] if more > 0 else []
        differ = f"{words.plural(len(rows), 'package')} differ{'s' * (len(rows) == 1)}"
        yield f"{differ}: {words.listed([*named, *others])}."


def _changes(report_input: ReportInput, comparison: Comparison) -> tuple[str, ...]:
    """Tell in two sentences how often each side turns to the device and how busy that is, or what else changed."""
    first, last = report_input.sides[0], report_input.sides[-1]
    if _is_doubted(report_input):
        return tuple(filter(None, (_busy_sentence(first, last), _count_sentence(first, last)))) or comparison.why[:WHY]
    if first is not last and (sentences := _device_sentences(first, last)):
        return sentences
    return comparison.why[:WHY] or (comparison.verdict,)


def _device_sentences(first: ReportSide, last: ReportSide) -> tuple[str, ...]:
    """`before waits for the device twice for every token, and the device works 6% of the time.`"""
    works = _works(first, last)
    if not works:
        return ()
    for name, verb, again in _WAITS:
        before, after = (side.measure(name).value for side in (first, last))
        if not before or not after or max(before, after) < _MUCH_LESS * min(before, after):
            continue
        often = [_how_often(side, value) for side, value in ((first, before), (last, after))]
        return f"{first.label} {verb} {often[0]}, and {works[0]}.", f"{last.label} {again} {often[1]}, and {works[1]}."
    return (_busy_sentence(first, last),)


def _works(first: ReportSide, last: ReportSide) -> list[str]:
    """`the device works 6% of the time` for each side; empty where one of them does not tell."""
    busy = [(side.measure("device_utilization").value, side.measure("peak_share").value) for side in (first, last)]
    works = [f"the device works {words.part_of_time(value, peak)}" for value, peak in busy if value is not None]
    return works if len(works) == len(busy) else []


def _busy_sentence(first: ReportSide, last: ReportSide) -> str:
    works = _works(first, last)
    return f"In {first.label} {works[0]}, and in {last.label} {works[1]}." if works else ""


def _count_sentence(first: ReportSide, last: ReportSide) -> str:
    """Return the counts of a step, which are the same however busy the machine is."""
    counts = []
    for name in EXACT:
        before, after = (side.measure(f"{name}{PER_STEP}").value for side in (first, last))
        counter = find_counter(name)
        if counter is not None and before is not None and after is not None and before != after:
            counts.append(f"{counter.plural} from {count(before)} to {count(after)}")
    return f"Other programs do not change the counts of a step: {words.listed(counts)}." if counts else ""


def _is_doubted(report_input: ReportInput) -> bool:
    """Tell whether a side waited for a core so long that the speed of the last side is at most known as a bound."""
    speed = report_input.ratio(report_input.sides[-1].label, report_input.rate)
    return speed is not None and speed.is_doubted


def _how_often(side: ReportSide, per_step: float) -> str:
    """`twice for every token`, `once for 3,000 tokens`; `12 times a step` where the program counts no tokens."""
    speed, steps = side.measure("tokens_per_s"), side.measure("steps_per_s")
    if not speed.value or not steps.value:
        return f"{_so_often(per_step)} a step"
    units, unit = speed.value / steps.value, speed.unit.removesuffix("/s")
    if per_step >= units * _NEARLY_ONE:
        return f"{_so_often(per_step / units)} for every {unit.removesuffix('s')}"
    return f"once for {_rounded(units / per_step)} {unit}"


_NEARLY_ONE: Final = 0.95


def _so_often(times: float) -> str:
    """`once`, `twice`, `2.4 times`"""
    text = significant(times, _DIGITS)
    return {"1.0": "once", "2.0": "twice"}.get(text, f"{_rounded(times)} times")


def _rounded(value: float) -> str:
    """Round to two significant digits: 3,000, 12, 2.4."""
    return count(float(significant(value, _DIGITS).replace(",", "")))


# ---------------------------------------------------------------- chips


def comparison_chips(report_input: ReportInput, comparison: Comparison) -> tuple[Chip, ...]:
    """Return the interval of the ratio, whether the results are the same, and what makes the figures doubtful."""
    chips = (*_interval_chips(report_input), *_result_chips(report_input, comparison))
    return (*chips, *_doubts(report_input, comparison))


def _interval_chips(report_input: ReportInput) -> Iterator[Chip]:
    speed = report_input.ratio(report_input.sides[-1].label, report_input.rate)
    if speed is not None and speed.bound is not None:
        reason = ONE_PAIR if speed.n == 1 else f"of {speed.n} pairs"
        yield Chip(f"a lower bound, {reason}", "warning")
    if speed is None or speed.value is None:
        return
    if speed.low is None or speed.high is None:
        reason = ONE_PAIR if speed.n == 1 else describe(speed.reason)
        yield Chip(reason or words.plural(speed.n, "pair"), "warning")
        return
    is_slower = speed.value < 1 and speed.different
    low, high = (1 / speed.high, 1 / speed.low) if is_slower else (speed.low, speed.high)
    ends = f"{_number(low)} to {times_text(high)}"
    yield Chip(f"{ends} with 95% confidence, {words.plural(speed.n, 'pair')}", "good" if speed.different else "plain")


def _result_chips(report_input: ReportInput, comparison: Comparison) -> Iterator[Chip]:
    different = different_results(result for result in comparison.results if result.difference is not None)
    if different:
        yield Chip("results differ", "warning", f"{different}.")
        return
    same = same_results(comparison.results)
    losses = {significant(value) for side in report_input.sides if (value := side.measure("loss").value) is not None}
    is_same_loss = len(losses) == 1 and all(side.has("loss") for side in report_input.sides)
    if same or is_same_loss:
        text = f"same loss: {losses.pop()}" if is_same_loss else "same results"
        yield Chip(text, "good", f"{same}, in all runs." if same else "")


def _doubts(report_input: ReportInput, comparison: Comparison) -> Iterator[Chip]:
    if not comparison.comparable:
        yield Chip("not comparable", "warning", f"{mismatches(comparison.mismatches)}.")
    if comparison.planned is not None:
        yield Chip("stopped early", "warning", f"{comparison.pairs} of {comparison.planned} rounds are complete.")
    if any(notice.code == "blocks" for notice in comparison.method):
        yield Chip("a part of each program", "plain", "Each was ended after enough steps. --pairs runs whole programs.")
    ended = [status for side in report_input.sides for run in side.runs if (status := exit_status(run.info))]
    if ended:
        yield Chip("ended early", "warning", f"A program {ended[0]}. Ratios are of the part before that.")
    if (load := noisy_machine(report_input)) and not _is_doubted(report_input):
        yield Chip(f"shared machine: {_taken(report_input)} of the CPU", "warning", load)


def _taken(report_input: ReportInput) -> str:
    """`other programs took 7%`: the largest such share in any run."""
    programs, machines = LOADED_MACHINE
    shares = []
    for side in report_input.sides:
        for warning in side.warnings():
            if warning.code == programs:
                shares.append((warning.values["used"] / warning.values["cores"], "other programs"))
            elif warning.code == machines:
                shares.append((warning.values["share"], "neighbours"))
    part, who = max(shares)
    return f"{who} took up to {share(part)}"
