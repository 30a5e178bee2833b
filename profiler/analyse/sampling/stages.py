"""Finds the stages of a program: import, start, compilation, training, evaluation, roll-out, checkpoints, end.

Hooks record when modules change to evaluation mode and back, when gradients are off, and when torch.compile compiles.
From these follow exact intervals. Samples of stacks only name an interval (evaluation or roll-out), and tell how much
of the start is imports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, covered_within, subtract, times, union
from profiler.analyse.model.host import Stage, StageCost, StageTime
from profiler.analyse.sampling.frames import CHECKPOINT, FORWARD
from profiler.analyse.sampling.stacks import Stacks, sample_ns
from profiler.analyse.statistics import Z, share_interval
from profiler.analyse.window import NS_PER_S, Window, named_rows, process_rows, thread_rows
from profiler.run.code_origin import TORCH, code_owner
from profiler.run.model import StepKind, Table
from profiler.run.tables import BoundaryKind, StageKind

MIN_STRETCH: Final = 0.5
"""Share of a median step from which an unusual stretch without gradients is a stage of its own."""
LONG: Final = 2.0
"""Times the usual stretch without gradients from which a stretch is unusual: updates by hand and target networks run
without gradients in every step."""
WELL_SAMPLED: Final = 0.5
"""If samples cover at least this share of a period, they are scaled to all of it; else they count as they are."""
COMMON: Final = 0.8
"""Share of the samples of all intervals that must show a stage to give it to an interval without samples."""
ENVIRONMENT: Final = 0.05
"""Share of the samples of all long stretches that must show a roll-out to name those whose samples show nothing: most
samples of a roll-out lie in the policy, whose functions have any names. In one recording of PPO of CleanRL, 8% of the
time of these samples was in environments. The value lies below that; other programs were not measured."""
_LEAST_STEPS: Final = 10
"""Steps with a stage, and steps without it, from which their lengths are compared. A choice."""
_MOST_OF_STAGE: Final = 0.5
"""A step has a stage if it contains this share of the stage's median time in a step: an evaluation may end just after
its step. A choice: half."""
NEVER: Final = np.iinfo(np.int64).max
_ROLLOUT: Final = re.compile(r"roll_?out|collect|episode|(^|_)(play|act|explore)(_|$)", re.IGNORECASE)
_ENVIRONMENT: Final = re.compile(r"/(gymnasium|gym|pettingzoo|dm_env|dm_control|envpool|procgen|minigrid)/")
_EVALUATION: Final = re.compile(r"eval|valid|(^|_)(test|metrics?|score|accuracy|estimate_loss)(_|$)", re.IGNORECASE)
"""Names of functions, and paths of libraries, that tell what runs without gradients. torch's own functions tell
nothing: its distributions validate samples."""


@dataclass(frozen=True, eq=False, slots=True)
class StageSpans:
    """Exact, exclusive intervals of the stepping thread, over the whole run, of the stages that interrupt training."""

    spans: Mapping[Stage, Intervals]

    def covered(self, stage: Stage, begin: npt.ArrayLike, end: npt.ArrayLike) -> Times:
        """Return how many ns of each [begin, end) belong to a stage."""
        return covered_within(self.spans[stage], begin, end)

    def sample_shares(self, stage: Stage, samples: Table, weight: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
        """For each of `count` stacks, the share of its samples that lies in a stage.

        The sampler's clock is accurate to milliseconds only, so a stack with nearly all of its samples on one side of
        the stage's ends lies entirely on that side.
        """
        ns = np.asarray(weight, np.float64)
        at, spans = times(samples["begin"]), self.spans[stage]
        row = np.searchsorted(spans.begin, at, "right") - 1
        inside = (row >= 0) & (at < spans.end[row]) if len(spans) else np.zeros(len(at), np.bool_)
        total = np.bincount(samples["stack"], ns, minlength=count)
        share = np.bincount(samples["stack"], ns * inside, minlength=count) / np.maximum(total, 1.0)
        return np.where(share < _ONE_SIDE, 0.0, np.where(share > 1 - _ONE_SIDE, 1.0, share))


_ONE_SIDE: Final = 0.2
"""Share of a stack's samples that may lie on the wrong side of the end of a stage."""


