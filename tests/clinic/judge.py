"""Judges what was told about a case: pure functions of the truth and of what `told` read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.clinic.case import Case
from tests.clinic.conditions import QUOTA, QUOTA_CORES
from tests.clinic.parts import misses
from tests.clinic.told import THROTTLED, Entry, Told

GAIN_WITHIN: Final = 0.25
"""How far a predicted gain may be from the measured one, as a share of it."""
FIRST: Final = 3
"""Entries among which a right one makes an answer partly right."""
USED_UP: Final = 0.9
"""Share of a quota from which a program that uses so much of it must be throttled at times. A choice."""
_EACH_STEP: Final = re.compile(r"(?i)\b(every|each|a|per) step\b")
_RECURRENCE: Final = {
    "growing": re.compile(r"(?i)\bgrow|slower and slower|\blonger and longer|times as long as at the (start|begin)"),
    "periodic": re.compile(r"(?i)\bevery \d+|each epoch|every epoch|\bperiod|once in|an evaluation"),
    "once": re.compile(r"(?i)\bonce\b|one-off|a single step|\bone step\b|first (call|step|use)"),
    "before the steps": re.compile(r"(?i)before (the|its) (first )?steps?|\bstart"),
    "after the steps": re.compile(r"(?i)after the (last )?steps?|at the end"),
}


class Mark(StrEnum):
    """How well an aspect of an answer agrees with the truth."""

    RIGHT = "right"
    PARTLY = "partly"
    WRONG = "wrong"
    EMPTY = "empty"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Judged:
    """The marks of one answer."""

    marks: dict[str, Mark]
    """By aspect: steps, cause, line, owner, recurrence, advice, gain, counts, rule, parts, unharmed."""
    false: tuple[str, ...]
    """False or harmful sentences, each with the reason."""
    verdict: Mark
    """How good the whole answer is."""
    missing: tuple[str, ...] = ()
    """What else differs from the truth, where an aspect tells it."""


def judge(case: Case, told: Told) -> Judged:
    """Judge an answer in every aspect of which the case tells the truth."""
    marks = {name: aspect(case, told) for name, aspect in ASPECTS.items()}
    false = tuple(_false_sentences(case, told))
    found = [*misses(case, told)] if case.truth.parts else []
    missing = (*(miss.text for miss in found if not miss.is_false), *told.harm)
    return Judged(marks, false, verdict_of(case, marks, false), missing)


def verdict_of(case: Case, marks: dict[str, Mark], false: tuple[str, ...]) -> Mark:
    """A false sentence makes an answer wrong. Else the cause and the cure decide: where it is, and what to do. Older
    cases have one aspect that decides alone."""
    if false:
        return Mark.WRONG
    if alone := [mark for name in ("rule", "parts", "unharmed") if (mark := marks[name]) is not Mark.NOT_JUDGED]:
        return alone[0]
    if "control" in case.kinds:
        return Mark.RIGHT
    deciding = [mark for name in ("cause", "line", "advice") if (mark := marks[name]) is not Mark.NOT_JUDGED]
    if deciding and all(mark is Mark.EMPTY for mark in deciding):  # also if the counts are right: nothing is named
        return Mark.EMPTY
    if case.is_cuda and marks["counts"] is not Mark.NOT_JUDGED:
        deciding.append(marks["counts"])
    for mark in (Mark.EMPTY, Mark.RIGHT):
        if all(each is mark for each in deciding):
            return mark
    return Mark.PARTLY if {Mark.RIGHT, Mark.PARTLY} & set(deciding) else Mark.WRONG


def _first_where(entries: Sequence[Entry], is_right: Callable[[Entry], bool]) -> Mark:
    """Right: the first entry. Partly: one of the next ones."""
    if not entries:
        return Mark.EMPTY
    if is_right(entries[0]):
        return Mark.RIGHT
    return Mark.PARTLY if any(map(is_right, entries[1:FIRST])) else Mark.WRONG


def _steps(case: Case, told: Told) -> Mark:
    """The first step may be missing, because nothing marks its begin. Without updates, none must be told."""
    counts = list(told.steps.values())
    if case.truth.steps == 0:
        return Mark.RIGHT if not counts else Mark.WRONG
    if case.stop_after:
        return Mark.NOT_JUDGED
    made = steps_made(case.truth.steps, told.output)
    if not counts:
        return Mark.EMPTY if made > 1 else Mark.RIGHT
    if len(counts) == (case.processes or case.ranks) and set(counts) <= {made, made - 1}:
        return Mark.RIGHT
    return Mark.WRONG


def _cause(case: Case, told: Told) -> Mark:
    """A title, its evidence or the first screen's head names the cause by one of the truth's terms."""
    if not case.truth.cause:
        return Mark.NOT_JUDGED
    mark = _first_where(told.own, lambda entry: _matches(case.truth.cause, f"{entry.title} {entry.evidence}"))
    if mark in (Mark.EMPTY, Mark.WRONG) and _matches(case.truth.cause, told.unwrapped):
        return Mark.PARTLY
    return mark


def _line(case: Case, told: Told) -> Mark:
    """The first entry names a line of the truth; partly: a later one does, or the table of lines at its head."""
    places = {line for place in case.truth.lines for line in case.statement(place)}
    if not places:
        return Mark.NOT_JUDGED
    wanted = {(file.rpartition("/")[2], number) for file, number in places}
    mark = _first_where(told.own, lambda entry: bool(wanted & set(entry.lines)))
    if not any(entry.lines for entry in told.entries):
        mark = Mark.EMPTY
    in_table = wanted & {(file, number) for file, number, _ in told.lines[:1]}
    if in_table and mark is Mark.EMPTY:
        return Mark.RIGHT
    return Mark.PARTLY if in_table and mark is Mark.WRONG else mark


def _owner(case: Case, told: Told) -> Mark:
    """A library in which the time is spent is named."""
    if case.truth.owner == "user":
        return Mark.NOT_JUDGED
    owner = (re.escape(case.truth.owner),)
    mark = _first_where(told.own, lambda entry: _matches(owner, f"{entry.title} {entry.evidence} {entry.inside}"))
    return Mark.PARTLY if mark in (Mark.EMPTY, Mark.WRONG) and _matches(owner, told.unwrapped) else mark


def _recurrence(case: Case, told: Told) -> Mark:
    """When the cost occurs, in words; a cost of each step has a share of each step."""
    wanted = case.truth.recurrence
    if case.is_cuda:  # counts are of one step
        return Mark.NOT_JUDGED
    if wanted == "none":
        return Mark.NOT_JUDGED
    if wanted == "each step":
        first = " ".join(f"{entry.title} {entry.evidence}" for entry in told.entries[:1])
        return Mark.RIGHT if _EACH_STEP.search(first) else Mark.EMPTY
    if _RECURRENCE[wanted].search(told.unwrapped):
        return Mark.RIGHT
    return Mark.WRONG if any(entry.leads for entry in told.entries) else Mark.EMPTY


def _advice(case: Case, told: Told) -> Mark:
    """What to do."""
    if not case.truth.advice:
        return Mark.NOT_JUDGED
    advised = [entry for entry in told.own if entry.advice]
    return _first_where(advised, lambda entry: _matches(case.truth.advice, entry.advice))


def _gain(case: Case, told: Told) -> Mark:
    """The first gain is within 25% of the measured one, or a limit that holds. Nothing to gain: no gain is told."""
    leading = next((entry for entry in told.own if entry.leads), None)
    measured = case.measured()
    if "control" in case.kinds or case.truth.recurrence in ("once", "before the steps", "after the steps"):
        return Mark.RIGHT if leading is None else Mark.WRONG
    if "wall" not in measured:
        return Mark.NOT_JUDGED
    if leading is None or leading.gain is None:
        return Mark.EMPTY
    predicted, low, high = leading.gain
    real = measured["wall"]
    if leading.is_limit:
        return Mark.RIGHT if max(predicted, high) >= real["low"] else Mark.WRONG
    near = abs(predicted - real["gain"]) <= GAIN_WITHIN * real["gain"]
    return Mark.RIGHT if near else Mark.PARTLY if low <= real["high"] and real["low"] <= high else Mark.WRONG


def _counts(case: Case, told: Told) -> Mark:
    """Exact counts of a step."""
    truth = {name: pair[0] for name, pair in case.counts.model_dump().items() if pair is not None}
    if not truth or not case.is_counted:
        return Mark.NOT_JUDGED
    if not set(truth) & set(told.counts):
        return Mark.EMPTY
    alike = [abs(told.counts.get(name, -1.0) - count) <= 0.01 * max(1, count) for name, count in truth.items()]
    return Mark.RIGHT if all(alike) else Mark.PARTLY if any(alike) else Mark.WRONG


def _rule(case: Case, told: Told) -> Mark:
    """A rule of the illness leads; of several illnesses, each has a rule among as many first entries. Without one, none
    leads. A finding about the whole run predicts no gain: then nothing else must lead. A quota is one illness more, if
    the program uses it up."""
    groups = case.truth.rules
    if groups is None:
        return Mark.NOT_JUDGED
    first = [entry.rule for entry in told.entries if entry.gain and not entry.overlaps][: len(groups) + 1]
    is_throttled = told.cores is None or told.cores >= USED_UP * QUOTA_CORES
    if told.condition == QUOTA and is_throttled and THROTTLED not in first:
        return Mark.WRONG
    leading = [entry.rule for entry in told.own if entry.leads]
    if len(groups) == 1:
        leading = leading or [entry.rule for entry in told.own if entry.is_of_run and entry.rule in groups[0]]
        return Mark.EMPTY if not told.own else Mark.RIGHT if {*leading[:1]} & {*groups[0]} else Mark.WRONG
    most = [entry.rule for entry in told.own if entry.is_sure and entry.gain][: len(groups)]
    is_right = all({*most} & {*group} for group in groups) if groups else not leading
    return Mark.RIGHT if is_right else Mark.WRONG


def _parts(case: Case, told: Told) -> Mark:
    """The steps are exact, and each cause is named at its place with its share; see `parts`."""
    if case.truth.parts is None:
        return Mark.NOT_JUDGED
    return Mark.WRONG if _steps(case, told) is not Mark.RIGHT or any(misses(case, told)) else Mark.RIGHT


def _unharmed(case: Case, told: Told) -> Mark:
    """The recorded program does what the bare one does, and its steps are found; see `unharmed`."""
    if case.truth.style is None:
        return Mark.NOT_JUDGED
    return Mark.WRONG if told.harm else Mark.RIGHT


ASPECTS: Final = {
    "steps": _steps, "cause": _cause, "line": _line, "owner": _owner, "recurrence": _recurrence, "advice": _advice,
    "gain": _gain, "counts": _counts, "rule": _rule, "parts": _parts, "unharmed": _unharmed,
}  # fmt: skip
NOT_JUDGED: Final = (
    "whether a gain is predicted only where the place can be changed",
    "whether threads are judged against the cores that were free",
    "whether the table of lines agrees with the clock of the thread",
    "whether the picture shows what the headline says",
)
"""What the JSON report does not tell enough to judge."""


def _false_sentences(case: Case, told: Told) -> Iterator[str]:
    """Sentences that cannot be true, and advice that does harm."""
    if case.truth.parts:
        yield from (miss.text for miss in misses(case, told) if miss.is_false)
        return
    leading = [entry for entry in told.own if entry.leads]
    if case.truth.steps == 0 and any(entry.gain for entry in told.entries):
        yield "a gain without steps"
    if case.truth.recurrence == "once":
        lines = {(file.rpartition("/")[2], number) for file, number in map(case.line, case.truth.lines)}
        for entry in leading:
            if lines & set(entry.lines):
                yield f"a gain in each step for what occurs once: {entry.title}"
    if "control" in case.kinds:
        yield from (f"a gain where nothing can be gained: {entry.title}" for entry in leading)
    for entry in told.entries:
        if entry.is_sure and (found := _found(case.truth.harmful, entry.advice)):
            yield f"harmful advice: {found}"
    actions = " ".join(told.actions.split())
    for entry in told.entries:  # a title names a cause, and is no advice
        actions = actions.replace(entry.title, "")
    if found := _found(case.truth.harmful, actions):
        yield f"harmful advice on the first screen: {found}"


def steps_made(truth: int | str, output: str) -> int:
    """The updates of a program: as the truth says, or as the program printed."""
    if isinstance(truth, int):
        return truth
    found = re.findall(truth, output)
    return int(found[-1].replace(",", "")) if found else 0


def _matches(patterns: Iterable[str], text: str) -> bool:
    return bool(_found(patterns, text))


def _found(patterns: Iterable[str], text: str) -> str:
    matches = (re.search(f"(?i){pattern}", text) for pattern in patterns)
    return next((match[0] for match in matches if match), "")
