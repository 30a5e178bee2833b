"""Judges the parts of a step that a verdict names: each cause at its place with its share, no other, and the late rank.

The truth is what a program's own clocks print (`truth {...}`), or an interval; the kernel's clock tells of the time
without a core.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from tests.clinic.case import Case, Part, Parts
from tests.clinic.conditions import BUSY, QUIET, QUOTA, slow_rank
from tests.clinic.told import LOADED, Breakdown, Cause, Told

NAMED: Final = 0.10
"""A cause from this share of a step on must be named, and a false one from this share on is a false sentence."""
POINTS: Final = 0.03
"""How far a share may lie from the independent measure."""
MARGIN: Final = 0.03
"""A cause whose true share is so close above `NAMED` need not be named."""
ALL_CLEAR: Final = re.compile(r"neither data nor Python|is not what limits|no cause to name", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Miss:
    """One difference between the verdict and the truth."""

    text: str
    is_false: bool = False
    """Whether a sentence is not true; else something is missing."""


def misses(case: Case, told: Told) -> Iterator[Miss]:
    """All that is false or missing in the verdict about a case with `truth.parts`."""
    parts, breakdown = case.truth.parts, told.breakdown
    assert parts is not None
    if breakdown is None or told.exit_code != case.exit_code or breakdown.state != "complete":
        yield Miss(f"the program ended with exit code {told.exit_code}")
        return
    yield from _causes(parts, breakdown, told)
    yield from _late_rank(case, parts, breakdown, told)
    yield from _waits(case, breakdown, told)
    yield from _text(parts, told)


def true_share(part: Part, told: Told) -> tuple[float, float] | None:
    """The least and the largest share that the cause can have, on the rank where it is largest.

    The time of a part includes waiting for a core, which the verdict may take out: at most all that the thread waited,
    and at least the thread's CPU time stays, less the error of its measurement.
    """
    waited = max(told.waited.values(), default=0.0)
    if part.part and (clocks := _clocks(told)):
        shares = [
            (max(cpu - sum(error), wall - waited * row["wall"]) / row["wall"], wall / row["wall"])
            for row in clocks
            for cpu, wall, *error in [row["parts"].get(part.part, (0.0, 0.0))]
        ]
        return max(shares, key=lambda share: share[1])
    return (part.share[0] * (1 - waited), part.share[1]) if part.share else None


def _clocks(told: Told) -> list[Mapping[str, Any]]:
    """What the program's own clocks printed, a row for each rank."""
    return [json.loads(line[6:]) for line in told.output.splitlines() if line.startswith("truth {")]


def _must_be_named(part: Part, told: Told) -> bool:
    """Whether its truth is clearly above the share from which causes are named."""
    if told.condition in (BUSY, QUOTA) and told.condition not in part.under:
        return False
    share = true_share(part, told)
    return share is None or share[0] >= NAMED + MARGIN


def _causes(parts: Parts, breakdown: Breakdown, told: Told) -> Iterator[Miss]:
    every = [*([breakdown.late] if breakdown.late else []), *breakdown.causes]
    named = [cause for cause in every if cause.category not in LOADED or cause.notice]
    found: list[int] = []
    for part in parts.causes:
        number = next((at for at, cause in enumerate(named) if _is_of(part, cause)), None)
        if number is not None:
            found.append(number)
            yield from _place_and_share(part, named[number], told)
        elif _must_be_named(part, told):
            yield Miss(f"not named: {_truth(part, told)}")
    is_late = found and min(found) > 0 and named[0].category not in parts.allowed
    if parts.is_ordered and (is_late or found != sorted(found)):
        yield Miss(f"a smaller cause comes first: {'; '.join(map(_describe, named))}")
    true = {category for part in parts.causes for category in part.category}
    for cause in named:
        if cause.share >= NAMED and cause.category not in true | {*parts.allowed} | LOADED:
            yield Miss(f"no such cause: {_describe(cause)}", is_false=True)


def _is_of(part: Part, cause: Cause) -> bool:
    return cause.category in part.category and (not part.notice or cause.notice in part.notice)


