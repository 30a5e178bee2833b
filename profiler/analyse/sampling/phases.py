"""Finds the phases of a step: data, forward, backward, optimizer, evaluation, what follows the update, and elsewhere.

Data, backward, optimizer and the stages that interrupt training (evaluation, roll-out, compilation) are recorded
exactly; what runs within such a stage is a part of it. Samples tell what of the remaining time is forward, or comes
after the optimizer: by the model's frames, and by lines that stand below the calls of optimizers and backward passes,
in the functions that make them or in those around them. What runs after the step is not forward, though it may call the
model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, intersect, subtract, union
from profiler.analyse.model.host import AFTER_OPTIMIZER, ELSEWHERE, INTERRUPTIONS, Phase, Stage
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.sampling.frames import BACKWARD, BETWEEN, DATA, FORWARD, OPTIMIZER
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import LOADING, Function, Stacks, function_of
from profiler.analyse.sampling.stages import StageSpans
from profiler.analyse.statistics import effective_sample_size, share_interval
from profiler.analyse.timing.host_timeline import HostTimeline
from profiler.analyse.window import NS_PER_S, Window, named_rows
from profiler.run.model import Run, Site, StepKind
from profiler.run.tables import OPERATORS

ORDER: Final = (DATA, FORWARD, BACKWARD, OPTIMIZER, *INTERRUPTIONS, AFTER_OPTIMIZER, ELSEWHERE)
_OF_STAGE: Final = 0.8
"""Share of a line's samples within a stage from which the line is work of that stage only. The sampler's clock is
accurate to milliseconds, so some samples of short stages seem to lie outside of them."""
_OF_LOOP: Final = 0.9
"""Share of the samples without any stage from which a line is a part of the loop."""
RARE: Final = 0.05
"""Share of the samples of the commonest line below which a line that calls an optimizer, or a backward pass, is
ignored."""
_DECORATORS: Final = "/torch/utils/_contextlib.py"
"""The file of torch's frames around a function that is decorated with `torch.no_grad()` or the like."""
_MAX_LINES: Final = 3
_OF_PHASE: Final = 0.1
"""Share of a phase below which a line of it is not named."""
_Line = tuple[Site | None, str]
"""A line, and the user's function that it calls."""
_Loop = Mapping[tuple[str, str], int]
"""(file, function) -> the last line at which that function of the user leads to an update."""


def phases(
    stacks: Stacks, window: Window, host: HostTimeline, samples: ClassifiedSamples | None, stages: StageSpans
) -> tuple[Phase, ...]:
    """Return the phases of a step in their order; none where nothing was sampled."""
    if samples is None:
        return ()
    sampled, lines, within_phase = sampled_phases(stacks, samples, stages)
    # total, low and high ns of each phase
    exact = exact_phases(stacks.run, window, host, stages)
    ns = {name: np.full(3, float(spans.measure())) for name, spans in exact.items()}
    optimizer = ns.pop(OPTIMIZER)[0]
    # an optimizer that calls the model (a closure) contains forward and backward time too
    remaining = {True: optimizer, False: window.wall_ns - sum(total for total, _, _ in ns.values()) - optimizer}
    for in_optimizer, pool_ns in remaining.items():
        weights = {
            name: weight
            for (name, within), weight in sampled.items()
            if within == in_optimizer and name not in (DATA, BACKWARD)
        }
        pool = np.asarray(sum(weights.values()), np.float64)
        if not pool.any():
            pool = np.ones(1)
            weights = {OPTIMIZER if in_optimizer else ELSEWHERE: pool}
        n = samples.n * float(pool.sum() / samples.ns.sum())
        for name, weight in weights.items():
            share, ends = float(weight.sum() / pool.sum()), (1.0, 1.0)
            if len(weights) > 1:
                ends = share_interval(share, effective_sample_size(weight, pool, n, samples.batches.unsampled))
            ns[name] = ns.get(name, np.zeros(3)) + pool_ns * np.array([share, *ends])
    rows = []
    for name in ORDER:
        total, low, high = ns.get(name, np.zeros(3)).tolist()
        if total:
            (site, calls), further = _main_lines(lines.get(name, {}), stacks)
            seconds = total / len(window) / NS_PER_S
            categories = _categories(samples, within_phase[str(name)], seconds) if name in within_phase else {}
            share, low, high = (end / window.wall_ns for end in (total, low, high))
            is_stage = name in stages.spans
            steps = int((stages.covered(Stage(name), window.begin, window.end) > 0).sum()) if is_stage else 0
            rows.append(Phase(str(name), seconds, share, low, high, site, calls, categories, further, steps))
    return tuple(rows)


