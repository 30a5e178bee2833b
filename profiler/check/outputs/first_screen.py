"""Shows the first screen of a check, on its page and in the terminal: state and amount, lines, what now."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    PASS,
    CounterLine,
    GateResult,
    Hunk,
    SlowerLine,
)
from profiler.check.outputs import format as fmt
from profiler.check.outputs import text
from profiler.check.places import Rise, changed_places, failing, find_rises
from profiler.core.metrics import counter_period
from profiler.core.terminal import called_as, plain
from profiler.report import blocks as b
from profiler.report.next_step import next_step
from profiler.report.table import short_path
from profiler.report.text import capitalized, listed, plural

JUDGED: Final = {PASS: "good", INCONCLUSIVE: "open", NOT_COMPARABLE: "open", FAIL: "bad"}
_PLACES_TITLES: Final = ("Lines that take longer, or do more", "Lines that do more")
_PLACES: Final = 5
_CHANGED_PLACES: Final = 2
"""Changed lines that are shown although they count no more."""
_AMOUNTS: Final = 2
"""Counters of a line whose amounts are shown."""
_ACTIONS: Final = 3
_HUNK_LINES: Final = 12
"""Lines of a diff beside a line of code: more of them are the business of a diff."""
_LINE_LENGTH: Final = 120
"""Characters of a line of a diff."""
_CHANGED: Final = "changed in this diff"
_EXPLAINED: Final = "explained-candidate"
"""Name of the run that tells where the candidate's time goes."""


def first_screen(result: GateResult, when: Sequence[str]) -> b.FirstScreen:
    """Return the first screen of a result.

    :param when: the time of the check, and how long it took, as far as they are known.
    """
    places = tuple(shown_places(result))
    note = _places_note(result, places) if result.state == FAIL else ""
    return b.FirstScreen(
        (f"{fmt.side_title(result.candidate)} against {fmt.reference_title(result)}", *when),
        b.Headline("", result.state, f": {fmt.lowered(plain(result.sentence))}", JUDGED.get(result.state, "open")),
        tuple(why(result)),
        tuple(_chips(result)),
        places_title=_PLACES_TITLES[result.throughput is None] if places else "Lines" if note else "",
        places=places,
        places_note=note,
        actions=tuple(_actions(result))[:_ACTIONS],
    )


# ---------------------------------------------------------------- the verdict


def verdict_sentence(result: GateResult) -> str:
    """Return the verdict in one sentence: what failed, what is ruled out, or why it is open."""
    return capitalized(listed(list(_verdict_parts(result))))


def _verdict_parts(result: GateResult) -> Iterator[str]:
    speed, counters = result.throughput, result.counters_state
    if result.state == FAIL:
        if speed is not None and speed.state == FAIL:
            line = next(line for line in speed.lines if line.state == FAIL)  # the typical step's comes first
            subject = "a typical step takes" if line is speed.lines[0] else "all steps together take"
            yield f"{subject} {fmt.size(line.slowdown or 0.0)} longer"
        if failed := failing(result):
            more = f" ({plural(len(failed) - 1, 'more counter')} too)" if len(failed) > 1 else ""
            yield rise(failed[0], result.hunks) + more
    elif result.state == PASS:
        if speed is not None:
            high = max((line.high for line in speed.lines if line.high is not None), default=None)
            limit = "" if high is None else f"a slow-down above {fmt.size(max(high, 0.0))} is ruled out"
            yield limit or "no slow-down was found"
        if counters == PASS:
            yield "no counter rose" if result.counters else "nothing was counted"
    else:
        if speed is not None and speed.state == INCONCLUSIVE:
            slowdown = speed.lines[0].slowdown if speed.lines else None
            known = f"a change of {fmt.percent(slowdown)} may be noise"
            yield "whether it is slower could not be determined" if fmt.percentage(slowdown) is None else known
        if counters in (INCONCLUSIVE, NOT_COMPARABLE):
            unsure = next((line for line in result.counters if line.state == INCONCLUSIVE), None)
            undecided = "whether a counter rose could not be determined"
            if unsure is not None:
                undecided = f"{fmt.lowered(fmt.counter_title(unsure))}: {text.reasons(unsure.reasons)}"
            yield text.reasons(result.counters_reasons[:1]) or undecided


