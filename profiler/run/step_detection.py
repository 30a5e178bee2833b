"""Chooses which boundary events (optimizer steps, backward passes, requests for a batch) end a training step.

A program that marks its own steps needs none of this. Otherwise steps of an optimizer come first. Several optimizers
form rounds, and the last one of a round ends the step (`round_ends`). Where no optimizer of torch steps, or only a few
times beside many batches, a backward pass ends the step: the program updates its parameters by hand, or by a library
with optimizers of its own. Where there are neither, a call of `torch.autograd.grad` ends the step (torch.func makes
one for each gradient); else a step is a batch: from one request to a loader to the next.

Loading a run and watching one use `detect_steps` on recorded boundaries. The `check` command chooses while the program
runs, with `choose_boundary`, by the same rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.run.model import StepDefinition, StepKind, Table
from profiler.run.tables import GRADIENTS, MARK, STEP_BOUNDARIES, BoundaryKind

RARE: Final = 10
"""A name that occurs less than once per this many occurrences of the most frequent one cannot be the leader, whose
events end the rounds."""
MIN_SPAN: Final = 0.5
"""A name seen over less than this share of the longest span cannot lead: it may have ended, or not have begun."""
TYPICAL_QUANTILE: Final = 0.4
"""The typical round is this quantile of the distances between leaders. The median would be wrong for a leader that
steps twice in a burst: then half of the distances are 1."""
PHASE_ROUNDS: Final = 50
"""A gap this many typical rounds long, without the leader, is another phase of the training."""
MAX_THREADS: Final = 8
"""At most this many threads are compared to see whether they train side by side."""
MINOR_SPAN: Final = 0.25
MINOR_BATCHES: Final = 10
"""Optimizer steps are a side activity if they cover less than this share of the time, beside so many times more
batches."""
MIN_ROUNDS: Final = 3
"""Online detection needs this many rounds."""
MIN_BATCHES: Final = 64
"""Online detection takes backward passes or batches as steps after this many without an optimizer step, because
gradients are rarely accumulated over more of them."""
MAX_EVENTS: Final = 1 << 14
"""Online detection decides after this many events, however few rounds there were."""

_STEP_KINDS: Final = {
    BoundaryKind.OPTIMIZER: StepKind.OPTIMIZER,
    BoundaryKind.BACKWARD: StepKind.BACKWARD,
    BoundaryKind.LOADER: StepKind.LOADER,
}

Numbers = npt.NDArray[np.int64]
Texts = Sequence[str] | Mapping[int, str]


@dataclass(frozen=True, eq=False, slots=True)
class StepEnds:
    """The step ends of one thread, or of one process whose threads take turns."""

    rows: Table
    """All boundaries of that kind, in order of time."""
    ends: Table
    """Those that end a step; the first one only begins the first step."""
    joins: npt.NDArray[np.bool_]
    """For each step, whether it spans the change from one phase to the next. Such a step is a pause and is not
    measured."""

    def __len__(self) -> int:
        return len(self.joins)


def detect_steps(boundaries: Table, names: Texts) -> tuple[StepDefinition | None, list[StepEnds]]:
    """Find the boundaries that end steps, and what a step is; (None, []) if fewer than two can.

    The thread with the most steps comes first; of equal ones the one whose first step ended first.

    :param boundaries: rows of the table `boundaries`, of any number of processes. Their names must be numbered in the
        order in which the program first reached them, which decides between equally frequent optimizers.
    :param names: text of each name.
    """
    # beside backward passes and steps of an optimizer, `torch.autograd.grad` is a part of a step, such as a penalty
    gradients = [number for number in np.unique(boundaries["name"]).tolist() if names[number].startswith(GRADIENTS)]
    only_gradients = (boundaries["kind"] == BoundaryKind.BACKWARD) & np.isin(boundaries["name"], gradients)
    updating = boundaries[~only_gradients & (boundaries["kind"] != BoundaryKind.LOADER)]
    boundaries = boundaries[~only_gradients | ~np.isin(boundaries["pid"], updating["pid"])]
    found = {kind: _find_step_ends(boundaries, kind, names) for kind in STEP_BOUNDARIES}
    for number, (kind, ends) in enumerate(found.items()):
        others = [other[0] for later, other in found.items() if STEP_BOUNDARIES.index(later) > number and other]
        if not ends or any(_is_side_activity(ends[0], other) for other in others):
            continue
        first = ends[0]
        phases = np.split(first.ends["name"], np.flatnonzero(first.joins) + 1)
        texts = (tuple(names[number] for number in dict.fromkeys(phase.tolist())) for phase in phases)
        phase_names = tuple(dict.fromkeys(texts))
        if kind is not BoundaryKind.OPTIMIZER:
            steps = count_optimizer_steps(boundaries, int(first.rows["pid"][0]))
            return StepDefinition(_STEP_KINDS[kind], phase_names, optimizer_steps=steps), ends
        nested = set(first.rows["name"].tolist()) - set(first.ends["name"].tolist())
        definition = StepDefinition(
            StepKind.OPTIMIZER,
            phase_names,
            nested=tuple(sorted(names[number] for number in nested)),
            skipped=int((first.ends["flag"][1:] == 1).sum()),
        )
        return definition, ends
    return None, []


def count_optimizer_steps(boundaries: Table, pid: int) -> int:
    """Return the number of steps of the busiest optimizer of a process."""
    rows = boundaries[(boundaries["pid"] == pid) & (boundaries["kind"] == BoundaryKind.OPTIMIZER)]
    return int(np.unique(rows["name"], return_counts=True)[1].max(initial=0))


def choose_boundary(keys: Sequence[str]) -> str | None:
    """Choose online, from the boundary events so far, the one that ends a step; None: too few events so far.

    :param keys: in order of time: `tables.MARK`, or `KIND NAME` of a boundary.
    """
    if MARK in keys:
        return MARK
    for kind in STEP_BOUNDARIES:
        enough = MIN_ROUNDS if kind is BoundaryKind.OPTIMIZER else MIN_BATCHES
        events = [key for key in keys if key.startswith(f"{int(kind)} ")]
        events = [key for key in events if f" {GRADIENTS}" not in key] or events
        if len(events) < enough:
            if events and kind is BoundaryKind.OPTIMIZER and len(keys) < MAX_EVENTS:
                return None
            continue
        numbers = {key: number for number, key in enumerate(dict.fromkeys(events))}
        ends = round_ends(np.array([numbers[key] for key in events], np.int64))
        counts = Counter(events[int(at)] for at in ends)
        leader, rounds = counts.most_common(1)[0]
        if rounds >= MIN_ROUNDS or len(keys) >= MAX_EVENTS:
            return leader
    return None


def define_step(key: str) -> StepDefinition:
    """Return the definition of a step that boundaries of `key` end."""
    if key == MARK:
        return StepDefinition(StepKind.MARKED)
    kind, _, name = key.partition(" ")
    return StepDefinition(_STEP_KINDS[BoundaryKind(int(kind))], ((name,),))


# ---------------------------------------------------------------- phases and rounds


def phase_starts(names: Numbers) -> Numbers:
    """Return the rows at which a phase begins, 0 among them.

    A phase is a stretch whose names occur in no other: one optimizer trains after the other. A name that occurs only
    once begins no phase.
    """
    _, first, counts = np.unique(names, return_index=True, return_counts=True)
    last = len(names) - 1 - np.unique(names[::-1], return_index=True)[1]
    repeated = np.flatnonzero(counts > 1)
    repeated = repeated[np.argsort(first[repeated], kind="stable")]
    if not len(repeated):
        return np.zeros(1, np.int64)
    until = np.maximum.accumulate(last[repeated])
    fresh = np.flatnonzero(first[repeated][1:] > until[:-1]) + 1
    return np.concatenate([[0], first[repeated][fresh]]).astype(np.int64)


def round_ends(names: Numbers) -> Numbers:
    """Return the rows of one phase that end a round, ascending: those of its leader.

    Where the leader steps in bursts, the stretches between two bursts are searched for leaders of their own.
    """
    ends: list[Numbers] = []
    stretches = [(0, len(names))]
    while stretches:
        start, stop = stretches.pop()
        leaders = _leader_rows(names[start:stop])
        ends.append(start + leaders)
        stretches += [(start + begin, start + end) for begin, end in _leaderless_stretches(leaders, stop - start)]
    return np.sort(np.concatenate(ends))


def _leader_rows(names: Numbers) -> Numbers:
    """Return the rows of the leader: the rarest name that is neither an exception nor limited to a part of the stretch.

    Of equally frequent names it is the one that the program reached last for the first time: it ended the first round.
    """
    kinds, first, counts = np.unique(names, return_index=True, return_counts=True)
    if len(kinds) == 1:
        return np.arange(len(names), dtype=np.int64)
    span = len(names) - 1 - np.unique(names[::-1], return_index=True)[1] - first
    candidates = np.flatnonzero((span >= MIN_SPAN * span.max()) & (counts * RARE >= counts.max()))
    if not len(candidates):
        candidates = np.array([int(np.argmax(counts))])
    equal = candidates[counts[candidates] <= counts[candidates].min() + 1]  # the first or last round may be cut off
    return np.flatnonzero(names == kinds[equal].max())


def _leaderless_stretches(leaders: Numbers, length: int) -> list[tuple[int, int]]:
    """Return stretches before, between and after the leader's rows that belong to none of its rounds."""
    gaps = np.diff(leaders)
    if not len(gaps):
        return []  # every name occurred only once, so this is one round
    typical = int(np.sort(gaps)[int(TYPICAL_QUANTILE * (len(gaps) - 1))])
    wide = gaps > 2 * typical
    bursts = gaps[wide].sum() > 0.5 * gaps.sum()  # most events lie between bursts
    if not bursts:
        wide = gaps > PHASE_ROUNDS * typical
    stretches = [(int(leaders[at]) + 1, int(leaders[at + 1])) for at in np.flatnonzero(wide).tolist()]
    for begin, end in ((0, int(leaders[0])), (int(leaders[-1]) + 1, length)):
        if end - begin > 2 * typical:
            stretches.append((begin, end))
    return stretches