def _place_and_share(part: Part, cause: Cause, told: Told) -> Iterator[Miss]:
    if part.at and not any(_is_at(place, cause) for place in part.at):
        yield Miss(f"{_describe(cause)}; true: at {' or '.join(part.at)}")
    share = true_share(part, told)
    if share and (min(cause.low, cause.share - POINTS) > share[1] or max(cause.high, cause.share + POINTS) < share[0]):
        yield Miss(f"{_describe(cause)}; true: {_truth(part, told)}")


def _is_at(place: str, cause: Cause) -> bool:
    """Whether a call of the cause's path, or the function that it calls, is `file:function`."""
    name, _, function = place.partition(":")
    if function in cause.calls.replace("()", "").split("."):
        return True
    return any(PurePath(file).match(name) and function in (of, of.split(".")[-1]) for file, _, of in cause.path)


def _late_rank(case: Case, parts: Parts, breakdown: Breakdown, told: Told) -> Iterator[Miss]:
    """The rank that is ill, or slowed from outside, must be named as late; with equal ranks, none."""
    slowed, late = slow_rank(told.condition), breakdown.late
    expected = parts.late_rank if slowed is None else slowed
    if case.ranks == 1 or (expected is None and told.condition != QUIET):
        return
    if slowed is not None and not _is_slowed(slowed, told):
        return
    said = f"rank {late.ranks[0]} is late: {_describe(late)}" if late else "no rank is late"
    if expected is None:
        if late and late.lead >= NAMED and late.category not in LOADED:
            yield Miss(f"{said}; true: the ranks are alike", is_false=True)
    elif late is None or expected not in late.ranks:
        yield Miss(f"{said}; true: rank {expected} is late")
    elif slowed is not None and late.category not in LOADED:
        yield Miss(f"{said}; true: rank {expected} waits for a core", is_false=True)


def _is_slowed(rank: int, told: Told) -> bool:
    """Whether the rank waited for a core clearly longer than the others; on a full machine it may not."""
    others = [share for other, share in told.waited.items() if other != rank]
    return bool(others) and told.waited.get(rank, 0.0) >= max(others) + NAMED


def _waits(case: Case, breakdown: Breakdown, told: Told) -> Iterator[Miss]:
    """Waiting for a core is as long as the kernel's clock of the main thread says.

    Where the main thread waits for other threads or ranks, which may lack a core too, it is at least as long.
    """
    if not told.waited or not told.steps:
        return
    waited, (said, wide) = max(told.waited.values()), breakdown.waits or (0.0, 0.0)
    waits_for_others = case.ranks > 1 or case.env.get("OMP_NUM_THREADS") != "1"
    if abs(said - waited) > max(2 * POINTS, wide) and not (waits_for_others and said > waited):
        yield Miss(f"{said:.0%} without a core; true by the kernel's clock: {waited:.0%}")


def _text(parts: Parts, told: Told) -> Iterator[Miss]:
    if ALL_CLEAR.search(told.screen) and any(_must_be_named(part, told) for part in parts.causes):
        yield Miss("the first screen says that nothing limits the program", is_false=True)
    for pattern in parts.never_say:
        if match := re.search(pattern, told.screen):
            yield Miss(f"the first screen says {match[0]!r}", is_false=True)
    for pattern in parts.must_say:
        if not re.search(pattern, told.screen):
            yield Miss(f"the first screen does not say /{pattern}/")


def _describe(cause: Cause) -> str:
    place = " > ".join(f"{PurePath(file).name}:{line} {function}" for file, line, function in cause.path)
    code = f" [{cause.notice}]" if cause.notice else ""
    return f"{cause.category}{code} {cause.share:.0%} at {place or 'no place'}"


def _truth(part: Part, told: Told) -> str:
    share = true_share(part, told)
    amount = f" {share[0]:.0%} to {share[1]:.0%}" if share else ""
    return " or ".join(part.category) + amount + (f" at {' or '.join(part.at)}" if part.at else "")