def stage_spans(stacks: Stacks, window: Window) -> StageSpans:
    """Return the intervals of the stages that interrupt training; empty in runs without the records that tell them."""
    run = stacks.run
    rows = process_rows(run.stages, window)
    compiled = rows[rows["kind"] == StageKind.COMPILE]
    compiling = union(compiled["begin"], compiled["end"])
    saved = named_rows(run, thread_rows(run.regions, window), CHECKPOINT)
    saving = subtract(union(saved["begin"], saved["end"]), compiling)
    apart = union(np.concatenate([compiling.begin, saving.begin]), np.concatenate([compiling.end, saving.end]))
    spans = {Stage.COMPILE: compiling, Stage.CHECKPOINT: saving}
    for stage, intervals in _name_spans(stacks, window, *_spans_without_training(stacks, window)).items():
        spans[stage] = subtract(intervals, apart)
    return StageSpans(spans)


# ---------------------------------------------------------------- work without gradients


def _spans_without_training(stacks: Stacks, window: Window) -> tuple[Intervals, Intervals]:
    """Return the intervals of evaluations, and other long stretches without gradients.

    The program marks evaluations, or evaluation mode or a loader's batches without gradients show them.
    """
    run = stacks.run
    rows = thread_rows(run.stages, window)
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    boundaries = thread_rows(run.boundaries, window)
    is_batch = boundaries["kind"] == BoundaryKind.LOADER
    batches, trained = np.sort(times(boundaries["time"][is_batch])), times(boundaries["time"][~is_batch])
    if run.step is not None and run.step.kind is StepKind.MARKED:
        trained = np.concatenate([trained, times(thread_rows(run.steps, window)["end"])])
    trained = np.sort(trained)
    plain = rows[rows["kind"] == StageKind.NO_GRAD]
    begin, end = times(plain["begin"]), times(plain["end"])
    certain = [_eval_mode(rows, begin, end, trained)]
    with_batches = (np.searchsorted(batches, end) > np.searchsorted(batches, begin)) & (
        np.searchsorted(trained, end) == np.searchsorted(trained, begin)
    )
    certain.append((begin[with_batches], end[with_batches]))
    marked = named_rows(run, thread_rows(run.regions, window), Stage.EVALUATION)
    certain.append((times(marked["begin"]), times(marked["end"])))
    evaluations = union(*(np.concatenate(part) for part in zip(*certain, strict=True)))
    inside = covered_within(evaluations, begin, end) > 0
    stretches = _long_stretches(plain[~inside], trained, window)
    return evaluations, subtract(stretches, evaluations)


def _eval_mode(rows: Table, without_begin: Times, without_end: Times, trained: Times) -> tuple[Times, Times]:
    """Return the intervals in which a module was in evaluation mode and nothing was trained.

    An interval ends where the module changes back or, if no record shows that, where the training goes on, provided
    that there was training before (a module that stays in evaluation mode is a teacher, or a target network). Time
    behind the last block without gradients no longer belongs to it: libraries change back as late as the next step.
    """
    modes = rows[np.isin(rows["kind"], (StageKind.EVAL_MODE, StageKind.TRAIN_MODE))]
    modes = modes[np.argsort(modes["object"], kind="stable")]
    begin, following = times(modes["begin"]), np.full(len(modes), NEVER)
    if len(modes) > 1:
        same = modes["object"][1:] == modes["object"][:-1]
        following[:-1] = np.where(same, begin[1:], NEVER)
    chosen = modes["kind"] == StageKind.EVAL_MODE
    begin, following = begin[chosen], following[chosen]
    position = np.searchsorted(trained, begin, "right")
    resumed = np.append(trained, NEVER)[position]
    end = np.minimum(following, resumed)
    last = np.searchsorted(without_end, end, "right") - 1  # blocks are outermost, so their ends ascend too
    has_block = (last >= 0) & (np.append(without_begin, 0)[last] >= begin)
    is_closed = following < resumed
    keep = has_block | is_closed
    keep &= is_closed | (position > 0)
    end = np.where(has_block, np.append(without_end, 0)[last], end)
    return begin[keep], end[keep]


def _long_stretches(rows: Table, trained: Times, window: Window) -> Intervals:
    """Return stretches of blocks without gradients, with no backward pass and no step between them, that are much
    longer than those of most steps; what comes before the first step is set-up."""
    begin, end = times(rows["begin"]), times(rows["end"])
    step = np.searchsorted(trained, begin, "right")
    known = step > 0
    begin, end, step, passes = begin[known], end[known], step[known], times(rows["object"])[known]
    if not len(begin) or not len(window):
        return union([], [])
    first = np.flatnonzero(np.concatenate([[True], (np.diff(step) != 0) | (np.diff(passes) != 0)]))
    last = np.append(first[1:], len(begin)) - 1
    begin, end, step = begin[first], end[last], step[first]
    longest = np.zeros(len(trained) + 1)
    np.maximum.at(longest, step, end - begin)
    usual = float(np.median(longest[1:]))
    long = (end - begin > LONG * usual) & (end - begin > MIN_STRETCH * float(np.median(window.wall)))
    return union(begin[long], end[long])