def rise(line: CounterLine, hunks: Sequence[Hunk] = ()) -> str:
    """Return `syncs rose from 1 to 2 per step at train.py:7 and 1 more line`

    :param hunks: what the diff changed.
    """
    name = fmt.lowered(fmt.counter_title(line))
    if line.after is not None and fmt.is_over_budget_only(line):
        place = f", most at {fmt.location(line.largest[0])}" if line.largest else ""
        return fmt.over_budget(line.counter, line.after[0], line.exceeded or 0.0) + place
    rises = find_rises((line,), hunks)
    place = f" at {fmt.location(rises[0].changes[0])}" if rises and rises[0].lines == 1 else ""
    if place and (more := sum(each.lines for each in rises[1:])):
        place += f" and {plural(more, 'more line')}"
    if line.before is None or line.after is None:
        return f"{name} are new{place}"
    before, after, _ = fmt.counter_amounts(line)
    if before != after and line.after[0] > line.before[1]:
        return f"{name} rose from {before} to {after} {counter_period(line.counter)}{place}"
    risen = sum(change.after - change.before for change in line.changes)  # it fell as much at other lines, or more
    return f"{name} rose by {fmt.amount(risen, line.counter)} {counter_period(line.counter)}{place}"


def why(result: GateResult) -> Iterator[str]:
    """Yield what explains a result: the diff, a cause, where its time went, why it is open, what was not seen."""
    speed = result.throughput
    if result.state == FAIL:
        yield from text.unwritten(result)
        if result.causes or result.explanation:
            yield plain(result.causes[0].sentence if result.causes else result.explanation)
    elif result.state == INCONCLUSIVE:
        if speed is not None and speed.reason is not None and speed.state == INCONCLUSIVE:
            yield f"{capitalized(plain(text.sentence(speed.reason))).removesuffix('.')}."
    else:
        yield from (plain(text.sentence(note)) for note in result.notes if note.code in ("not-seen", "per-sample"))


# ---------------------------------------------------------------- chips


def _chips(result: GateResult) -> Iterator[b.Chip]:
    """Yield the interval, its confidence, what could have been seen, the counters, and what makes the result less
    certain."""
    speed = result.throughput
    if speed is not None and speed.lines:
        line = speed.lines[0]
        if ends := fmt.interval(line.low, line.high):
            over = f"{fmt.percent(line.slowdown)} ({ends}) over {plural(line.rounds, 'round')}"
            detail = f"How much longer the {plain(line.name)} takes: {over}, with two one-sided bounds."
            yield b.Chip(over, "plain", detail)
        if speed.confirmed:
            yield b.Chip("confirmed in further rounds", "good")
        elif fmt.line_state(speed, line) != FAIL and fmt.percentage(line.smallest) is not None:
            least = fmt.percent(line.smallest).lstrip("+")
            detail = f"A slow-down of {least} would have been a FAIL with {fmt.DETECTED} probability."
            yield b.Chip(f"a slow-down of {least} would be found", "plain", detail)
    if result.counters:
        failed = sum(line.state == FAIL for line in result.counters)
        number = plural(len(result.counters), "counter")
        yield b.Chip(f"{failed} of {number} fail{'s' * (failed == 1)}" if failed else f"{number}, none fails")
    if warnings := text.warnings(result):
        yield b.Chip(plural(len(warnings), "warning"), "warning", " ".join(warnings))
    facts = result.machine
    cores = f"{facts['cores']} core{'s' * (facts['cores'] != '1')}" if facts.get("cores") else ""
    if machine := ", ".join(filter(None, (facts.get("cpu"), cores, facts.get("GPU")))):
        yield b.Chip(plain(machine))


# ---------------------------------------------------------------- lines


