"""Finds lines of interest: of the loop that a library runs, of what comes before the model, of a thread."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import INTERRUPTIONS, Driver, OperatorLine, Preparation, ThreadState
from profiler.analyse.model.measures import UNATTRIBUTED, Measure
from profiler.analyse.sampling.frames import BETWEEN, FORWARD, Stack, callee_name
from profiler.analyse.sampling.lines import OutsideTorch, StackCosts
from profiler.analyse.sampling.phases import RARE, last_common_call
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import Function, Stacks, function_of
from profiler.analyse.sampling.stages import StageSpans
from profiler.analyse.statistics import share_interval
from profiler.analyse.timing.host_timeline import CODE
from profiler.analyse.window import NS_PER_S
from profiler.run.code_origin import LIBRARY, TORCH, code_owner
from profiler.run.model import Site

MOST: Final = 0.5
"""Share of all samples that a line, and each function below it, must exceed."""
MIN_SAMPLES: Final = 5.0
"""Samples below which nothing is named: even if all are at one line, less than half of the time may be there."""
SAME: Final = 0.95
"""If the shares of two nested functions differ by less than this factor, only the inner one is named."""


def find_driver(stacks: Stacks, samples: ClassifiedSamples | None) -> Driver | None:
    """Return the line that holds most of the measured time, where that is in functions of a library; None: there is
    none."""
    if samples is None or samples.n < MIN_SAMPLES:
        return None
    total = np.bincount(samples.stack, samples.weight)
    weights = {number: float(total[number]) for number in samples.stacks if total[number] > 0}
    whole, lines = sum(weights.values()), defaultdict[Site, list[int]](list)
    for number in weights:
        for site in stacks.user_frames(number)[-1:]:
            lines[site].append(number)
    for site, numbers in lines.items():
        below = sum(weights[number] for number in numbers)
        if below > MOST * whole and (functions := _functions(stacks, weights, numbers)):
            return Driver(stacks.relative(site), min(1.0, below / whole), functions)
    return None


def _functions(stacks: Stacks, weights: Mapping[int, float], numbers: Iterable[int]) -> tuple[tuple[str, float], ...]:
    """Return the library's functions in these stacks that hold most of the time, from the outside inward."""
    total = sum(weights.values())
    below = {number: tuple(map(function_of, stacks.library_frames(number))) for number in numbers}
    path = _descend({number: weights[number] for number in below}, below.__getitem__, MOST * total)
    names = list[tuple[str, float]]()
    for depth in range(1, len(path) + 1):
        ns = sum(weights[number] for number, frames in below.items() if frames[:depth] == path[:depth])
        name = callee_name(Site(path[depth - 1][0], 0, path[depth - 1][1]), stacks.folders)
        if names and ns / total >= SAME * names[-1][1]:
            names.pop()
        names.append((name, ns / total))
    return tuple(names)


def _descend(
    weights: Mapping[int, float], functions: Callable[[int], Iterable[Function]], most: float
) -> tuple[Function, ...]:
    """Return the functions that a chain of calls from the outside inward has in common, as long as it holds more than
    `most` ns."""
    paths = {number: tuple(functions(number)) for number in weights}
    path: tuple[Function, ...] = ()
    while True:
        children = defaultdict[Function, float](float)
        for number, frames in paths.items():
            if len(frames) > len(path) and frames[: len(path)] == path:
                children[frames[len(path)]] += weights[number]
        child, ns = max(children.items(), key=lambda item: item[1], default=(None, 0.0))
        if child is None or ns <= most:
            return path
        path = (*path, child)


# ---------------------------------------------------------------- what comes before the model

_MOSTLY: Final = 0.5
"""Share of a line, or of a stack, that decides what it is."""
_NEARLY_ALL: Final = 0.75
"""Share of a function's time from which the rest of it, such as Python that frees its arrays, has the same purpose. A
choice between half and all."""
_WAITS: Final = [CODE["waiting"], CODE["ranks"], CODE["gil"]]
_Numbers = npt.NDArray[Any]


