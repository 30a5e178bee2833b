"""Finds steps that take much longer than the others, and sets apart those with work that occurs once.

A mean hides long steps: an evaluation at every tenth step is most of the time of a run whose median step is fast. The
reason is a stage that recorded times show (an evaluation, a checkpoint, a compilation, the start of a loader), and the
lines with the extra time by samples: of a line that only long steps run, not the line that it calls in the end.

A step with work that occurs once, such as the import of a library, a first figure or a compilation, is no usual step:
what it costs does not recur in a longer run. So it is not measured, as warm-up is not. Its extra work is told in
seconds, without a rate and without a gain. The clocks of the steps alone tell which steps these are. Stack samples then
tell what the extra work is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, covered_within, times, union
from profiler.analyse.model.host import SpikeLine, Spikes, Stage
from profiler.analyse.model.measures import HOST_CATEGORIES, USUAL_STEPS
from profiler.analyse.sampling.frames import FSYNC, callee_name
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.sampling.stages import StageSpans, stage_spans
from profiler.analyse.statistics import share_interval
from profiler.analyse.timing.input import first_requests
from profiler.analyse.timing.scheduler import step_delays
from profiler.analyse.window import NS_PER_S, Window, named_rows, rank_windows, thread_rows
from profiler.run.model import Run, Site
from profiler.run.tables import GARBAGE_COLLECTION, ONE_OFF

LONG: Final = 2.0
"""Times the median from which a step is long: that is other work than usual, and more than batch sizes differ by."""
LONG_SAVING: Final = 1.25
"""Times as long as the median from which a step that writes a checkpoint is a long step, because it does more work than
other steps. A choice: other steps differ by as much at random."""
MIN_EXTRA: Final = 0.05
"""Share of all time that long steps must cost beyond the median: less is not worth removing."""
MIN_STEPS: Final = 10
"""With fewer steps, none can be called an exception."""
MIN_TYPICAL: Final = 0.25
"""Share of the extra time of a typical long step: a step with less extra time is a random delay, and is not counted
with them."""
REGULAR: Final = 0.8
"""Share of the distances between long steps that must be equal for the long steps to be regular. One random long or
short step breaks two distances."""
MIN_DISTANCES: Final = 3
"""With fewer distances, equal ones may be chance."""
MAX_IRREGULAR: Final = 0.25
"""Share of the steps above which irregular long ones are no exceptions: a slow loader delivers in bursts."""
ENOUGH: Final = 10
"""With this many stack samples in long steps, a share of one half is known to ±30 points, enough to tell a main cause
from a minor one."""
RARE: Final = 0.1
"""Share of the other steps below which a line is work of the long steps only."""
DOMINANT: Final = 0.8
"""Share of a line's extra time below one function from which this function is named with the line."""
EXPLAINED: Final = 0.5
"""Share of the extra time that a stage must take to be named as the reason for it."""
LOADER_START: Final = "loader start"
"""Region in which a loader starts its workers, at the begin of an epoch."""
MIN_SHARE: Final = 0.1
"""Share of the extra time below which a line is not named."""
MAX_LINES: Final = 3
_MAX_DEPTH: Final = 100
"""Lines of a stack that are used, from the outside: a deeper recursion is the same in every step."""

_Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Node:
    """One line below the lines that called it, or a library's function below a line: ns of samples in long steps, and
    in the others."""

    site: Site
    ns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    children: dict[Site, _Node] = field(default_factory=dict)
    functions: dict[Site, _Node] = field(default_factory=dict)
    """Functions of libraries that the line, or the function, calls without a further line of the user."""
    imports: Counter[str] = field(default_factory=Counter)
    """ns in long steps of each package that the line imports, also below the lines that it calls."""

    def add(self, column: int, ns: float) -> _Node:
        """Return the node itself, with more time of one kind of steps."""
        self.ns[column] += ns
        return self