def _categories(samples: ClassifiedSamples, within: Floats, seconds: float) -> dict[str, float]:
    """Return the seconds of a phase by host category; `within` is the share of each stack's samples that lies in the
    phase."""
    ns = (samples.ns * within[samples.stack]) @ samples.line_shares
    total = float(ns.sum())
    return {
        name: seconds * amount / total for name, amount in zip(HOST_CATEGORIES, ns.tolist(), strict=True) if amount > 0
    }


def _main_lines(lines: Mapping[_Line, float], stacks: Stacks) -> tuple[_Line, tuple[Site, ...]]:
    """Return the line with more than half of a phase; where there is none, the lines with most of it."""
    total = sum(lines.values())
    if not total:  # all of it lies in an evaluation or a compilation
        return (None, ""), ()
    shares = [
        (stacks.relative(site), calls, ns / total)
        for (site, calls), ns in sorted(lines.items(), key=lambda item: -item[1])[:_MAX_LINES]
        if site is not None and ns >= _OF_PHASE * total
    ]
    if shares and shares[0][2] > 1 / 2:
        return shares[0][:2], ()
    if any(ns > total / 2 for ns in lines.values()):  # of lines that are not the user's
        return (None, ""), ()
    return (None, ""), tuple(site for site, _, _ in shares)


def exact_phases(run: Run, window: Window, host: HostTimeline, stages: StageSpans) -> dict[str, Intervals]:
    """Return the measured time in each recorded phase; nested ones count as the stage that interrupts training or as
    data if these are among them, else as backward."""
    recorded: dict[str, Intervals] = {stage: stages.spans[stage] for stage in INTERRUPTIONS}
    for name, regions in ((DATA, LOADING), (BACKWARD, (BACKWARD,)), (OPTIMIZER, (OPTIMIZER,))):
        rows = named_rows(run, host.regions, *regions)
        recorded[name] = union(rows["begin"], rows["end"])
    exact, earlier = {}, union([], [])
    for name, spans in recorded.items():
        inside = intersect(window.spans, spans)
        exact[name] = subtract(inside, earlier)
        earlier = union(np.concatenate([earlier.begin, inside.begin]), np.concatenate([earlier.end, inside.end]))
    return exact


