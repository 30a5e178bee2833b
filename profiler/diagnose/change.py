"""What changed between two breakdown passes: the category of idle or host time that went the way of the step time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler.base.units import seconds, share
from profiler.diagnose.words import WHILE, causes, main_site, place, waits_unseen
from profiler.run.model import Analysis

_NAMED: Final = 0.1
"""Share of the change in step time that a category must make up to be named beside it."""
_EXPLAINS: Final = 0.5
"""The same, to be named as its cause."""

_PARTS: Final = {"data": "waiting for data", "after the optimizer": "what follows the optimizer"}


@dataclass(frozen=True, slots=True)
class Change:
    """The category of time that went the way of the step time by most, from one breakdown pass to the other."""

    what: str
    amounts: str
    """`from 50% to 17% of a step`, and the line."""
    is_cause: bool
    """It makes up most of the change of the step time. Time that nothing recorded explains nothing."""


def largest_change(base: Analysis, side: Analysis, *, faster: bool) -> Change | None:
    """Of the device's idle time; where that is not known, of the host's. None where no category is worth naming.

    Host time that did not leave the device idle was hidden behind its work, and so explains nothing.

    :param faster: what the light runs say of `side`.
    """
    first, last = _step_time(base), _step_time(side)
    if not first or not last:
        return None
    sign = 1 if faster else -1
    whole = sign * (first - last)
    if base.phases and side.phases:
        return _of_parts(base, side, faster=faster, whole=whole)
    for seconds_of, title in ((_idle_seconds, _idle), (_host_seconds, _host)):
        before, after = seconds_of(base), seconds_of(side)
        if before is None or after is None:
            continue
        gains = {
            name: sign * (before.get(name, 0.0) - after.get(name, 0.0)) for name in dict.fromkeys((*before, *after))
        }
        name = max(gains, key=lambda key: gains[key], default="")
        if not name or gains[name] <= _NAMED * abs(whole):
            return None
        is_cause = gains[name] >= _EXPLAINS * whole > 0 and name != "unattributed"
        amounts = before.get(name, 0.0), after.get(name, 0.0)
        site = main_site(base if faster else side, name) if title is _idle else None
        where = f" ({place(site).removeprefix(' at ')})" if site else ""
        return Change(title(name), _amounts(amounts, (first, last), faster=faster) + where, is_cause)
    return None


def _of_parts(base: Analysis, side: Analysis, *, faster: bool, whole: float) -> Change | None:
    """The part of a step that changed most, in seconds: what was cured is a place, and not a kind of time."""
    before, after = ({part.name: part.seconds_per_step for part in one.phases} for one in (base, side))
    sign = 1 if faster else -1
    gains = {name: sign * (before.get(name, 0.0) - after.get(name, 0.0)) for name in dict.fromkeys((*before, *after))}
    name = max(gains, key=lambda key: gains[key])
    if gains[name] <= _NAMED * abs(whole):
        return None
    slow = base if faster else side
    site = next((part.site for part in slow.phases if part.name == name), None)
    there = [line for line in slow.lines if site and (line.site.file, line.site.line) == (site.file, site.line)]
    cost = f", {seconds(sum(line.seconds_per_step for line in there))}" if there else ""
    where = f" (most{place(site)}{cost})" if site else ""
    amounts = f"from {seconds(before.get(name, 0.0))}{where * faster} to {seconds(after.get(name, 0.0))}"
    is_cause = gains[name] >= _EXPLAINS * whole > 0 and name != "elsewhere"
    return Change(f"the time of {_PARTS.get(name, name)}", f"{amounts}{where * (not faster)} a step", is_cause)


def _amounts(amounts: tuple[float, float], steps: tuple[float, float], *, faster: bool) -> str:
    """Shares of a step, which recording distorts least; seconds, with the pass that they are of, where shares went
    the other way because the rest of the step shrank or grew even more."""
    first, last = (amount / step for amount, step in zip(amounts, steps, strict=True))
    if (first > last) is faster and share(first) != share(last):
        return f"from {share(first)} to {share(last)} of a step"
    return f"from {seconds(amounts[0])} to {seconds(amounts[1])} a step in the breakdown pass"


def _idle(category: str) -> str:
    return f"idle {WHILE[category]}"


def _host(category: str) -> str:
    return f"the host's {category} time"


def _idle_seconds(analysis: Analysis) -> dict[str, float] | None:
    """Idle seconds per step by the host category that they are charged to; None where this is not known."""
    idle = analysis.device_breakdown.get("idle")
    if not analysis.idle and (idle is None or idle.value != 0):
        return None
    totals: dict[str, float] = {}
    for row in causes(analysis):
        totals[row.category] = totals.get(row.category, 0.0) + row.seconds_per_step
    return totals


def _host_seconds(analysis: Analysis) -> dict[str, float] | None:
    """Without Python where that may be a wait."""
    known = {name: measure.value for name, measure in analysis.breakdown.items() if measure.value is not None}
    if waits_unseen(analysis):
        known.pop("python", None)
    return known or None


def _step_time(analysis: Analysis) -> float | None:
    measure = analysis.measures.get("step_time")
    return measure.value if measure else None