@dataclass(frozen=True, slots=True)
class _StepSamples:
    """Samples in long and in other steps (index 0 and 1) as a tree of lines, with the mean lengths of these steps."""

    root: _Node
    lengths: tuple[float, float]
    counts: tuple[float, float]
    """The number of samples. If the long steps are irregular, the number of long steps with a sample, because a stalled
    machine shows the same line in every sample of a step."""

    def shares(self, node: _Node) -> tuple[float, float]:
        """Return the share of a long step below a line, and of another step."""
        long, short = (float(ns / total) if total else 0.0 for ns, total in zip(node.ns, self.root.ns, strict=True))
        return long, short

    def extra(self, node: _Node) -> float:
        """Return the share of the extra time that lies below a line; below 0 where long steps have less of it."""
        (long, short), (mean_long, mean_short) = self.shares(node), self.lengths
        return (long * mean_long - short * mean_short) / (mean_long - mean_short)

    def stands_out(self, node: _Node) -> bool:
        """Return whether long steps have a significantly larger share of it; a slow machine is slow at any line."""
        long, short = map(share_interval, self.shares(node), self.counts)
        return long[0] > short[1]


def long_steps(window: Window, stages: StageSpans) -> tuple[_Mask, _Mask, int] | None:
    """Return which steps are long, which ones they are compared with, and the distance between them where it is nearly
    always the same, else 0; None where no long steps matter."""
    if len(window) < MIN_STEPS:
        return None
    wall = window.wall.astype(np.float64)
    usual = float(np.median(wall))
    saves = covered_within(stages.spans[Stage.CHECKPOINT], window.begin, window.end) > 0
    above = wall > np.where(saves, LONG_SAVING, LONG) * usual
    long = above & (wall - usual >= MIN_TYPICAL * _typical((wall - usual)[above]))
    extra = float((wall - usual)[long].sum()) / window.wall_ns
    if extra < MIN_EXTRA:
        return None
    every = _every(window, long)
    if not every and long.mean() > MAX_IRREGULAR:
        return None
    return long, ~above, every


def spikes(
    stacks: Stacks, window: Window, stages: StageSpans, classified: ClassifiedSamples | None = None
) -> Spikes | None:
    """Return the long steps of `window`; None where there are none that matter.

    :param classified: the samples by category.
    """
    found = long_steps(window, stages)
    if found is None:
        return None
    long, short, every = found
    described = spikes_at(stacks, window, stages, (long, short), is_certain=every > 0, classified=classified)
    return replace(described, every=every)


def spikes_at(
    stacks: Stacks,
    window: Window,
    stages: StageSpans,
    steps: tuple[_Mask, _Mask],
    *,
    is_certain: bool,
    are_one_offs: bool = False,
    classified: ClassifiedSamples | None = None,
) -> Spikes:
    """Return how long the long steps are, and where their extra time lies.

    :param steps: which steps of `window` are long, and with which ones they are compared.
    :param is_certain: whether the program makes them long, and not the machine.
    :param are_one_offs: whether only lines and functions count that hardly any other step runs: a machine that stalls
        once shows a usual line in all samples of a step.
    """
    wall, (long, short) = window.wall.astype(np.float64), steps
    ratio = float(np.median(wall[long]) / np.median(wall[short]))
    extra = float((wall - np.median(wall))[long].sum())
    below = _all_below if are_one_offs else Stacks.library_frames
    tree, samples = _sample_steps(stacks, window, steps, below, regular=is_certain or are_one_offs)
    enough = samples >= ENOUGH
    more, stage, stage_share = float(wall[long].mean() - wall[short].mean()), "", 0.0
    for name, spans in recorded_spans(stacks, window, stages).items():
        ns = covered_within(spans, window.begin, window.end).astype(np.float64)
        part = float(ns[long].mean() - ns[short].mean()) / more
        if part >= EXPLAINED and part > stage_share:
            stage, stage_share = name, part
    stage_share = min(1.0, stage_share)
    certain = is_certain and ratio >= LONG
    lines = _lines(stacks, tree, is_certain=certain, only_rare=are_one_offs) if enough else ()
    categories = _categories(stacks, window, steps, classified) if enough and classified else {}
    share, seconds = extra / window.wall_ns, extra / NS_PER_S
    return Spikes(
        int(long.sum()), len(window), 0, ratio, share, lines, samples, enough, stage, stage_share, categories, seconds
    )


