"""A step in coarse parts: data, forward, backward, optimizer, what follows the optimizer, and the rest.

Data, backward and optimizer are recorded exactly. What of the rest is forward, or comes after the optimizer, samples
say: by the model's frames, and by lines which stand below the call of the optimizer, in the function that makes it or
in those around it. An evaluation after the step is not forward, though it calls the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from profiler.analyse.blocks import Floats, effective
from profiler.analyse.covers import LOADING
from profiler.analyse.evidence import Evidence
from profiler.analyse.frames import BACKWARD, BETWEEN, DATA, FORWARD, OPTIMIZER, USER, kind_of
from profiler.analyse.gil import wilson
from profiler.analyse.host import HostTimeline
from profiler.analyse.lines import folder_of, shown
from profiler.analyse.model import Phase
from profiler.analyse.places import Places, places_of
from profiler.analyse.stacks import weighted
from profiler.analyse.timeline import Intervals, intersect, subtract, union
from profiler.analyse.window import NS_PER_S, Window
from profiler.run.model import Run, Site, StepKind

AFTER, ELSEWHERE = "after the optimizer", "elsewhere"
ORDER: Final = (DATA, FORWARD, BACKWARD, OPTIMIZER, AFTER, ELSEWHERE)
_RARE: Final = 0.05
"""Share of the samples of the commonest line below which a line that calls an optimizer is left aside."""
_Frames = tuple[Site, ...]
_Place = tuple[Site | None, str]
_Loop = Mapping[tuple[str, str], int]
"""File and function -> its line, of the user's functions on the way to the optimizer."""


def phases(run: Run, window: Window, host: HostTimeline, seen: Evidence | None) -> tuple[Phase, ...]:
    """The parts of a step in their order; none where nothing was sampled."""
    if seen is None or not len(window):
        return ()
    named, places = _named(run, seen)
    exact = _exact(run, window, host)
    total = {name: float(exact[name].measure()) for name in (DATA, BACKWARD)}
    low, high, optimizer = dict(total), dict(total), float(exact[OPTIMIZER].measure())
    # an optimizer that calls the model back has more in it than itself
    pools = ((True, optimizer), (False, window.wall_ns - sum(total.values()) - optimizer))
    for inside, ns in pools:
        weights = {
            name: weight
            for (name, within), weight in named.items()
            if within == inside and name not in (DATA, BACKWARD)
        }
        whole = np.asarray(sum(weights.values()), np.float64)
        if not whole.any():
            whole = np.ones(1)
            weights = {OPTIMIZER if inside else ELSEWHERE: whole}
        n = seen.n * float(whole.sum() / seen.raw.sum())
        for name, weight in weights.items():
            share = float(weight.sum() / whole.sum())
            several = len(weights) > 1
            ends = wilson(share, effective(weight, whole, n, seen.blocks.unseen)) if several else (1.0, 1.0)
            total[name] = total.get(name, 0.0) + ns * share
            low[name] = low.get(name, 0.0) + ns * ends[0]
            high[name] = high.get(name, 0.0) + ns * ends[1]
    wall, folder = window.wall_ns, folder_of(run)
    return tuple(
        Phase(
            name, total[name] / len(window) / NS_PER_S, total[name] / wall, low[name] / wall, high[name] / wall,
            *_told(places.get(name, {}), folder),
        )
        for name in ORDER
        if total.get(name)
    )  # fmt: skip


def _exact(run: Run, window: Window, host: HostTimeline) -> dict[str, Intervals]:
    """The measured time in each recorded phase; one that lies in another counts as the first of data, backward."""
    found, taken = {}, Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for name, regions in ((DATA, LOADING), (BACKWARD, (BACKWARD,)), (OPTIMIZER, (OPTIMIZER,))):
        numbers = [number for number, text in enumerate(run.names) if text in regions]
        rows = host.regions[np.isin(host.regions["name"], numbers)]
        inside = intersect(window.spans, union(rows["begin"], rows["end"]))
        found[name] = subtract(inside, taken)
        taken = union(np.concatenate([taken.begin, inside.begin]), np.concatenate([taken.end, inside.end]))
    return found


