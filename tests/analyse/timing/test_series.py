"""Series over time and their downsampling."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.measures import Series
from profiler.analyse.timing.resources import MAX_POINTS
from tests.recorded.builders import MS, timeline


def all_series(text: str, **options: Any) -> dict[str, Series]:
    return {series.name: series for series in analyse(timeline(text, level="light", **options)).series}


def test_per_step_and_sampled_series() -> None:
    samples = [
        f"sample machine.cpu_util {time} {time / 10_000} pid=0; sample process.rss {time} 100 pid=7;"
        f"sample process.rss {time} 50 pid=8; sample gpu.util {time} 0.25 pid=0 thread=1"
        for time in (500, 1005, 1020, 2000)
    ]
    cpu = f"tokens=100 process_cpu={15 * MS} device_cpu={5 * MS}"
    busy = f"counter device_busy_ns {5 * MS} {5 * MS}; gauge loss 2.5 step=1"
    text = "; ".join([f"step 1000 1010 {cpu}; step 1010 1030 {cpu}", busy, *samples])
    times = pytest.approx((0.005, 0.020))
    assert all_series(text, tick=MS, device="host") == {
        "device_utilization": Series("device_utilization", "1", times, pytest.approx((0.5, 0.25))),
        "host_cpu": Series("host_cpu", "cores", times, pytest.approx((1.0, 0.5))),
        "device_cpu": Series("device_cpu", "cores", times, pytest.approx((0.5, 0.25))),
        "tokens_per_s": Series("tokens_per_s", "tokens/s", times, pytest.approx((10_000, 5_000))),
        "loss": Series("loss", "1", (pytest.approx(0.030),), (2.5,)),
        "machine_cpu": Series("machine_cpu", "1", times, (0.1005, 0.102)),
        "process_memory": Series("process_memory", "bytes", times, (150.0, 150.0)),
        "gpu_1_utilization": Series("gpu_1_utilization", "1", times, (0.25, 0.25)),
    }


def test_held_out_values_have_a_point_where_they_were_taken() -> None:
    series = all_series("steps 4 10; gauge heldout_loss 2.75 step=1; gauge heldout_accuracy 0.25 step=3", tick=MS)
    assert series == {
        "heldout_loss": Series("heldout_loss", "1", (pytest.approx(0.020),), (2.75,)),
        "heldout_accuracy": Series("heldout_accuracy", "1", (pytest.approx(0.040),), (0.25,)),
    }


def test_many_steps_become_time_weighted_means() -> None:
    pairs = (f"step {at} {at + 1}; step {at + 1} {at + 4} process_cpu={3 * MS}" for at in range(0, 2000, 4))
    series = all_series("; ".join(pairs), tick=MS)["host_cpu"]
    assert len(series.times) <= MAX_POINTS
    assert all(0.5 < value < 0.9 for value in series.values), series.values  # 0.75 by time, 0.5 by steps
    assert sum(series.values) / len(series.values) == pytest.approx(0.75, abs=0.005)


def test_what_has_no_data_has_no_series() -> None:
    assert all_series("step 0 10", device="cpu") == {}