def _categories(
    stacks: Stacks, window: Window, steps: tuple[_Mask, _Mask], classified: ClassifiedSamples
) -> dict[str, float]:
    """Return the share of each host category in the extra time: what a long step has more of than another one."""
    rows, weight = stacks.weighted_samples(window)
    step, size = window.step_rows(rows["begin"]), len(stacks.run.stack_frames)
    whole = np.maximum(np.bincount(rows["stack"], weight, size), 1.0)
    mean = []
    for chosen in steps:
        inside = chosen[step]
        part = np.bincount(rows["stack"][inside], weight[inside], size) / whole
        ns = (classified.ns * part[classified.stack]) @ classified.line_shares
        mean.append(window.wall[chosen].mean() * ns / max(float(ns.sum()), 1.0))
    more = np.maximum(mean[0] - mean[1], 0.0)
    total = float(more.sum())
    return {name: ns / total for name, ns in zip(HOST_CATEGORIES, more.tolist(), strict=True) if ns} if total else {}


def recorded_spans(stacks: Stacks, window: Window, stages: StageSpans) -> dict[str, Intervals]:
    """Return the recorded time of each stage, of the start of loaders, and of collecting garbage."""
    regions = thread_rows(stacks.run.regions, window)
    recorded = {stage.value: spans for stage, spans in stages.spans.items()}
    for name in (LOADER_START, GARBAGE_COLLECTION):
        rows = named_rows(stacks.run, regions, name)
        recorded[name] = union(rows["begin"], rows["end"])
    if len(recorded[Stage.CHECKPOINT]):  # a checkpoint is often flushed to the disk after it was written
        written, flushed = recorded[Stage.CHECKPOINT], named_rows(stacks.run, regions, FSYNC)
        recorded[Stage.CHECKPOINT] = union(
            np.append(written.begin, flushed["begin"]), np.append(written.end, flushed["end"])
        )
    # after a start the workers import the program and make the first batch, which the step waits for
    starts, (begin, end) = recorded[LOADER_START], first_requests(stacks.run, regions, 1)
    recorded[LOADER_START] = union(np.append(starts.begin, begin), np.append(starts.end, end))
    return recorded


def _typical(extra: npt.NDArray[np.float64]) -> float:
    """Return the extra time of the step at the middle of all extra time: many small ones do not hide a few large
    ones."""
    if not len(extra):
        return 0.0
    ordered = np.sort(extra)
    sums = np.cumsum(ordered)
    return float(ordered[np.searchsorted(sums, sums[-1] / 2)])


def _every(window: Window, long: _Mask) -> int:
    """Return the distance between long steps where it is nearly always the same; else 0."""
    number = times(window.steps["index"])
    if len(number) > 1 and (np.diff(number) <= 0).any():
        number = np.arange(len(number))
    gaps = np.diff(number[long])
    if len(gaps) < MIN_DISTANCES:
        return 0
    usual = int(np.median(gaps))
    near = np.abs(gaps - usual) <= usual // 10
    return usual if usual > 1 and near.mean() >= REGULAR else 0


def _all_below(stacks: Stacks, number: int) -> tuple[Site, ...]:
    return tuple(site for site, _ in stacks.frames_below(number) if not site.file.startswith("<"))


def _sample_steps(
    stacks: Stacks,
    window: Window,
    steps: tuple[_Mask, _Mask],
    below: Callable[[Stacks, int], tuple[Site, ...]],
    *,
    regular: bool,
) -> tuple[_StepSamples, int]:
    """Return the stepping thread's samples in both kinds of steps as a tree of lines, and how many lie in the long
    ones.

    :param below: the frames below the innermost line of a stack whose functions may tell what is extra work.
    """
    # a sample shows the moment of its begin; until the next one, several other steps may pass
    rows, weight = stacks.weighted_samples(window)
    step, root = window.step_rows(rows["begin"]), _Node(Site("", 0, ""))
    sampled_steps = 0
    for column, chosen in enumerate(steps):
        inside = chosen[step]
        sums = np.bincount(rows["stack"][inside], weight[inside])
        for number in np.flatnonzero(sums).tolist():
            sites = [site for site in stacks.run.stack_frames[number] if stacks.is_user(site)]
            node = root.add(column, sums[number])
            imported = stacks[number].imports if column == 0 else ""
            for site in (sites or [stacks[number].site])[:_MAX_DEPTH]:
                node = node.children.setdefault(site, _Node(site)).add(column, sums[number])
                if imported:
                    node.imports[imported] += int(sums[number])
            for site in below(stacks, number)[:_MAX_DEPTH]:
                function = replace(site, line=0)
                node = node.functions.setdefault(function, _Node(function)).add(column, sums[number])
                if imported:
                    node.imports[imported] += int(sums[number])
        if column == 0:
            sampled_steps = len(np.unique(step[inside]))
    long, short = (stacks.sample_count(rows[inside], weight[inside]) for inside in (chosen[step] for chosen in steps))
    lengths = float(window.wall[steps[0]].mean()), float(window.wall[steps[1]].mean())
    return _StepSamples(root, lengths, (long if regular else sampled_steps, short)), round(long)


