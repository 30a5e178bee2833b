"""Decides on speed from the rounds so far, and chooses the kind of the next round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final

from profiler.check.model import CONFIRM, FAIL, INCONCLUSIVE, LOOKS, MEASURE, PASS, Limits, Round, Throughput, TimeLine
from profiler.check.speed import sequential
from profiler.check.speed.diagnostics import diagnose
from profiler.check.speed.rounds import RoundValues, round_values
from profiler.check.speed.sequential import Estimate
from profiler.core.errors import Notice

TYPICAL: Final = "typical step"
ALL_STEPS: Final = "all steps"
LINES: Final = (TYPICAL, ALL_STEPS)
UNCAPPED: Final = "all steps, stalls in full"
"""The series that decides about all steps if rare, long stalls are significant."""
_SERIES: Final = (*LINES, UNCAPPED)
MAX_LOST: Final = 3
"""Rounds in a row without enough blocks, after which no more are measured."""
INTERRUPTED: Final = "interrupted"
"""Code of the notice for an interrupt by the user."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The values of the usable rounds, by TYPICAL, ALL_STEPS and UNCAPPED."""

    measured: Mapping[str, list[Estimate]]
    confirming: Mapping[str, list[Estimate]]
    total: int
    """Rounds that measure, usable or not."""
    lost: int
    """Unusable rounds of either kind since the last usable one."""

    @property
    def usable(self) -> int:
        return len(self.measured[TYPICAL])

    def state(self, series: str, look: int, edges: sequential.Edges) -> str:
        """Return the state of a series by its first `look` rounds."""
        return sequential.suspicion(sequential.bounds(self.measured[series][:look]), edges)

    def excess(self, look: int) -> list[float]:
        """Return what the stalls of each of the first `look` rounds add where they count in full."""
        both = zip(self.measured[UNCAPPED][:look], self.measured[ALL_STEPS][:look], strict=True)
        return [full.value - capped.value for full, capped in both]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision after the rounds so far."""

    state: str | None
    """None: the next round must decide."""
    next: str | None
    """MEASURE | CONFIRM | None"""
    lines: Mapping[str, str] = field(default_factory=dict)
    """State of each line at the last look; one that passed at a look stays passed unless it fails."""
    suspected: tuple[str, ...] = ()
    confirmed: bool | None = None
    stalls: float | None = None
    """The slow-down that rare, long stalls add, which then count in full; None: not more than chance."""

    def series(self, line: str) -> str:
        """Return the values of `Measurements` by which a line is judged."""
        return UNCAPPED if line == ALL_STEPS and self.stalls is not None else line


def measurements(rounds: Sequence[tuple[str, RoundValues]]) -> Measurements:
    """Collect the estimates of rounds, of which kind and values are given in their order."""
    measured: dict[str, list[Estimate]] = {name: [] for name in _SERIES}
    confirming: dict[str, list[Estimate]] = {name: [] for name in _SERIES}
    total = lost = 0
    for kind, values in rounds:
        total += kind == MEASURE
        if values.typical is None or values.all_steps is None:
            lost += 1
            continue
        lost = 0
        into = measured if kind == MEASURE else confirming
        noise, error = values.typical_error, values.all_steps_error
        into[TYPICAL].append(Estimate(values.typical, noise, noise))
        into[ALL_STEPS].append(Estimate(values.all_steps, error, noise))
        into[UNCAPPED].append(Estimate(values.all_steps + values.excess, error, noise))
    return Measurements(measured, confirming, total, lost)


def decide(values: Measurements, limits: Limits, *, final: bool = False) -> Decision:
    """Return the decision at the first look that allows one.

    :param final: there will be no more rounds, for a reason independent of their values, so the rounds so far may be
        looked at once more.
    """
    edges = sequential.edges(limits.detect)
    lines = dict.fromkeys(LINES, INCONCLUSIVE)
    stalls = None
    for look in _looks(values, limits, final):
        excess = values.excess(look)
        stalls = sequential.rare_stalls(excess, edges)
        is_doubtful = sequential.rare_stalls(excess, edges, sequential.DOUBT_ALPHA) is not None
        decision = Decision(None, CONFIRM, lines, stalls=stalls)
        for line in LINES:
            name = decision.series(line)
            state = values.state(name, look, edges)
            if state == PASS and line == ALL_STEPS and is_doubtful and values.state(UNCAPPED, look, edges) != PASS:
                state = INCONCLUSIVE
            if state != INCONCLUSIVE or name == UNCAPPED:
                lines[line] = state
        suspected = tuple(line for line in LINES if lines[line] == FAIL)
        if suspected:
            return _confirm(values, limits, replace(decision, suspected=suspected), final)
        if all(lines[line] == PASS for line in LINES):
            return replace(decision, state=PASS, next=None)
    if final or values.total >= limits.max_rounds or values.lost >= MAX_LOST:
        return Decision(INCONCLUSIVE, None, lines, stalls=stalls)
    return Decision(None, MEASURE, lines, stalls=stalls)


def _looks(values: Measurements, limits: Limits, final: bool) -> list[int]:
    reached = [look for look in sequential.looks(limits.max_rounds) if look <= values.usable]
    # Where rounds were lost, the maximum is reached with fewer usable rounds than its look needs.
    ended = final or values.total >= limits.max_rounds
    if ended and reached and reached[-1] < values.usable:
        reached.append(values.usable)
    return reached


def _confirm(values: Measurements, limits: Limits, decision: Decision, final: bool) -> Decision:
    edges = sequential.edges(limits.detect)
    answers = {}
    for line in decision.suspected:
        name = decision.series(line)
        answers[line] = sequential.confirmed(values.measured[name], values.confirming[name], edges, final=final)
    confirmed = tuple(line for line, answer in answers.items() if answer)
    if confirmed:
        return replace(decision, state=FAIL, next=None, suspected=confirmed, confirmed=True)
    undecided = None in answers.values()
    if undecided and not final and values.lost < MAX_LOST:
        return decision
    lines = {line: INCONCLUSIVE if line in decision.suspected else state for line, state in decision.lines.items()}
    return replace(decision, state=INCONCLUSIVE, next=None, lines=lines, confirmed=None if undecided else False)


# ---------------------------------------------------------------- rounds to a verdict


def next_kind(rounds: Sequence[Round], limits: Limits) -> str | None:
    """Return MEASURE or CONFIRM, the kind of the next round; None: it is decided, or the maximum is reached.

    :param rounds: all so far, in their order.
    """
    return decide(_measure(rounds), limits).next


def throughput(rounds: Sequence[Round], limits: Limits, *, stopped: Notice | None = None) -> Throughput:
    """Return the verdict of the rounds so far.

    :param stopped: what ended the rounds early. After an interrupt by somebody who could see the rounds, only the
        looks that were due count; anything else is independent of the rounds, which are then looked at once more.
    """
    values = _measure(rounds)
    decision = decide(values, limits, final=stopped is not None and stopped.code != INTERRUPTED)
    lines = tuple(_time_line(name, values, decision, limits, rounds) for name in LINES)
    return Throughput(
        decision.state or INCONCLUSIVE,
        lines,
        tuple(rounds),
        _reason(decision, lines, values, limits, stopped),
        decision.confirmed,
        diagnose(rounds, limits),
        tuple(round_values(measured).typical for measured in rounds),
    )


def on_other_filesystem(speed: Throughput) -> Throughput:
    """Return the verdict where the base's files lie on another file system: a FAIL may come from reading files
    there."""
    speed = replace(speed, warnings=(*speed.warnings, Notice("other-filesystem")))
    if speed.state != FAIL:
        return speed
    return replace(
        speed,
        state=INCONCLUSIVE,
        reason=Notice("other-filesystem", {"otherwise": speed.reason}),
        lines=tuple(replace(line, state=INCONCLUSIVE) if line.state == FAIL else line for line in speed.lines),
    )


def _measure(rounds: Sequence[Round]) -> Measurements:
    return measurements([(measured.kind, round_values(measured)) for measured in rounds])


def _time_line(
    name: str, values: Measurements, decision: Decision, limits: Limits, rounds: Sequence[Round]
) -> TimeLine:
    """Return the result over all rounds, because the rounds that led to the suspicion of a FAIL are biased upwards."""
    series = decision.series(name)
    together = [*values.measured[series], *values.confirming[series]]
    state = decision.lines.get(name, INCONCLUSIVE)
    if len(together) < 2:
        return TimeLine(name, INCONCLUSIVE, together[0].value if together else None, None, None, len(together), None)
    edges = sequential.edges(limits.detect)
    bounds = sequential.bounds(together)
    if decision.state == FAIL and name not in decision.suspected:
        state = sequential.state(bounds, edges)
    more = sequential.more_rounds(bounds, edges) if state == INCONCLUSIVE else None
    seconds = fmean([measured.seconds for measured in rounds if measured.kind == MEASURE] or [0.0])
    return TimeLine(
        name,
        state,
        bounds.mean,
        bounds.low,
        bounds.high,
        bounds.rounds,
        sequential.smallest(bounds, edges),
        more,
        more * seconds if more is not None and seconds else None,
    )


# ---------------------------------------------------------------- the reason


def _reason(
    decision: Decision, lines: Sequence[TimeLine], values: Measurements, limits: Limits, stopped: Notice | None
) -> Notice | None:
    """Return why a verdict is INCONCLUSIVE, or what confirmed a FAIL; None for a PASS."""
    if decision.state == PASS:
        return None
    common: dict[str, Any] = {"stopped": stopped, "stalls": decision.stalls}
    if decision.suspected:
        codes = {True: "slowdown-confirmed", False: "slowdown-not-confirmed", None: "confirmation-incomplete"}
        rounds = len(values.confirming[decision.suspected[0]])
        confirming = tuple(_confirming_means(decision, values)) if rounds else ()
        return Notice(
            codes[decision.confirmed],
            {**common, "suspected": decision.suspected, "rounds": rounds, "lines": confirming},
        )
    common |= {"usable": values.usable, "total": values.total, "needed": LOOKS[0]}
    if values.usable < LOOKS[0]:
        missing = LOOKS[0] - values.usable
        return Notice("too-few-rounds", {**common, **_settling(missing, None, values, limits)})
    open_lines = [line for line in lines if line.state == INCONCLUSIVE]
    most = max(open_lines, key=lambda line: math.inf if line.more_rounds is None else line.more_rounds)
    seconds = most.more_seconds / most.more_rounds if most.more_rounds and most.more_seconds else None
    return Notice(
        "undecided",
        {
            **common,
            **_settling(most.more_rounds, seconds, values, limits),
            "at_most": sequential.FAILS_ABOVE * limits.detect,
            "at_least": sequential.PASSES_BELOW * limits.detect,
            "lines": tuple((line.name, line.slowdown, line.low, line.high) for line in open_lines),
        },
    )


def _confirming_means(decision: Decision, values: Measurements) -> Iterator[tuple[str, float]]:
    """Yield each suspected line, and the mean slow-down of the candidate."""
    for line in decision.suspected:
        yield line, fmean(one.value for one in values.confirming[decision.series(line)])


def _settling(rounds: int | None, seconds: float | None, values: Measurements, limits: Limits) -> dict[str, Any]:
    """Return the further rounds that would probably settle it, their time, and the `max_rounds` that they need.

    :param rounds: usable ones; None: no number of rounds would settle it.
    :param seconds: how long a round takes; None: not known.
    """
    if not rounds:
        return {"more": None, "more_seconds": None, "max_rounds": None}
    # the share of unusable rounds is assumed to stay
    more = math.ceil(rounds * values.total / values.usable) if values.usable else rounds
    total = values.total + more
    return {
        "more": more,
        "more_seconds": seconds and more * seconds,
        "max_rounds": total if total > limits.max_rounds else None,
    }
