"""What changed between two breakdown passes whose steps are known in parts: one of them, several, or all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profiler.analyse.model import Analysis
from profiler.core.units import seconds
from profiler.diagnose.changed import EXPLAINS, NAMED, Change
from profiler.diagnose.words import place
from profiler.run.model import Site

_ALONE: Final = 0.6
"""Share of what went the way of the step time that a part must make up to be named alone."""
_LISTED: Final = 3
_SMALL: Final = 0.05
"""Share of the slower step below which a part need not have changed for all parts to have changed."""
_CHANGED: Final = 0.1
"""Share of its own time by which a larger part must have."""
_UNEXPLAINED: Final = "elsewhere"
_DATA: Final = "waiting for data"
_TIMES: Final = {
    "data": f"the time of {_DATA}",
    "after the optimizer": "the time of what follows the optimizer",
    _UNEXPLAINED: "the time elsewhere",
}


def change_of_parts(base: Analysis, side: Analysis, *, faster: bool, whole: float) -> Change | None:
    """In seconds: what was cured is a place, and not a kind of time. None where no part is worth naming.

    :param faster: what the light runs say of `side`.
    :param whole: seconds a step from the fast side to the slow one; negative where the breakdown passes went the
        other way, and then no part explains it.
    """
    slow, fast = (base, side) if faster else (side, base)
    long, short = _parts(slow), _parts(fast)
    gains = {name: long.get(name, 0.0) - short.get(name, 0.0) for name in dict.fromkeys((*long, *short))}
    ordered = sorted(gains, key=lambda name: -gains[name])
    most = gains[ordered[0]]
    if most <= NAMED * abs(whole):
        return None
    if whole <= 0 or most > _ALONE * sum(gain for gain in gains.values() if gain > 0):
        return _of_one(ordered[0], slow, fast, faster=faster, whole=whole)
    named = [name for number, name in enumerate(ordered[:_LISTED]) if number < 2 or gains[name] > NAMED * whole]
    against = ordered[-1:] if gains[ordered[-1]] < -NAMED * whole else []
    is_all = _all_changed(long, short)
    sites = {} if is_all else _sites(slow)
    sign = -1 if faster else 1
    listed = ", ".join(_one_of_several(name, sign * gains[name], sites.get(name)) for name in named)
    listed += "".join(f", against {_one_of_several(name, sign * gains[name])}" for name in against)
    explained = sum(gains[name] for name in named if name != _UNEXPLAINED)
    return Change(
        "all parts" if is_all else "several parts",
        "shrank:" if faster else "grew:",
        f"{listed} (of {_signed(sign * whole)} a step)",
        is_cause=explained > _ALONE * whole and not is_all,
        several=True,
    )


def _of_one(name: str, slow: Analysis, fast: Analysis, *, faster: bool, whole: float) -> Change:
    """With the line under which most of it lies on the slow side."""
    long, short = _parts(slow).get(name, 0.0), _parts(fast).get(name, 0.0)
    site = _sites(slow).get(name)
    there = [line for line in slow.lines if site and (line.site.file, line.site.line) == (site.file, site.line)]
    cost = f", {seconds(sum(line.seconds_per_step for line in there))}" if there else ""
    slower = f"{seconds(long)}{_most(site, cost)}"
    first, last = (slower, seconds(short)) if faster else (seconds(short), slower)
    is_cause = long - short >= EXPLAINS * whole > 0 and name != _UNEXPLAINED
    what = _TIMES.get(name, f"the time of {name}")
    return Change(what, "fell" if faster else "rose", f"from {first} to {last} a step", is_cause)


def _all_changed(long: Mapping[str, float], short: Mapping[str, float]) -> bool:
    """Whether no part that counts stayed as it was: then no line is to blame, and none is named."""
    small = _SMALL * sum(long.values())
    every = [(long.get(name, 0.0), short.get(name, 0.0)) for name in {*long, *short}]
    return all(slow - fast > _CHANGED * slow for slow, fast in every if max(slow, fast) > small)


def _one_of_several(name: str, change: float, site: Site | None = None) -> str:
    return f"{_DATA if name == 'data' else name} {_signed(change)}{_most(site)}"


def _parts(analysis: Analysis) -> dict[str, float]:
    return {part.name: part.seconds_per_step for part in analysis.phases}


def _sites(analysis: Analysis) -> dict[str, Site | None]:
    return {part.name: part.site for part in analysis.phases}


def _most(site: Site | None, cost: str = "") -> str:
    return f" (most{place(site)}{cost})" if site else ""


def _signed(value: float) -> str:
    return f"{'+' * (value > 0)}{seconds(value)}"
