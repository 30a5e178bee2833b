"""Intervals of programs of long phases: samples in a row are alike, and the GIL's holder is seen at other moments."""

from __future__ import annotations

import random

import numpy as np
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.intervals import union
from profiler.analyse.statistics import (
    MAX_BATCHES,
    MIN_BATCHES,
    batch_edges,
    effective_sample_size,
    ratio_interval,
    sum_in_batches,
)
from profiler.analyse.window import measured_window
from profiler.run.model import Run
from tests.analyse.sampling.test_frames import LINEAR, MODULE
from tests.recorded.builders import MS, RunBuilder, S

PERIOD = 10 * MS
SEEDS = 20


def of_phases(seed: int) -> tuple[Run, float]:
    """A minute with 3 s of evaluation every 15 s, every fourth window of 2.5 s of the GIL; and evaluation's share."""
    phase = random.Random(seed).random() * 15
    builder = RunBuilder(device="cpu")
    builder.boundary(0)
    builder.steps(600, 100 * MS)
    evaluating = [((0.01 * number - phase) % 15) < 3 for number in range(6000)]
    for number, evaluates in enumerate(evaluating):
        begin = number * PERIOD
        if number // 250 % 4 < 3:
            frames = ("t.py:2:evaluate",) if evaluates else (MODULE, LINEAR)
            builder.stack(("t.py:1:main", *frames), begin, begin + PERIOD)
        elif evaluates:
            builder.holder(("t.py:1:main", "t.py:2:evaluate"), begin, begin + PERIOD)
    for first in range(0, 6000, 1000):
        builder.gil_window((first + 750) * PERIOD, (first + 1000) * PERIOD)
    builder.sample("stacks.period_s", S, 0.01)
    return builder.build(), sum(evaluating) / len(evaluating)


def test_intervals_hold_the_truth_though_samples_come_in_phases() -> None:
    of_python = of_line = 0
    for seed in range(SEEDS):
        run, truth = of_phases(seed)
        analysis = analyse(run)
        python = analysis.breakdown["python"]
        [line] = [line for line in analysis.lines if line.site.function == "evaluate"]
        of_python += 10 * python.low <= truth <= 10 * python.high
        of_line += line.low <= truth <= line.high
        assert line.high - line.low < 0.35, line
    assert (of_python, of_line) >= (SEEDS - 2, SEEDS - 2), "with independent samples assumed it was a third of them"


@pytest.mark.parametrize("unseen", [0.0, 0.25, 1.0])
def test_phases_count_as_fewer_samples_and_alike_blocks_as_all(unseen: float) -> None:
    whole = np.full(MAX_BATCHES, 100.0)
    assert effective_sample_size(np.full(MAX_BATCHES, 30.0), whole, 2000, unseen) == pytest.approx(2000)
    phases = np.where(np.arange(MAX_BATCHES) % 4 == 0, 100.0, 0.0)
    count = effective_sample_size(phases, whole, 2000, unseen)
    assert (count == pytest.approx(2000)) if not unseen else (count < 2000 / 10)
    assert effective_sample_size(np.zeros(MAX_BATCHES), whole, 2000, unseen) == 2000, (
        "what was never seen has no variance"
    )


def test_samples_that_are_independent_count_nearly_all() -> None:
    """Long batches are few, and their variance is large by chance: it counts only where it is larger than that."""
    rng = np.random.default_rng(1)
    sizes = []
    for _ in range(100):
        part = rng.binomial(10, 0.3, MAX_BATCHES).astype(np.float64)
        sizes.append(effective_sample_size(part, np.full(MAX_BATCHES, 10.0), 200))
    assert np.mean(sizes) > 90, "each batch is worth as much again as its samples, so that half of them is all"


def test_a_ratio_has_the_ends_that_its_pairs_allow() -> None:
    whole = np.array([1.0, 0.5, 0.8, 1.2, 0.9, 1.1])
    assert ratio_interval(0.3 * whole, whole) == pytest.approx((0.3, 0.3), abs=0.03)
    ends = ratio_interval(np.array([1.0, 0, 0, 0, 0, 0]), whole)
    assert ends[0] == 0
    assert ends[1] > 0.4
    assert ratio_interval(whole[: MIN_BATCHES - 1], whole[: MIN_BATCHES - 1]) is None


@pytest.mark.parametrize(
    ("windows", "count"), [(0, MAX_BATCHES), (1, MAX_BATCHES), (2, 4), (6, 12), (10, 20), (400, 20)]
)
def test_every_block_has_a_part_of_a_window_of_the_gil(windows: int, count: int) -> None:
    builder = RunBuilder()
    builder.step(0, 10 * S)
    length = 10 * S // max(1, windows)
    begin = np.arange(windows) * length + length // 2
    edges = batch_edges(measured_window(builder.build()), union(begin, begin + length // 4))
    ns = sum_in_batches(edges, np.arange(0, 10 * S, 10 * MS), np.full(1000, 10 * MS))
    assert len(ns) == count
    assert ns.sum() == 10 * S
    assert (ns > 0).all()
