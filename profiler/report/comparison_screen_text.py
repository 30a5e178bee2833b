"""Makes the sentences of the first screen of a comparison: its headline, why, its chips, and what to do now."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from profiler.analyse.model import LOADED_MACHINE, MAX_WITHOUT_CORE, WITHOUT_CORE, Comparison
from profiler.core.metrics import PER_STEP, find_counter
from profiler.core.terminal import called_as
from profiler.core.units import count, rate, share, significant
from profiler.diagnose.model import WORTH_LEADING
from profiler.report.action_text import ACTIONS, command_text, keep_action, trial_commands
from profiler.report.blocks import Action, Chip, Headline
from profiler.report.comparison_text import ONE_PAIR
from profiler.report.finding_text import NO_GAIN, finding_text, prediction_texts, told
from profiler.report.first_screen_text import WHY
from profiler.report.model import ReportInput, ReportSide, exit_status, noisy_machine
from profiler.report.text import (
    at,
    describe,
    different_results,
    kernel_name,
    listed,
    mismatches,
    part_of_time,
    plural,
    same_results,
)

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


def comparison_context(comparison: Comparison, devices: str, time: str) -> tuple[str, ...]:
    """`before → after`, `CPU`, `2026-11-22 11:03 UTC`"""
    labels = " → ".join(side.label for side in comparison.sides)
    return tuple(filter(None, (labels, devices, time)))


_MOST_PACKAGES: Final = 4
_SAME: Final = 0.005
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
    if abs(speed.known - 1) < _SAME and comparison.comparable:
        return Headline(f"{last.label} trains as fast as {first.label}", "", amounts, "open")
    is_faster = speed.known >= 1
    gain = f"{_times(speed.known if is_faster else 1 / speed.known)} {'faster' if is_faster else 'slower'}"
    if speed.value is None:
        least = significant(speed.known if is_faster else 1 / speed.known)  # as in the table and the verdict
        gain = f"at least {least}× {'faster' if is_faster else 'slower'}"
        amounts = f": {describe(speed.reason)}"
    if not comparison.comparable:
        return Headline(f"Not comparable, but compared: {last.label} trains ", gain, amounts, "bad")
    return Headline(f"{last.label} trains ", gain, amounts, "good" if is_faster else "bad")


def _times(value: float) -> str:
    """`60×`, `5.6×`, `1.23×`"""
    return f"{_number(value)}×"


def _number(value: float) -> str:
    return significant(value, _DIGITS + (value < _FINE))


# ---------------------------------------------------------------- why


def comparison_why(report_input: ReportInput, comparison: Comparison) -> tuple[str, ...]:
    """Say in some sentences what changed along with the speed: packages first, then how often each side turns to the
    device and how busy that is, or what else; and what more time would give."""
    if not comparison.comparable:
        return (f"They differ: {mismatches(comparison.mismatches)}.",)
    more = (f"{describe(notice)}." for notice in comparison.method if notice.code == "more-time")
    return (*_packages(comparison), *_changes(report_input, comparison), *more)


def _packages(comparison: Comparison) -> Iterator[str]:
    """`2 packages differ: numpy (1.26.4 → 2.1.0) and torch (2.1.0 → 2.3.0).`"""
    rows = [f"{name} ({values[0]} → {values[-1]})" for name, values in comparison.packages]
    named, more = rows[:_MOST_PACKAGES], len(rows) - _MOST_PACKAGES
    if rows:
        others = [f"{more} more, which the page lists"] if more > 0 else []
        yield f"{plural(len(rows), 'package')} differ{'s' * (len(rows) == 1)}: {listed([*named, *others])}."


def _changes(report_input: ReportInput, comparison: Comparison) -> tuple[str, ...]:
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
    works = [f"the device works {part_of_time(value, peak)}" for value, peak in busy if value is not None]
    return works if len(works) == len(busy) else []


def _busy_sentence(first: ReportSide, last: ReportSide) -> str:
    works = _works(first, last)
    return f"In {first.label} {works[0]}, and in {last.label} {works[1]}." if works else ""


def _count_sentence(first: ReportSide, last: ReportSide) -> str:
    """The counts of a step, which are the same however busy the machine is."""
    counts = []
    for name in EXACT:
        before, after = (side.measure(f"{name}{PER_STEP}").value for side in (first, last))
        counter = find_counter(name)
        if counter is not None and before is not None and after is not None and before != after:
            counts.append(f"{counter.plural} from {count(before)} to {count(after)}")
    return f"Other programs do not change the counts of a step: {listed(counts)}." if counts else ""


def _is_doubted(report_input: ReportInput) -> bool:
    """Whether a side waited for a core so long that the speed of the last side is at most known as a bound."""
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
    """Two significant digits: 3,000, 12, 2.4."""
    return count(float(significant(value, _DIGITS).replace(",", "")))


# ---------------------------------------------------------------- chips


def comparison_chips(report_input: ReportInput, comparison: Comparison) -> tuple[Chip, ...]:
    """The interval of the ratio, whether the results are the same, and what makes the figures doubtful."""
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
        yield Chip(reason or plural(speed.n, "pair"), "warning")
        return
    is_slower = speed.value < 1 and speed.different
    low, high = (1 / speed.high, 1 / speed.low) if is_slower else (speed.low, speed.high)
    ends = f"{_number(low)} to {_times(high)}"
    yield Chip(f"{ends} with 95% confidence, {plural(speed.n, 'pair')}", "good" if speed.different else "plain")


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


# ---------------------------------------------------------------- what now


def comparison_actions(report_input: ReportInput, comparison: Comparison) -> tuple[Action, ...]:
    """What the last side can still gain, and how to keep what was gained."""
    last = report_input.sides[-1]
    actions = [*_next_cure(last), *_bound_of_host(last)]
    fixes = next(filter(None, (each.next_command() for each in comparison.extensions.values())), "")
    if fixes:
        each_fix = Action("See what each fix gains by itself", command=f"{called_as()} {fixes}")
        return (*actions[: ACTIONS - 1], each_fix)
    if not _is_worth_keeping(report_input, comparison):
        record = Action(f"Record where the time of {last.label} goes", command=f"{called_as()} run -- {_command(last)}")
        return (*actions[:ACTIONS],) or (record,)
    return (*actions[: ACTIONS - 1], keep_action(last.label, _command(last)))


def _command(side: ReportSide) -> str:
    return command_text(side.detailed.info) or "COMMAND"


def _is_worth_keeping(report_input: ReportInput, comparison: Comparison) -> bool:
    """Whether the last side ended well, can be compared with the first, and is not slower."""
    last = report_input.sides[-1]
    speed = report_input.ratio(last.label, report_input.rate)
    if not comparison.comparable or speed is None or speed.known is None:
        return False
    is_slower = speed.known <= 1 - _SAME and (speed.different or speed.n <= 1)
    return not is_slower and not any(exit_status(run.info) for run in last.analyses())


def _next_cure(side: ReportSide) -> Iterator[Action]:
    worth = (each for each in told(side.detailed.findings) if each.has_cure and each.gain >= WORTH_LEADING)
    for finding in islice(worth, 1):
        text = finding_text(finding)
        note = " ".join(prediction_texts(finding)[:1])
        can_be_tried = finding.can_be_tried and side.detailed.info.argv
        asking, command = trial_commands(side.detailed) if can_be_tried else ("", "")
        place = at(finding.sites[0]) if finding.sites else ""
        cause = f"{text.fix.removesuffix('.')}. {text.title.removesuffix('.')}{place}."
        yield Action(f"Next in {side.label}", cause, text.code, command, asking, note)


def _bound_of_host(side: ReportSide) -> Iterator[Action]:
    """How much more the host can give at most: the device has the same work to do."""
    busy = side.measure("device_utilization").value
    if not busy or busy < 1 / _FINE or side.detailed.outcome == "":
        return
    works = f"The device of {side.label} works {part_of_time(busy, side.measure('peak_share').value)}"
    waited = (side.measure(WITHOUT_CORE).value or 0.0) > MAX_WITHOUT_CORE  # then the host was late for that reason too
    rest = f", so the host can give at most {_times(1 / busy)} more" if 1 / busy >= NO_GAIN and not waited else ""
    first = next(iter(side.detailed.kernels), None)
    most = f" {kernel_name(first.name)} takes {share(first.share)} of the kernels' time." if first else ""
    yield Action("Look at the kernels", f"{works}{rest}.{most}")
