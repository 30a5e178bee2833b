"""Tells what the training thread computes before the model in a step, and not by operators of torch: batches that a
loop makes with NumPy, for example.

Hooks record loaders only. So the lines are those of samples that are outside of every recorded stretch of time, before
the first line of a function that leads to the model, and where hardly any time of counted operators is. Lines that
mostly wait are left out: they have rules of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats
from profiler.analyse.model import INTERRUPTIONS, OperatorLine, Preparation
from profiler.analyse.sampling.frames import BETWEEN, FORWARD, Stack
from profiler.analyse.sampling.lines import StackCosts
from profiler.analyse.sampling.outside_torch import OutsideTorch
from profiler.analyse.sampling.phases import RARE, last_common_call
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import Function, Stacks, function_of
from profiler.analyse.sampling.stages import StageSpans
from profiler.analyse.timing.host_timeline import CODE
from profiler.analyse.window import NS_PER_S, Window
from profiler.run.code_origin import LIBRARY, TORCH, code_owner
from profiler.run.model import Site

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
    """What is computed before the model; None where nothing is, or where no lines of operators were counted."""
    if samples is None or not any(row.site for row in operators):
        return None
    interrupted = _interrupted(stacks, samples.window, stages)
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


def _interrupted(stacks: Stacks, window: Window, stages: StageSpans) -> Floats:
    """The share of each stack's samples that lies in stages which interrupt training."""
    rows, weight = stacks.weighted_samples(window)
    size = len(stacks.run.stack_frames)
    shares = (stages.sample_shares(stage, rows, weight, size) for stage in INTERRUPTIONS if len(stages.spans[stage]))
    return np.asarray(sum(shares, start=np.zeros(size)), np.float64)


def _first_lines(
    stacks: Stacks, samples: ClassifiedSamples, interrupted: Floats, operators: Collection[OperatorLine]
) -> Mapping[Function, int]:
    """The first line of each function that leads to the model: to a module, or to operators that have gradients."""
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
    """Whether a stack leaves the way to the model at or before its first line, and is not on it to the end."""
    for depth, frame in enumerate(stacks.user_frames(number)):
        line = first.get(function_of(frame))
        if line is None:
            return depth > 0
        if frame.line != line:
            return frame.line < line
    return False


def _may_prepare(stacks: Stacks, number: int, stack: Stack) -> bool:
    """Whether no record and no frame of torch tells what a stack is."""
    if stack.phase != BETWEEN or stack.stratum or not stacks.is_user(stack.site):
        return False
    frames = stacks.run.stack_frames[number]
    below = frames[max(at for at, site in enumerate(frames) if site == stack.site) + 1 :]
    is_torch = any(code_owner(site.file, stacks.folders) == TORCH for site in below)
    return stack.category == "input" or (not stack.category and not is_torch)


def _is_loop(stacks: Stacks, numbers: Collection[int], ns: _Numbers) -> bool:
    """Whether most of these stacks' time is Python of the program itself, which the rule about such loops judges."""
    innermost = {number: stacks.run.stack_frames[number][-1].file for number in numbers}
    own = [number for number, file in innermost.items() if code_owner(file, stacks.folders) != LIBRARY]
    python = ns[own, CODE["python"]].sum() if own else 0.0
    return bool(python > _MOSTLY * ns[list(numbers)].sum())


def _only(
    stacks: Stacks, samples: ClassifiedSamples, ns: _Numbers, numbers: Collection[int], share: float
) -> set[Function]:
    """The functions of which these stacks are at least this share of the time."""
    times: defaultdict[Function, _Numbers] = defaultdict(lambda: np.zeros(2))
    for number in samples.stacks:
        for function in set(map(function_of, stacks.user_frames(number))):
            times[function] += ns[number].sum() * np.array([number in numbers, 1.0])
    return {function for function, (inside, total) in times.items() if inside >= share * total}


def _way(stacks: Stacks, number: int, only: Collection[Function]) -> Sequence[Site]:
    """The user's frames of a stack from the line on that calls one of these functions."""
    frames = stacks.user_frames(number)
    return frames[next((at for at, site in enumerate(frames[1:]) if function_of(site) in only), 0) :]
