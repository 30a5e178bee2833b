"""The phases of a step: data, forward, backward, optimizer, what follows the optimizer, and elsewhere.

Data, backward and optimizer are recorded exactly. Samples tell what of the remaining time is forward, or comes after
the optimizer: by the model's frames, and by lines that stand below the call of the optimizer, in the function that
makes it or in those around it. An evaluation after the step is not forward, though it calls the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from profiler.analyse.intervals import Intervals, intersect, subtract, union
from profiler.analyse.model import AFTER_OPTIMIZER, ELSEWHERE, Phase
from profiler.analyse.sampling.attribute import ClassifiedSamples
from profiler.analyse.sampling.batch_means import effective_sample_size
from profiler.analyse.sampling.code_origin import (
    USER,
    PackageFolders,
    code_owner,
    package_folders,
    relative_site,
    working_folder,
)
from profiler.analyse.sampling.frames import BACKWARD, BETWEEN, DATA, FORWARD, OPTIMIZER
from profiler.analyse.sampling.stacks import weighted_samples
from profiler.analyse.sampling.strata import LOADING, Floats
from profiler.analyse.statistics import share_interval
from profiler.analyse.timing.host_timeline import HostTimeline
from profiler.analyse.window import NS_PER_S, Window
from profiler.run.model import Run, Site, StepKind

ORDER: Final = (DATA, FORWARD, BACKWARD, OPTIMIZER, AFTER_OPTIMIZER, ELSEWHERE)
_RARE: Final = 0.05
"""Share of the samples of the commonest line below which a line that calls an optimizer is ignored."""
_Frames = tuple[Site, ...]
_Line = tuple[Site | None, str]
"""A line, and the user's function that it calls."""
_Loop = Mapping[tuple[str, str], int]
"""(file, function) -> the line at which that function of the user leads to the optimizer call."""


def phases(run: Run, window: Window, host: HostTimeline, samples: ClassifiedSamples | None) -> tuple[Phase, ...]:
    """The phases of a step in their order; none where nothing was sampled."""
    if samples is None or not len(window):
        return ()
    sampled, lines = _sampled_phases(run, samples)
    exact = _exact_phases(run, window, host)
    total = {name: float(exact[name].measure()) for name in (DATA, BACKWARD)}
    low, high, optimizer = dict(total), dict(total), float(exact[OPTIMIZER].measure())
    # an optimizer that calls the model (a closure) contains forward and backward time too
    pools = ((True, optimizer), (False, window.wall_ns - sum(total.values()) - optimizer))
    for inside, ns in pools:
        weights = {
            name: weight
            for (name, within), weight in sampled.items()
            if within == inside and name not in (DATA, BACKWARD)
        }
        pool = np.asarray(sum(weights.values()), np.float64)
        if not pool.any():
            pool = np.ones(1)
            weights = {OPTIMIZER if inside else ELSEWHERE: pool}
        n = samples.n * float(pool.sum() / samples.ns.sum())
        for name, weight in weights.items():
            share, ends = float(weight.sum() / pool.sum()), (1.0, 1.0)
            if len(weights) > 1:
                ends = share_interval(share, effective_sample_size(weight, pool, n, samples.batches.unsampled))
            total[name] = total.get(name, 0.0) + ns * share
            low[name] = low.get(name, 0.0) + ns * ends[0]
            high[name] = high.get(name, 0.0) + ns * ends[1]
    wall, folder = window.wall_ns, working_folder(run)
    return tuple(
        Phase(
            name, total[name] / len(window) / NS_PER_S, total[name] / wall, low[name] / wall, high[name] / wall,
            *_main_line(lines.get(name, {}), folder),
        )
        for name in ORDER
        if total.get(name)
    )  # fmt: skip


def _exact_phases(run: Run, window: Window, host: HostTimeline) -> dict[str, Intervals]:
    """The measured time in each recorded phase; nested ones count as data if data is among them, else as backward."""
    nothing = np.zeros(0, np.int64)
    exact, earlier = {}, Intervals(nothing, nothing)
    for name, regions in ((DATA, LOADING), (BACKWARD, (BACKWARD,)), (OPTIMIZER, (OPTIMIZER,))):
        numbers = [number for number, text in enumerate(run.names) if text in regions]
        rows = host.regions[np.isin(host.regions["name"], numbers)]
        inside = intersect(window.spans, union(rows["begin"], rows["end"]))
        exact[name] = subtract(inside, earlier)
        earlier = union(np.concatenate([earlier.begin, inside.begin]), np.concatenate([earlier.end, inside.end]))
    return exact