def shown_places(result: GateResult) -> Iterator[b.CodePlace]:
    """Yield the lines of a FAIL at which counters rose or that take longer, those that the diff wrote first. Where it
    wrote none of them, the lines that it changed are the first. A hunk stands at its first line."""
    places: dict[tuple[str, int], b.CodePlace] = {}
    changed: set[tuple[str, int]] = set()

    def add(file: str, line: int, place: b.CodePlace, *, is_changed: bool) -> None:
        known = places.get((file, line))
        places[file, line] = replace(place, change=f"{known.change}; {place.change}") if known else place
        if is_changed:
            changed.add((file, line))

    if any(text.unwritten(result)):
        for file, number, source in list(changed_places(result.hunks))[:_CHANGED_PLACES]:
            path = f"{plain(file)}:{number}"
            place = b.CodePlace(0.0, f"{short_path(plain(file))}:{number}", plain(source), path, _CHANGED)
            add(file, number, place, is_changed=True)
    failed = failing(result)
    largest = (Rise((each,)) for line in failed if fmt.is_over_budget_only(line) for each in line.largest)
    for rise in (*find_rises(failed, result.hunks), *largest):
        first = rise.changes[0]
        add(first.file, first.line, _counted(rise), is_changed=rise.is_written)
    for each in sorted(result.slower_lines or (), key=lambda line: not line.is_changed):
        add(each.file, each.line, _slower(each, result.base.step_time or 0.0), is_changed=each.is_changed)
    shown: set[Hunk] = set()
    for file, line in sorted(places, key=lambda place: place not in changed)[:_PLACES]:
        place, hunk = places[file, line], hunk_at(result, file, line)
        if hunk is not None and hunk not in shown:
            shown.add(hunk)
            place = replace(place, diff=excerpt(hunk, line))
        yield place


def hunk_at(result: GateResult, file: str, line: int) -> Hunk | None:
    """Return the part of the diff that adds this line of the candidate or one beside it, or removes one there."""
    for hunk in result.hunks:
        lines = (number for number, code in hunk.numbered() if not code.startswith(" "))
        if hunk.file == file and any(abs(number - line) <= 1 for number in lines):
            return hunk
    return None


def _counted(rise: Rise) -> b.CodePlace:
    """Show `0 → 1 sync`, for the first counters of a line and the period of the first one."""
    first = rise.changes[0]
    place = f"{fmt.location(first, short_path(first.file))}{fmt.function_and_operation(first)}"
    place += f", {_CHANGED}" * rise.is_written
    if rise.lines > 1:
        place, change = f"{place} and {plural(rise.lines - 1, 'more line')}", text.times_as_much(rise)
        return b.CodePlace(0.0, place, plain(first.source), fmt.location(first), change)
    period = counter_period(first.counter)
    names = dict.fromkeys(each.counter for each in rise.changes if counter_period(each.counter) == period)
    amounts = []
    for name in list(names)[:_AMOUNTS]:
        own = [each for each in rise.changes if each.counter == name]
        sums = sum(each.before for each in own), sum(each.after for each in own)
        before, after = fmt.amounts(sums, name)
        amounts.append(f"{f'{before} → ' if sums[0] != sums[1] else ''}{after} {fmt.counter_noun(name, sums[1])}")
    return b.CodePlace(0.0, place, plain(first.source), fmt.location(first), ", ".join(amounts))


def _slower(line: SlowerLine, step: float) -> b.CodePlace:
    share = (line.after - line.before) / step if step and math.isfinite(line.after - line.before) else 0.0
    function = f" in {plain(line.function)}()" if line.function not in ("", "<module>") else ""
    place = f"{short_path(plain(line.file))}:{line.line}{function}" + f", {_CHANGED}" * line.is_changed
    before, after = fmt.slower_times(line)
    change = f"{before} → {after}" + (f", {100 * share:+.0f}% of a step" if share else "")
    return b.CodePlace(share, place, plain(line.source), f"{plain(line.file)}:{line.line}", change)