def _name_spans(
    stacks: Stacks, window: Window, evaluations: Intervals, stretches: Intervals
) -> Mapping[Stage, Intervals]:
    """Return the stage that most samples of an interval show; where they show none, the one that most samples of all
    such intervals show, if these agree.

    What was certain not to be training is a roll-out or an evaluation. A stretch that is only unusually long counts if
    the samples show that, or a model that runs: an update by hand takes long, too, when the machine is busy.
    """
    samples = thread_rows(stacks.run.stacks, window)
    at, length = times(samples["begin"]), times(samples["end"]) - times(samples["begin"])
    shown, in_environment = np.full(len(stacks.run.stack_frames), -1), np.zeros(len(stacks.run.stack_frames))
    for number in set(samples["stack"].tolist()):
        shown[number], in_environment[number] = _shown_stage(stacks, number), _is_in_environment(stacks, number)
    chosen = {stage: [union([], [])] for stage in _WITHOUT_GRADIENTS}
    for spans, is_certain in ((evaluations, True), (stretches, False)):
        # a sample shows the moment of its begin; until the next one, several other intervals may pass
        row = np.searchsorted(spans.begin, at, "right") - 1
        inside = (row >= 0) & (at < np.append(spans.end, 0)[row])
        stage, count = shown[samples["stack"][inside]], len(_WITHOUT_GRADIENTS)
        cell = row[inside] * (count + 1) + stage + 1
        within = np.minimum(length, np.append(spans.end, 0)[row] - at)[inside]
        ns = np.bincount(cell, within, minlength=len(spans) * (count + 1)).reshape(-1, count + 1)
        if is_certain:
            ns[:, 1] += ns[:, 3]  # a model that runs
            ns[:, [0, 3]] = 0
        overall = ns.sum(axis=0)
        agree = overall.max(initial=0) > COMMON * overall.sum()
        common = int(overall.argmax()) - 1 if agree else 0 if is_certain else -1
        most = ns.argmax(axis=1) - 1
        most = np.where(most >= 0, most, common)
        if not is_certain:
            environment = np.bincount(row[inside], within * in_environment[samples["stack"][inside]], len(spans))
            most = _with_rollouts(most, ns, environment, spans.end - spans.begin)
        for number, name in enumerate(_WITHOUT_GRADIENTS):
            chosen[name].append(Intervals(spans.begin[most == number], spans.end[most == number]))
    return {
        stage: union(np.concatenate([part.begin for part in parts]), np.concatenate([part.end for part in parts]))
        for stage, parts in chosen.items()
    }


def _with_rollouts(
    stages: npt.NDArray[np.intp], ns: npt.NDArray[Any], environment: npt.NDArray[Any], length: Times
) -> npt.NDArray[np.intp]:
    """Return the stages of stretches, where samples in an environment show that the whole stretch is a roll-out.

    :param ns: for each stretch, the time of samples that show nothing, and of those that show each stage of
        _WITHOUT_GRADIENTS.
    :param environment: for each stretch, the time of samples in an environment.
    """
    _, evaluation, rollout, _ = ns.T
    if environment.sum() <= max(evaluation.sum(), ENVIRONMENT * ns.sum()):
        return stages
    is_rollout = rollout > evaluation
    # the samples of others show only the policy; what is much shorter may be an update by hand
    is_rollout |= (evaluation == 0) & (length >= 0.5 * np.median(length[is_rollout]))
    return np.where(is_rollout, _WITHOUT_GRADIENTS.index(Stage.ROLLOUT), stages)


_WITHOUT_GRADIENTS: Final = (Stage.EVALUATION, Stage.ROLLOUT, Stage.NO_GRADIENTS)


def _shown_stage(stacks: Stacks, number: int) -> int:
    """Return the stage that a stack shows, as its number in _WITHOUT_GRADIENTS; -1 for none."""
    frames = stacks.run.stack_frames[number]
    folders = stacks.folders
    names = [site.function.rpartition(".")[2] for site in frames if code_owner(site.file, folders) != TORCH]
    if any(map(_ROLLOUT.search, names)) or _is_in_environment(stacks, number):
        return _WITHOUT_GRADIENTS.index(Stage.ROLLOUT)
    if any(map(_EVALUATION.search, names)):
        return _WITHOUT_GRADIENTS.index(Stage.EVALUATION)
    return _WITHOUT_GRADIENTS.index(Stage.NO_GRADIENTS) if stacks[number].phase == FORWARD else -1


