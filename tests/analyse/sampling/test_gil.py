"""Chances of having held the GIL, out of two rates."""

from __future__ import annotations

import random

import pytest

from profiler.analyse.sampling.blocked import coincident_gil_probability, gil_probability
from profiler.analyse.sampling.stacks import USUAL_PERIOD_S, Stacks, gil_windows
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import measured_window
from tests.recorded.builders import RunBuilder, S


@pytest.mark.parametrize(("share", "n"), [(0.0, 100), (1.0, 100), (0.5, 10), (0.03, 1000)])
def test_an_interval_holds_its_share_and_is_never_empty(share: float, n: float) -> None:
    low, high = share_interval(share, n)
    assert 0 <= low <= share <= high <= 1
    assert high > low
    assert share_interval(share, 0) == (0, 1)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(400):
        seen = sum(rng.random() < 0.3 for _ in range(300)) / 300
        on_cpu = sum(rng.random() < 0.6 for _ in range(900)) / 900
        one = gil_probability(seen, 300, on_cpu, 900)
        held += one.low <= 0.5 <= one.high
    assert 0.92 * 400 <= held <= 400, held


def test_samples_of_the_same_time_share_the_error_of_the_time_on_a_cpu() -> None:
    """How long a thread was on a CPU cancels from the time that it held the GIL, so only the holders' error counts."""
    rng = random.Random(1)
    held, widths = 0, []
    for _ in range(400):
        seen = sum(rng.random() < 0.3 for _ in range(80)) / 80
        on_cpu = sum(rng.random() < 0.6 for _ in range(160)) / 160
        one = coincident_gil_probability(seen, 80, on_cpu)
        held += one.low * on_cpu <= 0.3 <= one.high * on_cpu
        widths.append((one.high - one.low) / (gil_probability(seen, 80, on_cpu, 160).high - one.low))
    assert 0.92 * 400 <= held <= 400, held
    assert max(widths) <= 1
    assert coincident_gil_probability(0.7, 80, 0.6).value == 1
    assert coincident_gil_probability(0.0, 80, 0.0).low == 0


def test_edges() -> None:
    assert gil_probability(0.0, 100, 0.5, 100).value == 0
    assert gil_probability(0.0, 100, 0.5, 100).high > 0.05
    assert gil_probability(0.6, 100, 0.5, 100).value == 1
    assert (gil_probability(0.0, 100, 0.0, 100).low, gil_probability(0.0, 100, 0.0, 100).high) == (0, 1)


def test_windows_are_cut_at_the_measured_steps() -> None:
    builder = RunBuilder()
    builder.step(0, 10 * S, warmup=True)
    builder.step(10 * S, 20 * S)
    builder.gil_window(8 * S, 11 * S)
    builder.gil_window(15 * S, 16 * S)
    builder.sample("stacks.gil_window_s", 19 * S, 2.0, pid=999)
    run = builder.build()
    assert gil_windows(run, measured_window(run)).measure() == 2 * S
    assert Stacks(run).period is None
    builder.sample("stacks.period_s", 19 * S, USUAL_PERIOD_S)
    assert Stacks(builder.build()).period == USUAL_PERIOD_S