def _lines(stacks: Stacks, tree: _StepSamples, *, is_certain: bool, only_rare: bool) -> tuple[SpikeLine, ...]:
    """Return the lines with most of the extra time, none of which is called by another.

    :param is_certain: the long steps come at regular distances, which only the program can cause, and do mostly other
        work than the others: then the largest line is named though it does not stand out.
    :param only_rare: leave lines out that other steps run too.
    """
    parts = [node for node in _parts(tree, tree.root) if tree.extra(node) > 0]
    counted = [node for node in parts if not only_rare or tree.shares(node)[1] < RARE]
    chosen = [(node, tree.extra(node), _called(node)) for node in counted if tree.stands_out(node)]
    if not chosen:  # all steps run the same lines where a library drives them (`trainer.fit()`)
        chosen = [
            (node, tree.extra(function), _called_function(stacks, function))
            for node in parts
            for function in _rare_functions(tree, node)
            if tree.stands_out(function)
        ]
    lines = _by_site(stacks, chosen)
    if not lines and is_certain:
        lines = _by_site(stacks, [(node, tree.extra(node), _called(node)) for node in parts])[:1]
    return tuple(line for line in lines if line.share >= MIN_SHARE)[:MAX_LINES]


def _by_site(stacks: Stacks, parts: list[tuple[_Node, float, tuple[str, str]]]) -> list[SpikeLine]:
    """Return one row per line and what it calls and imports, the largest first, from parts with their share of the
    extra time."""
    sums = defaultdict[tuple[Site, tuple[str, str]], float](float)
    for node, share, called in parts:
        sums[stacks.relative(node.site), called] += share
    rows = [SpikeLine(site, min(1.0, share), *called) for (site, called), share in sums.items()]
    return sorted(rows, key=lambda row: (-row.share, row.site, row.calls))


def _parts(tree: _StepSamples, node: _Node) -> Iterator[_Node]:
    """Yield the extra time of `node` in parts: lines that other steps run too are divided further."""
    if node is not tree.root and tree.shares(node)[1] < RARE:
        yield node
        return
    for child in node.children.values():
        yield from _parts(tree, child)
    if node is not tree.root:
        own, imports = node.ns.copy(), Counter(node.imports)
        for child in node.children.values():
            own -= child.ns
            imports.subtract(child.imports)
        yield _Node(node.site, own, functions=node.functions, imports=imports)


def _rare_functions(tree: _StepSamples, node: _Node) -> Iterator[_Node]:
    """Yield the outermost functions of libraries below a line that hardly any other step runs."""
    for function in node.functions.values():
        if tree.shares(function)[1] < RARE:
            yield function
        else:
            yield from _rare_functions(tree, function)


def _called(node: _Node) -> tuple[str, str]:
    """Return the user's function that a line calls in nearly all of its samples of long steps, and the package that it
    imports in nearly all; empty for none."""
    calls = defaultdict[str, float](float)
    for child in node.children.values():
        calls[child.site.function] += child.ns[0]
    return _dominant(calls, node.ns[0]), _dominant(node.imports, node.ns[0])


def _called_function(stacks: Stacks, node: _Node) -> tuple[str, str]:
    """Return the function of a library, or the package that is imported where nearly all of its time is an import."""
    imports = _dominant(node.imports, node.ns[0])
    return ("", imports) if imports else (callee_name(node.site, stacks.folders), "")


