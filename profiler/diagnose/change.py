"""What changed between two breakdown passes: the parts, or the category of idle or host time, that went the way of the
step time.
"""

from __future__ import annotations

from profiler.analyse.model import Analysis
from profiler.core.units import seconds, share
from profiler.diagnose.change_of_parts import change_of_parts
from profiler.diagnose.changed import EXPLAINS, NAMED, Change
from profiler.diagnose.words import WHILE, causes, main_site, place, waits_unseen


def largest_change(base: Analysis, side: Analysis, *, faster: bool) -> Change | None:
    """Of the parts of a step; where these are not known, of the device's idle time, else of the host's.

    None where nothing is worth naming.

    Host time that did not leave the device idle was hidden behind its work, and so explains nothing.

    :param faster: what the light runs say of `side`.
    """
    first, last = _step_time(base), _step_time(side)
    if not first or not last:
        return None
    sign = 1 if faster else -1
    whole = sign * (first - last)
    if base.phases and side.phases:
        return change_of_parts(base, side, faster=faster, whole=whole)
    for seconds_of, title in ((_idle_seconds, _idle), (_host_seconds, _host)):
        before, after = seconds_of(base), seconds_of(side)
        if before is None or after is None:
            continue
        gains = {
            name: sign * (before.get(name, 0.0) - after.get(name, 0.0)) for name in dict.fromkeys((*before, *after))
        }
        name = max(gains, key=lambda key: gains[key], default="")
        if not name or gains[name] <= NAMED * abs(whole):
            return None
        is_cause = gains[name] >= EXPLAINS * whole > 0 and name != "unattributed"
        amounts = before.get(name, 0.0), after.get(name, 0.0)
        site = main_site(base if faster else side, name) if title is _idle else None
        where = f" ({place(site).removeprefix(' at ')})" if site else ""
        said = _amounts(amounts, (first, last), faster=faster) + where
        return Change(title(name), "fell" if faster else "rose", said, is_cause)
    return None


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