def excerpt(hunk: Hunk, line: int) -> tuple[str, ...]:
    """Return the lines of a hunk around a line, at most _HUNK_LINES."""
    numbered = list(hunk.numbered())
    at = min(range(len(numbered)), key=lambda index: abs(numbered[index][0] - line))
    first = max(0, min(at - _HUNK_LINES // 2, len(numbered) - _HUNK_LINES))
    lines = [plain(text.rstrip("\r"))[:_LINE_LENGTH] for _, text in numbered[first : first + _HUNK_LINES]]
    before, after = first > 0, first + _HUNK_LINES < len(numbered)
    return (*(["…"] * before), *lines, *(["…"] * after))


def _places_note(result: GateResult, places: Sequence[b.CodePlace]) -> str:
    if result.slower_lines:
        return "Times are shares by stack samples, of a step as the rounds measured it."
    if result.throughput is None or result.throughput.state != FAIL:
        return "" if places else "No line is known at which a counter rose."
    if result.slower_lines is not None:
        return "No single line takes longer by more than chance."
    if result.mode == "against":
        return "Which lines take longer was not recorded."
    return "Which lines take longer is known only with --against, where git tells what a line was before."


# ---------------------------------------------------------------- what now


def _actions(result: GateResult) -> Iterator[b.Action]:
    for cause in result.causes[: _ACTIONS - 1]:
        place = f"{short_path(plain(cause.file))}:{cause.line}" if cause.file and cause.line > 0 else ""
        yield b.Action(plain(cause.fix).removesuffix("."), place=place)
    if result.state == FAIL:
        yield from _after_fail(result)
    elif result.state == NOT_COMPARABLE and result.baseline_file:
        yield b.Action("If the other work is intended, make the baseline again", command=_update(result))
    elif result.state == NOT_COMPARABLE:
        yield b.Action("Give both sides the same work, then check again", command=_check(result))
    elif result.state == INCONCLUSIVE:
        if text.warnings(result):
            yield b.Action("Repeat it on a quieter machine", "its warnings tell what disturbed it")
        rounds = result.throughput and result.throughput.reason and result.throughput.reason.values.get("max_rounds")
        more, option = (", with more rounds", f" --set max_rounds={rounds}") if rounds else ("", "")
        yield b.Action(f"Check again{more}", command=_check(result, option))
    elif any(fmt.is_fewer(line) for line in result.counters) and result.baseline_file:
        yield b.Action("Store the smaller counts", command=_update(result))


def gate_next_step(result: GateResult) -> str:
    """Return what to do after a check: the cure of its first cause, and the check again; else its first action."""
    fallback = "Keep the change: the check found nothing against it"
    if result.state not in JUDGED:
        fallback = f"Make the check possible: {plain(result.sentence)}"
    actions = tuple(_actions(result)) or (b.Action(fallback),)
    cause = result.causes[0] if result.causes else None
    if cause is None or not cause.file:
        return next_step(actions)
    change = replace(actions[0], lines=(f"{plain(cause.file)}:{cause.line}",))
    return next_step((change, b.Action("Check again", command=_check(result))))


def _after_fail(result: GateResult) -> Iterator[b.Action]:
    if result.explanation and result.out:
        command = f"{called_as()} diagnose {shlex.quote(f'{plain(result.out)}/{_EXPLAINED}')}"
        yield b.Action("See where the time of the candidate goes", command=command)
    risen = any(line.state == FAIL and not fmt.is_over_budget_only(line) for line in result.counters)
    if risen and result.baseline_file:
        yield b.Action("If the counts are intended, store them with the change", command=_update(result))
    if result.throughput is not None and result.throughput.state == FAIL:
        yield b.Action("Change the code, then check again", command=_check(result))
    elif not risen:
        yield b.Action("Have these lines do less, or give the counter a larger budget", command=_check(result))
    elif not result.causes:
        where = " at these lines" * any(line.changes for line in failing(result))
        yield b.Action(f"Remove what was added{where}, then check again", command=_check(result))


def _check(result: GateResult, more: str = "") -> str:
    more = f"{more} {result.options}".rstrip()
    command = plain(result.candidate.command)
    options = "RUN_A RUN_B"
    if result.mode == "against":
        options = f"--against {shlex.quote(plain(result.base.what).partition(' (')[0])}{more} -- {command}"
    elif result.mode == "baseline":
        options = f"--baseline {shlex.quote(plain(result.baseline_file))}{more} -- {command}"
    elif result.mode == "commands":
        options = f"{shlex.quote(plain(result.base.command))} {shlex.quote(command)}{more}"
    return f"{called_as()} check {options}"


def _update(result: GateResult) -> str:
    return _check(replace(result, mode="baseline"), " --update REASON")