def sampled_phases(
    stacks: Stacks, samples: ClassifiedSamples, stages: StageSpans
) -> tuple[Mapping[tuple[str, bool], Floats], Mapping[str, Mapping[_Line, float]], Mapping[str, Floats]]:
    """Return the ns of samples of each phase within and without an optimizer by batch of time, the lines of each phase,
    and for the optimizer, what follows it and each stage the share of every stack's samples that lies in it."""
    weight, run = samples.batches.sum_by(samples.stack), stacks.run
    # steps that the program marks need not end with an optimizer's: then nothing comes after it
    is_marked = run.step is not None and run.step.kind is StepKind.MARKED
    rows, row_weight = stacks.weighted_samples(samples.window)
    loop = {} if is_marked else _way_to_last_update(stacks, samples)
    shares = {
        stage: stages.sample_shares(stage, rows, row_weight, len(run.stack_frames))
        for stage in INTERRUPTIONS
        if len(stages.spans[stage])
    }
    interrupted = np.asarray(sum(shares.values(), start=np.zeros(len(run.stack_frames))))
    updates, after = np.zeros((2, len(run.stack_frames)))
    sampled: dict[tuple[str, bool], Floats] = {}
    lines: defaultdict[str, defaultdict[_Line, float]] = defaultdict(lambda: defaultdict(float))
    for number, stack in samples.stacks.items():
        name, frames = stack.phase, run.stack_frames[number]
        line: _Line = (stack.site if stacks.is_user(stack.site) else None, "")
        if name in (BETWEEN, FORWARD):
            below = _left_loop(frames, loop)
            if below is not None:
                called = (site for site in frames[below + 1 :] if not site.file.endswith(_DECORATORS))
                callee = next(called, None)
                name = AFTER_OPTIMIZER
                line = frames[below], callee.function if callee and stacks.is_user(callee) else ""
            elif name == BETWEEN:
                name = ELSEWHERE
        key, remaining = (name, stack.in_optimizer), 1.0 - min(1.0, float(interrupted[number]))
        sampled[key] = sampled.get(key, 0.0) + weight[number] * remaining
        lines[name][line] += float(weight[number].sum()) * remaining
        updates[number] = remaining if name == OPTIMIZER else 0.0
        after[number] = remaining if name == AFTER_OPTIMIZER else 0.0
    ns = weight.sum(axis=1)
    for stage, share in shares.items():
        sampled_ns = {number: ns[number] for number in samples.stacks}
        for line, amount in _entry_lines(stacks, sampled_ns, share, interrupted).items():
            lines[stage][line] += amount
    return (
        sampled,
        lines,
        {**{str(stage): share for stage, share in shares.items()}, OPTIMIZER: updates, AFTER_OPTIMIZER: after},
    )


def _entry_lines(stacks: Stacks, ns: Mapping[int, float], share: Floats, interrupted: Floats) -> dict[_Line, float]:
    """Return the lines through which the program enters a stage, with the function that each calls, and their ns: for
    each stack of the stage its outermost line of the user that is work of such stages only, and not a part of the loop.
    Where nearly all of that work is in one function below, which does only that, it is the line that calls it.

    Where a library runs training and the stage below one line of the user, it is a line of that library.

    :param share: of each stack, the share of its samples in the stage.
    :param interrupted: the same for all stages that interrupt training: what a library does between two of them, such
        as its logging in an evaluation, may seem to be another one.
    """
    interrupted = np.minimum(interrupted, 1.0)
    other_ns = sum(amount * (1 - interrupted[number]) for number, amount in ns.items())
    user = {number: [site for site in stacks.run.stack_frames[number] if stacks.is_user(site)] for number in ns}
    library = {number: stacks.library_frames(number) for number in ns}
    below: defaultdict[Site, npt.NDArray[np.float64]] = defaultdict(lambda: np.zeros(2))
    for number in ns:
        for site in {*user[number], *library[number]}:
            below[site] += ns[number] * interrupted[number], ns[number]

    def entry(sites: Sequence[Site]) -> _Line | None:
        for at, (inside, total) in enumerate(below[site] for site in sites):
            if inside >= _OF_STAGE * total and total - inside <= _OF_LOOP * other_ns:
                return sites[at], sites[at + 1].function if at + 1 < len(sites) else ""
        return None

    entries: defaultdict[_Line, float] = defaultdict(float)
    ways: defaultdict[Site, list[tuple[float, Sequence[Site]]]] = defaultdict(list)
    for number, sites in user.items():
        if not share[number] or not sites:
            continue
        driver = (sites[0], sites[1].function if len(sites) > 1 else "") if len(set(sites)) == 1 else (None, "")
        line = entry(sites) or (entry(library[number]) if driver[0] else None) or driver
        amount = ns[number] * float(share[number])
        entries[line] += amount
        if line[0] in sites:
            ways[line[0]].append((amount, sites[sites.index(line[0]) :]))
    times: defaultdict[Function, npt.NDArray[np.float64]] = defaultdict(lambda: np.zeros(2))
    for number, sites in user.items():
        for function in set(map(function_of, sites)):
            times[function] += ns[number] * interrupted[number], ns[number]
    only = {function for function, (inside, total) in times.items() if inside >= _OF_STAGE * total}
    calls = {line: last_common_call(way, only) for line, way in ways.items()}
    common: defaultdict[_Line, float] = defaultdict(float)
    for entered, amount in entries.items():
        called = calls.get(entered[0]) if entered[0] else None
        common[called or entered] += amount
    return common