def preparation(
    stacks: Stacks, samples: ClassifiedSamples | None, stages: StageSpans, operators: Collection[OperatorLine]
) -> Preparation | None:
    """Return what is computed before the model; None where nothing is, or where no lines of operators were counted."""
    if samples is None or not any(row.site for row in operators):
        return None
    rows, weight = stacks.weighted_samples(samples.window)
    size = len(stacks.run.stack_frames)
    shares = (stages.sample_shares(stage, rows, weight, size) for stage in INTERRUPTIONS if len(stages.spans[stage]))
    interrupted = np.asarray(sum(shares, start=np.zeros(size)), np.float64)
    first = _first_lines(stacks, samples, interrupted, operators)
    if not first:
        return None
    costs, outside = StackCosts(stacks, samples), OutsideTorch(stacks, samples.window, operators)
    by_line: defaultdict[Site, list[int]] = defaultdict(list)
    possible = [
        number
        for number, stack in samples.stacks.items()
        if interrupted[number] < _MOSTLY and _may_prepare(stacks, number, stack) and _is_before(stacks, number, first)
    ]
    for number in possible:
        by_line[samples.stacks[number].site].append(number)
    chosen: dict[Site, list[int]] = {}
    for site, numbers in by_line.items():
        ns = costs.ns[numbers].sum(axis=0)
        seconds = ns.sum() / len(samples.window) / NS_PER_S
        is_own = outside.has(site, numbers, seconds) or (
            ns[CODE["input"]] >= _MOSTLY * ns.sum() and not outside.are_longer(numbers)
        )
        is_wait = ns[_WAITS].sum() >= _MOSTLY * ns.sum()
        if is_own and not is_wait and not _is_loop(stacks, numbers, costs.ns):
            chosen[site] = numbers
    if not chosen:
        return None
    lines = sorted(chosen, key=lambda site: -costs.ns[chosen[site]].sum())
    numbers = [number for each in chosen.values() for number in each]
    whole = _only(stacks, samples, costs.ns, set(numbers), _NEARLY_ALL)
    rest = [number for number in possible if not whole.isdisjoint(map(function_of, stacks.user_frames(number)))]
    numbers = list(dict.fromkeys((*numbers, *rest)))
    lines += sorted({samples.stacks[number].site for number in rest}.difference(lines))
    only = _only(stacks, samples, costs.ns, set(numbers), _MOSTLY)
    ways = [(float(costs.ns[number].sum()), _way(stacks, number, only)) for number in numbers]
    call, calls = last_common_call(ways, only) or (None, "")
    return Preparation(costs.at(call or lines[0], numbers), calls, tuple(map(stacks.relative, lines)))


def _first_lines(
    stacks: Stacks, samples: ClassifiedSamples, interrupted: Floats, operators: Collection[OperatorLine]
) -> Mapping[Function, int]:
    """Return the first line of each function that leads to the model: to a module, or to operators that have
    gradients."""
    with_gradients = {row.site.place for row in operators if row.site and row.is_backward and not row.caller}
    ns = np.bincount(samples.stack, samples.ns)
    times, ways = Counter[Site](), defaultdict[Site, list[tuple[Site, ...]]](list)
    for number, stack in samples.stacks.items():
        is_model = stack.phase == FORWARD or (
            stack.phase == BETWEEN and stacks.relative(stack.site).place in with_gradients
        )
        if is_model and stacks.is_user(stack.site) and interrupted[number] < _MOSTLY:
            times[stack.site] += ns[number]
            ways[stack.site].append(stacks.user_frames(number))
    first: dict[Function, int] = {}
    for site, total in times.items():
        for frame in (frame for way in ways[site] for frame in way) if total >= RARE * max(times.values()) else ():
            first[function_of(frame)] = min(frame.line, first.get(function_of(frame), frame.line))
    return first


def _is_before(stacks: Stacks, number: int, first: Mapping[Function, int]) -> bool:
    """Return whether a stack leaves the way to the model at or before its first line, and is not on it to the end."""
    for depth, frame in enumerate(stacks.user_frames(number)):
        line = first.get(function_of(frame))
        if line is None:
            return depth > 0
        if frame.line != line:
            return frame.line < line
    return False