def _is_in_environment(stacks: Stacks, number: int) -> bool:
    return any(_ENVIRONMENT.search(site.file) for site in stacks.run.stack_frames[number])


# ---------------------------------------------------------------- the whole run


def stage_costs(window: Window, stages: StageSpans, waits: Floats) -> dict[Stage, StageCost]:
    """Return what evaluations and checkpoints cost, by the lengths of the steps with and without each of them: least
    squares, which divide the time of steps with both. Nothing where too few steps have one, or lack it, or all with one
    have the other, too.

    :param waits: ns of each step in which the thread waits for a core.
    """
    has: dict[Stage, npt.NDArray[np.bool_]] = {}
    for stage in (Stage.EVALUATION, Stage.CHECKPOINT):
        covered = stages.covered(stage, window.begin, window.end)
        if covered.any():
            with_stage = covered >= _MOST_OF_STAGE * np.median(covered[covered > 0])
            if _LEAST_STEPS <= with_stage.sum() <= len(window) - _LEAST_STEPS:
                has[stage] = with_stage
    terms = np.column_stack([np.ones(len(window)), *has.values()])
    if not has or np.linalg.matrix_rank(terms) < terms.shape[1]:
        return {}
    inverse, time = np.linalg.inv(terms.T @ terms), window.wall - waits
    more = inverse @ terms.T @ time
    # the lengths of steps with a stage differ more than those of others, so each step has its own variance (White 1980)
    weighted = terms * (time - terms @ more)[:, None]
    error = Z * np.sqrt(np.diag(inverse @ (weighted.T @ weighted) @ inverse))
    costs = {}
    for number, (stage, with_stage) in enumerate(has.items(), 1):
        ends = more[number] + error[number] * np.array([0, -1, 1])
        costs[stage] = StageCost(*(ends * with_stage.mean() / NS_PER_S).tolist())
    return costs


def stage_times(stacks: Stacks, window: Window, stages: StageSpans) -> tuple[StageTime, ...]:
    """Return the time of the whole run by stage, in the order in which stages usually come; none without measured
    steps.

    Training begins one median step before the end of the first step: nothing records its begin.
    """
    run = stacks.run
    if not len(window) or run.step is None or run.step.is_whole_run:
        return ()
    steps, samples = thread_rows(run.steps, window), thread_rows(run.stacks, window)
    begin = run.info.begin or int(steps["begin"].min())
    last = int(steps["end"].max())
    end = max(last, run.info.end or int(samples["end"].max(initial=last)))
    first = max(begin, int(steps["begin"].min()) - int(np.median(window.wall)))
    parts = {Stage.START: (begin, first), Stage.TRAIN: (first, last), Stage.END: (last, end)}
    ns: dict[Stage, float] = {stage: high - low for stage, (low, high) in parts.items()}
    for stage in stages.spans:
        inside = {part: int(stages.covered(stage, [low], [high])[0]) for part, (low, high) in parts.items()}
        for part, covered in inside.items():
            ns[part] -= covered
        ns[stage] = float(sum(inside.values()))
    rows = dict(_imports(stacks, samples, union([begin], [first]), ns.pop(Stage.START)))
    rows |= {stage: (amount, amount, amount) for stage, amount in ns.items()}
    total = float(end - begin) or 1.0
    return tuple(
        StageTime(stage, amount / NS_PER_S, amount / total, low / total, high / total)
        for stage in Stage
        for amount, low, high in [rows.get(stage, (0.0, 0.0, 0.0))]
        if high > 0
    )


def _imports(
    stacks: Stacks, samples: Table, start: Intervals, start_ns: float
) -> Iterator[tuple[Stage, tuple[float, float, float]]]:
    """Divide the start into imports and the remainder, by samples: ns, and the ends of the 95% interval."""
    ns = sample_ns(samples, start)
    sampled = float(ns.sum())
    importing = np.array(
        [any(site.file.startswith("<frozen importlib") for site in f) for f in stacks.run.stack_frames]
    )
    if not sampled or not len(importing):
        yield Stage.START, (start_ns, start_ns, start_ns)
        return
    pool = start_ns if sampled >= WELL_SAMPLED * start.measure() else min(start_ns, sampled)
    share = float(ns[importing[samples["stack"]]].sum()) / sampled
    low, high = share_interval(share, stacks.sample_count(samples, ns))
    yield Stage.IMPORT, (share * pool, low * pool, high * pool)
    yield Stage.START, (start_ns - share * pool, start_ns - high * pool, start_ns - low * pool)