# ---------------------------------------------------------------- one kind of boundary


def _find_step_ends(boundaries: Table, kind: BoundaryKind, names: Texts) -> list[StepEnds]:
    rows = boundaries[boundaries["kind"] == kind]
    rows = rows[np.argsort(rows["time"], kind="stable")]
    candidates = [
        _phase_ends(part, kind)
        for pid in np.unique(rows["pid"]).tolist()
        for part in _split_threads(rows[rows["pid"] == pid], names)
    ]
    return sorted((ends for ends in candidates if len(ends)), key=lambda ends: (-len(ends), int(ends.ends["time"][1])))


def _split_threads(rows: Table, names: Texts) -> list[Table]:
    """Return the rows of each thread if threads train side by side; otherwise all rows of the process together.

    Threads train side by side if they overlap in time and one line made what each of them steps: one object for all, or
    one for each. A thread that steps several objects of one line may share a model with another thread.
    """
    tids, counts = np.unique(rows["tid"], return_counts=True)
    busy = tids[(counts > 2) & (2 * counts >= counts.max(initial=0))][:MAX_THREADS].tolist()
    if len(busy) < 2:
        return [rows]
    at = [np.flatnonzero(rows["tid"] == tid) for tid in busy]
    overlap = min(int(part[-1]) for part in at) - max(int(part[0]) for part in at)
    lines = [[_creation_line(names[name]) for name in np.unique(rows["name"][part]).tolist()] for part in at]
    common = set.intersection(*map(set, lines))
    if 2 * overlap < len(rows) or not common or any(len(set(part)) < len(part) for part in lines):
        return [rows]
    return [rows[rows["tid"] == tid] for tid in tids.tolist()]