def _may_prepare(stacks: Stacks, number: int, stack: Stack) -> bool:
    """Return whether no record and no frame of torch tells what a stack is."""
    if stack.phase != BETWEEN or stack.stratum or not stacks.is_user(stack.site):
        return False
    frames = stacks.run.stack_frames[number]
    below = frames[max(at for at, site in enumerate(frames) if site == stack.site) + 1 :]
    is_torch = any(code_owner(site.file, stacks.folders) == TORCH for site in below)
    return stack.category == "input" or (not stack.category and not is_torch)


def _is_loop(stacks: Stacks, numbers: Collection[int], ns: _Numbers) -> bool:
    """Return whether most of these stacks' time is Python of the program itself, which the rule about such loops
    judges."""
    innermost = {number: stacks.run.stack_frames[number][-1].file for number in numbers}
    own = [number for number, file in innermost.items() if code_owner(file, stacks.folders) != LIBRARY]
    python = ns[own, CODE["python"]].sum() if own else 0.0
    return bool(python > _MOSTLY * ns[list(numbers)].sum())


def _only(
    stacks: Stacks, samples: ClassifiedSamples, ns: _Numbers, numbers: Collection[int], share: float
) -> set[Function]:
    """Return the functions of which these stacks are at least this share of the time."""
    times: defaultdict[Function, _Numbers] = defaultdict(lambda: np.zeros(2))
    for number in samples.stacks:
        for function in set(map(function_of, stacks.user_frames(number))):
            times[function] += ns[number].sum() * np.array([number in numbers, 1.0])
    return {function for function, (inside, total) in times.items() if inside >= share * total}


def _way(stacks: Stacks, number: int, only: Collection[Function]) -> Sequence[Site]:
    """Return the user's frames of a stack from the line on that calls one of these functions."""
    frames = stacks.user_frames(number)
    return frames[next((at for at, site in enumerate(frames[1:]) if function_of(site) in only), 0) :]


# ---------------------------------------------------------------- a thread of an attached program

_CATEGORIES: Final[Mapping[ThreadState, str]] = {
    ThreadState.PYTHON: "python",
    ThreadState.TORCH: "compute",
    ThreadState.NATIVE: "compute",
    ThreadState.CHECKPOINTING: "checkpoint",
    ThreadState.LOGGING: "log",
    ThreadState.WAITING_FOR_RANKS: "ranks",
    ThreadState.LOCK: "waiting",
    ThreadState.NETWORK: "waiting",
    ThreadState.IDLE: "waiting",
    ThreadState.GIL: "gil",
    ThreadState.CORE: "core",
}
"""Sampled state of a thread -> the category of a step. Rules about input need the batches of steps, and rules about
synchronizations a device that was recorded."""


def second_of_main_thread(analysis: Analysis) -> Analysis | None:
    """Return a second of the main thread of a program without steps, in the form of a step that rules can judge; None
    where it was not sampled, or where a device may be busy meanwhile."""
    thread = next((thread for thread in analysis.threads if thread.tid == thread.pid), None)
    if thread is None or analysis.info.facts.get("device") != "cpu" or analysis.info.devices:
        return None

    def seconds(states: Mapping[ThreadState, float]) -> dict[str, float]:
        parts: dict[str, float] = {}
        for state, share in states.items():
            category = _CATEGORIES.get(state, UNATTRIBUTED)
            parts[category] = parts.get(category, 0.0) + share
        return parts

    breakdown = {
        name: Measure(name, share, "s/step", *share_interval(share, thread.samples))
        for name, share in seconds(dict(thread.states)).items()
    }
    lines = tuple(
        replace(
            line,
            seconds_per_step=line.share,
            categories={
                name: part * line.share / (sum(line.categories.values()) or 1.0)
                for name, part in seconds({ThreadState(state): part for state, part in line.categories.items()}).items()
            },
        )
        for line in thread.lines
    )
    measures = {"step_time": Measure("step_time", 1.0, "s")}
    return Analysis(analysis.info, measures, breakdown, {}, lines=lines, threads=analysis.threads)