def last_common_call(ways: Sequence[tuple[float, Sequence[Site]]], only: Collection[Function]) -> _Line | None:
    """Return the innermost line of nearly all of these stacks that calls one of the functions `only`, with its name.

    :param ways: ns of each stack, and its lines of the user from a common one on.
    """
    least, last = _OF_STAGE * sum(amount for amount, _ in ways), None
    while True:
        calls: defaultdict[tuple[Site, Function], float] = defaultdict(float)
        for amount, sites in ways:
            function = function_of(sites[1]) if len(sites) > 1 else None
            if function and function in only and function != function_of(sites[0]):
                calls[sites[0], function] += amount
        (site, function), largest = max(calls.items(), key=itemgetter(1), default=((None, ("", "")), 0.0))
        if site is None or largest < least:
            return last
        last = site, function[1]
        ways = [(amount, sites[1:]) for amount, sites in ways if sites[0] == site and len(sites) > 1]


def _way_to_last_update(stacks: Stacks, samples: ClassifiedSamples) -> _Loop:
    """Return the way to the last update of a step: in each function the last of the lines that lead to an optimizer's
    step or to a backward pass, because a step may have several of both (a GAN's)."""
    totals = {phase: defaultdict[Site, float](float) for phase in (OPTIMIZER, BACKWARD)}
    ways: dict[Site, tuple[Site, ...]] = {}
    ns = np.bincount(samples.stack, samples.ns)
    for number, stack in samples.stacks.items():
        if stack.phase in totals and stacks.is_user(stack.site):
            frames = stacks.run.stack_frames[number]
            totals[stack.phase][stack.site] += float(ns[number])
            ways[stack.site] = frames[: frames.index(stack.site) + 1]
    loop = {} if totals[OPTIMIZER] else _counted_updates(stacks, samples)
    if not totals[OPTIMIZER] and not loop:
        return {}
    for by_site in totals.values():
        largest = max(by_site.values(), default=0.0)
        for site in (site for site, total in by_site.items() if total >= RARE * largest):
            for frame in filter(stacks.is_user, ways[site]):
                function = (frame.file, frame.function)
                loop[function] = max(frame.line, loop.get(function, 0))
    return loop


def _counted_updates(stacks: Stacks, samples: ClassifiedSamples) -> dict[Function, int]:
    """Return the same for an optimizer that is too fast for samples, by the operators that it was counted to call. The
    counts name functions without their classes, so functions of the same name are left out."""
    fact = stacks.run.info.facts.get(OPERATORS)
    rows = fact.get("lines", []) if isinstance(fact, Mapping) else []
    sampled = {site for number in samples.stacks for site in stacks.run.stack_frames[number] if stacks.is_user(site)}
    functions: defaultdict[Function, set[str]] = defaultdict(set)
    for site in sampled:
        functions[site.file, site.function.rpartition(".")[2]].add(site.function)
    loop: dict[Function, int] = {}
    for frames, is_backward, caller, *_ in rows:
        for site in (Site(*frame) for frame in frames) if caller == OPTIMIZER and not is_backward else ():
            names = functions[site.file, site.function.rpartition(".")[2]]
            for name in names if len(names) == 1 else ():
                loop[site.file, name] = max(site.line, loop.get((site.file, name), site.line))
    return loop


def _left_loop(frames: tuple[Site, ...], loop: _Loop) -> int | None:
    """Return the index of the frame that leaves the way to the last update below it; None where it leaves above, or
    does not."""
    for number, site in enumerate(frames):
        line = loop.get((site.file, site.function), site.line)
        if site.line != line:
            return number if site.line > line else None
    return None