def _creation_line(name: str) -> str:
    """Return the name without the number that tells apart several objects made on one line."""
    line, _, number = name.rpartition(" #")
    return line if number.isdigit() else name


def _phase_ends(rows: Table, kind: BoundaryKind) -> StepEnds:
    names = rows["name"].astype(np.int64)
    starts = phase_starts(names).tolist()
    chosen, joins = [], []
    for start, stop in zip(starts, [*starts[1:], len(names)], strict=True):
        ends = start + round_ends(names[start:stop])
        if kind == BoundaryKind.LOADER:
            # between the end of an epoch and the next batch the last batch is still being worked on
            ends = ends[(rows["flag"][ends] == 0) | (ends == ends[-1])]
        chosen.append(ends)
        joins += [False] * (len(ends) - 1) + [True]
    return StepEnds(rows, rows[np.concatenate(chosen)], np.array(joins[:-1], np.bool_))


def _is_side_activity(steps: StepEnds, others: StepEnds) -> bool:
    """Return whether an optimizer's steps (or the backward passes) are few beside a loader's batches (or the backward
    passes), such as a short fit before an evaluation."""
    begin, end = int(steps.ends["time"][0]), int(steps.ends["time"][-1])
    begin -= (end - begin) // len(steps)  # its first step began about so long before it ended
    batches = others.ends["time"]
    duration = max(end, int(batches[-1])) - min(begin, int(batches[0]))
    outside = int(((batches < begin) | (batches > end)).sum())
    return end - begin < MINOR_SPAN * duration and MINOR_BATCHES * len(steps) < outside
