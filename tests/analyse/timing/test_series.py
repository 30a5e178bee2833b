"""Series over time and their downsampling."""

from __future__ import annotations

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Series
from profiler.analyse.timing.resources import MAX_POINTS
from tests.recorded.builders import MS, RunBuilder


def all_series(builder: RunBuilder) -> dict[str, Series]:
    return {series.name: series for series in analyse(builder.build()).series}


def test_per_step_and_sampled_series() -> None:
    builder = RunBuilder(level="light", device="host")
    builder.step(1000 * MS, 1010 * MS, tokens=100, process_cpu=15 * MS, device_cpu=5 * MS)
    builder.step(1010 * MS, 1030 * MS, tokens=100, process_cpu=15 * MS, device_cpu=5 * MS)
    builder.counter("device_busy_ns", 5 * MS, step=0)
    builder.counter("device_busy_ns", 5 * MS, step=1)
    builder.gauge("loss", 2.5, step=1)
    for time in (500, 1005, 1020, 2000):
        builder.sample("machine.cpu_util", time * MS, time / 10_000, pid=0)
        builder.sample("process.rss", time * MS, 100.0, pid=7)
        builder.sample("process.rss", time * MS, 50.0, pid=8)
        builder.sample("gpu.util", time * MS, 0.25, pid=0, tid=1)
    got = all_series(builder)
    assert got["device_utilization"].times == pytest.approx((0.005, 0.020))
    assert got["device_utilization"].values == pytest.approx((0.5, 0.25))
    assert got["host_cpu"].values == pytest.approx((1.0, 0.5))
    assert got["device_cpu"].values == pytest.approx((0.5, 0.25))
    assert got["tokens_per_s"].values == pytest.approx((10_000, 5_000))
    assert got["loss"] == Series("loss", "1", (pytest.approx(0.030),), (2.5,))
    assert got["machine_cpu"] == Series("machine_cpu", "1", pytest.approx((0.005, 0.020)), (0.1005, 0.102))
    assert got["process_memory"].values == (150.0, 150.0)
    assert got["gpu_1_utilization"].values == (0.25, 0.25)


def test_held_out_values_are_series_too_with_a_point_where_they_were_taken() -> None:
    builder = RunBuilder(level="light", device="host")
    for number in range(4):
        builder.step(number * 10 * MS, (number + 1) * 10 * MS)
        builder.gauge("loss", 3.0 - number, step=number)
    builder.gauge("heldout_loss", 2.75, step=1)
    builder.gauge("heldout_accuracy", 0.25, step=3)
    got = all_series(builder)
    assert len(got["loss"].times) == 4
    assert got["heldout_loss"] == Series("heldout_loss", "1", (pytest.approx(0.020),), (2.75,))
    assert got["heldout_accuracy"] == Series("heldout_accuracy", "1", (pytest.approx(0.040),), (0.25,))


def test_many_steps_become_time_weighted_means() -> None:
    builder = RunBuilder(level="light")
    edge = 0
    for number in range(1000):
        length = 3 * MS if number % 2 else MS
        builder.step(edge, edge + length, process_cpu=length if number % 2 else 0)
        edge += length
    series = all_series(builder)["host_cpu"]
    assert len(series.times) <= MAX_POINTS
    assert all(0.5 < value < 0.9 for value in series.values), series.values  # 0.75 by time, 0.5 by steps
    assert sum(series.values) / len(series.values) == pytest.approx(0.75, abs=0.005)


def test_what_has_no_data_has_no_series() -> None:
    builder = RunBuilder(level="light", device="cpu")
    builder.step(0, 10)
    assert all_series(builder) == {}