def _sampled_phases(
    run: Run, samples: ClassifiedSamples
) -> tuple[Mapping[tuple[str, bool], Floats], Mapping[str, Mapping[_Line, float]]]:
    """ns of samples of each phase within and without an optimizer by batch of time, and the lines of each phase."""
    weight = samples.batches.sum_by(samples.stack)
    folders = package_folders(run)
    # steps that the program marks need not end with an optimizer's: then nothing comes after it
    is_marked = run.step is not None and run.step.kind is StepKind.MARKED
    loop = {} if is_marked else _way_to_optimizer(run, samples, folders)
    sampled: dict[tuple[str, bool], Floats] = {}
    lines: dict[str, dict[_Line, float]] = {}
    for number, stack in samples.stacks.items():
        name, frames = stack.phase, run.stack_frames[number]
        line: _Line = (stack.site if code_owner(stack.site.file, folders) == USER else None, "")
        if name in (BETWEEN, FORWARD):
            below = _left_loop(frames, loop)
            if below is not None:
                name = AFTER_OPTIMIZER
                line = frames[below], _called_function(frames[below + 1 :], folders)
            elif name == BETWEEN:
                name = ELSEWHERE
        key = name, stack.in_optimizer
        sampled[key] = sampled.get(key, 0.0) + weight[number]
        sums = lines.setdefault(name, {})
        sums[line] = sums.get(line, 0.0) + float(weight[number].sum())
    return sampled, lines


def _way_to_optimizer(run: Run, samples: ClassifiedSamples, folders: PackageFolders) -> _Loop:
    """The way to the call of the optimizer; of several calls (a GAN's) to the one whose samples end a step."""
    steppers = {
        number: stack.site
        for number, stack in samples.stacks.items()
        if stack.phase == OPTIMIZER and code_owner(stack.site.file, folders) == USER
    }
    rows, weight = weighted_samples(run, samples.window)
    in_optimizer = np.isin(rows["stack"], list(steppers))
    rows, weight = rows[in_optimizer], weight[in_optimizer]
    step_ends = samples.window.end
    ends = step_ends[np.minimum(np.searchsorted(step_ends, rows["begin"]), len(step_ends) - 1)]
    before_end = np.maximum(0, ends - rows["begin"])
    totals = np.bincount(rows["stack"], weight)
    distances = np.bincount(rows["stack"], weight * before_end)
    sums: dict[Site, tuple[float, float]] = {}
    for number in np.flatnonzero(totals).tolist():
        total, distance = sums.get(steppers[number], (0.0, 0.0))
        sums[steppers[number]] = total + float(totals[number]), distance + float(distances[number])
    largest = max((total for total, _ in sums.values()), default=0.0)
    common = [site for site, (total, _) in sums.items() if total >= _RARE * largest]
    last = min(common, key=lambda site: sums[site][1] / sums[site][0], default=None)
    ways = [number for number, site in steppers.items() if site == last and totals[number] > 0] if last else []
    if not ways:
        return {}
    frames = run.stack_frames[max(ways, key=lambda number: totals[number])]
    return {
        (site.file, site.function): site.line
        for site in frames[: frames.index(last) + 1]
        if code_owner(site.file, folders) == USER
    }


def _left_loop(frames: _Frames, loop: _Loop) -> int | None:
    """Index of the frame that leaves the way to the optimizer below it; None where it leaves above, or does not."""
    for number, site in enumerate(frames):
        line = loop.get((site.file, site.function), site.line)
        if site.line != line:
            return number if site.line > line else None
    return None


def _called_function(below: _Frames, folders: PackageFolders) -> str:
    """The user's function that a line calls directly."""
    return below[0].function if below and code_owner(below[0].file, folders) == USER else ""


def _main_line(lines: Mapping[_Line, float], folder: str) -> _Line:
    if not lines:
        return None, ""
    site, calls = max(lines, key=lambda line: lines[line])
    return (relative_site(site, folder) if site else None), calls