def _named(run: Run, seen: Evidence) -> tuple[Mapping[tuple[str, bool], Floats], Mapping[str, Mapping[_Place, float]]]:
    """ns of samples of each phase within and without an optimizer, and of each phase the lines that it lies under.

    Those of phases are told by block of time.
    """
    weight = seen.blocks.by(seen.stack)
    packages = places_of(run)
    # steps that the program marks need not end with an optimizer's: then nothing comes after it
    loop = {} if run.step and run.step.kind is StepKind.MARKED else _loop(run, seen, packages)
    named: dict[tuple[str, bool], Floats] = {}
    places: dict[str, dict[_Place, float]] = {}
    for one, stack in seen.stacks.items():
        name, frames = stack.phase, run.stack_frames[one]
        place: _Place = (stack.site if kind_of(stack.site.file, packages) == USER else None, "")
        if name in (BETWEEN, FORWARD):
            below = _after(frames, loop)
            if below is not None:
                name = AFTER
                place = frames[below], _called(frames[below + 1 :], packages)
            elif name == BETWEEN:
                name = ELSEWHERE
        key = name, stack.in_optimizer
        named[key] = named.get(key, 0.0) + weight[one]
        of = places.setdefault(name, {})
        of[place] = of.get(place, 0.0) + float(weight[one].sum())
    return named, places


def _loop(run: Run, seen: Evidence, packages: Places) -> _Loop:
    """The way to the call of the optimizer; of several calls (a GAN's) to the one whose samples end a step."""
    steppers = {
        one: stack.site
        for one, stack in seen.stacks.items()
        if stack.phase == OPTIMIZER and kind_of(stack.site.file, packages) == USER
    }
    samples, weight = weighted(run, seen.window)
    mine = np.isin(samples["stack"], list(steppers))
    samples, weight = samples[mine], weight[mine]
    end = seen.window.end
    ends = end[np.minimum(np.searchsorted(end, samples["begin"]), len(end) - 1)]
    before = np.maximum(0, ends - samples["begin"])
    totals = np.bincount(samples["stack"], weight)
    waits = np.bincount(samples["stack"], weight * before)
    found: dict[Site, tuple[float, float]] = {}
    for one in np.flatnonzero(totals).tolist():
        total, apart = found.get(steppers[one], (0.0, 0.0))
        found[steppers[one]] = total + float(totals[one]), apart + float(waits[one])
    most = max((total for total, _ in found.values()), default=0.0)
    often = [site for site, (total, _) in found.items() if total >= _RARE * most]
    last = min(often, key=lambda site: found[site][1] / found[site][0], default=None)
    ways = [one for one, site in steppers.items() if site == last and totals[one] > 0] if last else []
    if not ways:
        return {}
    frames = run.stack_frames[max(ways, key=lambda one: totals[one])]
    return {
        (site.file, site.function): site.line
        for site in frames[: frames.index(last) + 1]
        if kind_of(site.file, packages) == USER
    }


def _after(frames: _Frames, loop: _Loop) -> int | None:
    """Index of the frame that has left the way to the optimizer below it; None where it left above, or did not."""
    for number, site in enumerate(frames):
        line = loop.get((site.file, site.function), site.line)
        if site.line != line:
            return number if site.line > line else None
    return None


def _called(below: _Frames, packages: Places) -> str:
    """The user's own function that a line calls directly."""
    return below[0].function if below and kind_of(below[0].file, packages) == USER else ""


def _told(places: Mapping[_Place, float], folder: str) -> _Place:
    if not places:
        return None, ""
    site, calls = max(places, key=lambda place: places[place])
    return (shown(site, folder) if site else None), calls