def _dominant(ns: Mapping[str, float], total: float) -> str:
    name = max(ns, key=lambda name: ns[name], default="")
    return name if name and ns[name] >= DOMINANT * total else ""


# ---------------------------------------------------------------- steps with work that occurs once

LEAST_NS: Final = 100_000_000
"""Extra time below which nobody would look for its cause: the kernel alone delays a step by as much at times."""
MOST_ONE_OFFS: Final = 2
"""Work that occurs in more steps recurs."""
_PERIODIC: Final = (Stage.EVALUATION, Stage.ROLLOUT, Stage.CHECKPOINT, LOADER_START)
"""Recorded work that recurs in a longer run although a short one shows it once. So does collecting garbage, where more
than MOST_ONE_OFFS steps have a long collection. An import may have many of them in one step."""


def set_apart(run: Run) -> Run:
    """Return the run with `warmup` ONE_OFF in its steps with work that occurs once; where one rank has it, in those of
    all.

    A run of level light, a foreign trace, and a run without steps are returned as they are.
    """
    if run.is_trace or run.info.level == "light" or (run.step is not None and run.step.is_whole_run):
        return run
    windows = rank_windows(run)
    found = {number for window in windows for number in _one_offs(run, window)}
    if not found or len(found) > MOST_ONE_OFFS or len(windows[0]) - len(found) < USUAL_STEPS - 1:
        return run
    steps = run.steps.copy()
    rows = np.isin(steps["index"], sorted(found)) & (steps["warmup"] == 0)
    threads = [(window.pid, window.tid) for window in windows]
    rows &= np.array([thread in threads for thread in zip(steps["pid"].tolist(), steps["tid"].tolist(), strict=True)])
    steps["warmup"][rows] = ONE_OFF
    steps.setflags(write=False)
    return replace(run, steps=steps)


def _one_offs(run: Run, window: Window) -> list[int]:
    """Return the numbers of the steps of a rank that did work which occurs once."""
    if len(window) < USUAL_STEPS:
        return []
    delays = step_delays(run, window)
    # without the time that other programs took: they delay a step, too
    own = (window.wall if delays is None else window.wall - delays).astype(np.float64)
    usual = float(np.median(own))
    extra = own - usual
    # smaller extra work beside that of one step is judged by itself
    alike = extra >= MIN_TYPICAL * extra.max()
    long = alike & (own > LONG * usual) & (extra >= max(LEAST_NS, MIN_EXTRA * own.sum()))
    if not long.any() or alike.sum() > MOST_ONE_OFFS:
        return []
    stacks = Stacks(run)
    recorded = recorded_spans(stacks, window, stage_spans(stacks, window))
    collections = recorded[GARBAGE_COLLECTION]
    begins = collections.begin[collections.end - collections.begin >= LEAST_NS]
    begins = begins[begins >= window.begin[0]]
    step = np.searchsorted(window.begin, begins, side="right") - 1
    is_inside = begins < window.end[step]
    often = len(np.unique(step[is_inside])) + (~is_inside).sum() > MOST_ONE_OFFS
    for name in (*_PERIODIC, GARBAGE_COLLECTION) if often else _PERIODIC:
        spans = recorded.get(name)
        if spans is not None:
            long &= covered_within(spans, window.begin, window.end) < EXPLAINED * extra
    return [int(number) for number in window.steps["index"][long]]


def one_offs(stacks: Stacks, window: Window, classified: ClassifiedSamples | None) -> Spikes | None:
    """Return what the steps that were set apart took more than the measured ones, and where; None: there are none.

    :param window: the measured steps.
    """
    steps = stacks.run.steps
    rows = steps[(steps["pid"] == window.pid) & (steps["tid"] == window.tid) & np.isin(steps["warmup"], (0, ONE_OFF))]
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    apart = rows["warmup"] == ONE_OFF
    if not len(window) or not apart.any():
        return None
    both = replace(window, steps=rows, begin=rows["begin"].astype(np.int64), end=rows["end"].astype(np.int64))
    if both.wall[apart].sum() <= apart.sum() * np.median(both.wall[~apart]):
        return None  # only another rank worked longer
    stages, kinds = stage_spans(stacks, both), (apart, ~apart)
    return spikes_at(stacks, both, stages, kinds, is_certain=False, are_one_offs=True, classified=classified)
