"""Counters, gauges, throughput and resources of the measured steps, added up by hand."""

from __future__ import annotations

import math

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Measure
from profiler.report.text import describe
from profiler.run.tables import ActivityKind
from tests.fakes.sentences import warnings
from tests.recorded.builders import MS, RunBuilder, S


def measures(builder: RunBuilder) -> dict[str, Measure]:
    return dict(analyse(builder.build()).measures)


def test_counters_are_means_over_measured_steps() -> None:
    builder = RunBuilder(level="light")
    builder.step(0, 10, warmup=True)
    builder.steps(4, 10, begin=10)
    for step, amount in ((0, 1000), (1, 6), (2, 2), (4, 4)):  # step 3 counted none, step 0 is warm-up
        builder.counter("syncs", amount, step=step)
    builder.counter("my_own", 8, step=2)
    builder.counter("syncs", 500, step=2, pid=999)
    builder.counter("h2d_bytes", 4096, step=1)
    builder.counter("syncs", 77, step=-1)
    got = measures(builder)
    assert (got["syncs_per_step"].value, got["syncs_per_step"].unit, got["syncs_per_step"].n) == (3, "1/step", 4)
    assert got["my_own_per_step"].value == 2
    assert (got["h2d_bytes_per_step"].value, got["h2d_bytes_per_step"].unit) == (1024, "bytes/step")


def test_a_counter_of_the_warm_up_alone_is_zero_and_one_never_counted_is_missing() -> None:
    builder = RunBuilder(level="light")
    builder.step(0, 10, warmup=True)
    builder.step(10, 20)
    builder.counter("allocations", 12, step=0)
    got = measures(builder)
    assert got["allocations_per_step"].value == 0
    assert got["syncs_per_step"].value is None
    assert describe(got["syncs_per_step"].reason) == "nothing in this run counted it"


def test_gauges_are_weighted_by_tokens_where_steps_have_them() -> None:
    builder = RunBuilder(level="light")
    builder.step(0, 10, tokens=100)
    builder.step(10, 20, tokens=300)
    builder.gauge("loss", 1.0, step=0)
    builder.gauge("loss", 2.0, step=1)
    builder.gauge("device_memory", 64, step=1)
    got = measures(builder)
    assert got["loss"].value == (1 * 100 + 2 * 300) / 400
    assert (got["device_memory"].value, got["device_memory"].unit, got["device_memory"].n) == (64, "bytes", 1)
    assert describe(got["accuracy"].reason) == "the program did not report this value"


def test_gauges_without_tokens_are_plain_means_and_nan_is_said() -> None:
    builder = RunBuilder(level="light")
    builder.steps(2, 10)
    builder.gauge("loss", 1.0, step=0)
    builder.gauge("loss", 2.0, step=1)
    builder.gauge("accuracy", math.nan, step=0)
    builder.gauge("accuracy", 0.5, step=1)
    got = measures(builder)
    assert got["loss"].value == 1.5
    assert got["accuracy"].value is None
    assert describe(got["accuracy"].reason) == "not a finite number in 1 of 2 steps"


def test_steps_that_are_not_contiguous_count_their_own_time_only() -> None:
    builder = RunBuilder(level="light")
    builder.step(0, S, tokens=1000)
    builder.step(5 * S, 8 * S, tokens=3000)
    got = measures(builder)
    assert got["tokens_per_s"].value == 1000
    assert got["steps_per_s"].value == 0.5
    assert got["step_time"].value == 2
    assert got["steps"].value == 2


def test_step_time_has_a_t_interval_and_percentiles() -> None:
    builder = RunBuilder(level="light")
    edge = 0
    for length in (8, 9, 10, 11, 12):
        builder.step(edge, edge + length * MS)
        edge += length * MS
    got, step = measures(builder), measures(builder)["step_time"]
    half = 2.7764451051977987 * math.sqrt(2.5 / 5) * 1e-3  # t(0.975, 4) of any printed table: 2.776
    assert step.value == pytest.approx(0.010)
    assert (step.low, step.high) == pytest.approx((0.010 - half, 0.010 + half))
    assert (got["step_time_p50"].value, got["step_time_p95"].value) == pytest.approx((0.010, 0.0118))
    assert got["tokens_per_s"].value is None


def test_one_step_has_no_interval() -> None:
    builder = RunBuilder(level="light")
    builder.step(0, 10 * MS)
    step = measures(builder)["step_time"]
    assert (step.value, step.low, step.high, step.n) == (0.01, None, None, 1)


def test_host_cpu_leaves_the_devices_threads_out() -> None:
    builder = RunBuilder(level="light", device="host")
    builder.step(0, 100, process_cpu=150, device_cpu=40)
    builder.step(100, 200, process_cpu=170, device_cpu=20)
    got = measures(builder)
    assert got["host_cpu"].value == (320 - 60) / 200
    assert got["device_cpu"].value == 60 / 200
    builder = RunBuilder(level="light")
    builder.step(0, 100, process_cpu=150)
    got = measures(builder)
    assert got["host_cpu"].value == 1.5
    assert describe(got["device_cpu"].reason) == "no thread of this program acts as a device"


def test_cpu_of_other_processes_counts_by_how_much_of_it_was_within_steps() -> None:
    builder = RunBuilder(level="light")
    builder.step(1 * S, 3 * S)
    own = builder.build().steps["pid"][0]
    for pid, used in ((own, (0.0, 2.0, 4.0)), (71, (0.0, 0.5, 1.5)), (72, (1.0, 1.0, 3.0))):
        for second, value in zip((0, 2, 4), used, strict=True):
            builder.sample("process.cpu_s", second * S, value, pid=int(pid))
    got = measures(builder)["children_cpu"]
    assert got.value == pytest.approx(((0.5 + 1.0) / 2 + (0.0 + 2.0) / 2) / 2)  # half of every stretch is within
    assert (got.unit, got.n) == ("cores", 2)


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ((), "no-other-process"),
        (((0, 0.0), (1, 9.0)), "no-other-process"),
        (((2, 1.0),), "no-other-process"),
        (((0, 1.0), (4, 1.001)), "other-processes-idle"),
    ],
)
def test_other_processes_that_were_not_seen_or_only_wait(samples: tuple[tuple[int, float], ...], why: str) -> None:
    builder = RunBuilder(level="light")
    builder.step(1 * S, 3 * S)
    for second, value in samples:
        builder.sample("process.cpu_s", second * S, value, pid=71)
    got = measures(builder)["children_cpu"]
    assert got.value is None
    assert got.reason.code == why


def test_device_utilization_prefers_the_devices_own_count() -> None:
    builder = RunBuilder(device="host")
    builder.steps(2, 100)
    builder.activity(ActivityKind.KERNEL, 0, 40)
    builder.activity(ActivityKind.H2D, 30, 50, stream=1)
    assert measures(builder)["device_utilization"].value == 50 / 200
    builder.counter("device_busy_ns", 100, step=0)
    got = measures(builder)["device_utilization"]
    assert got.value == 100 / 200
    assert got.source == "counters"


def test_peak_memory_sums_the_process_tree_at_each_time() -> None:
    builder = RunBuilder(level="light")
    builder.step(100, 200)
    for time, pid, rss in ((10, 1, 500.0), (10, 2, 300.0), (20, 1, 700.0), (300, 1, 600.0), (300, 2, 150.0)):
        builder.sample("process.rss", time, rss, pid=pid)
    assert measures(builder)["peak_memory"].value == 800
    empty = RunBuilder(level="light")
    empty.step(0, 1)
    assert describe(measures(empty)["peak_memory"].reason) == "no memory samples were taken"


def test_the_stepping_thread_is_the_one_with_most_measured_steps() -> None:
    builder = RunBuilder(level="light")
    builder.step(0, 10, tokens=1, tid=1, pid=7, index=0)
    for number in range(3):
        builder.step(number * 10, number * 10 + 10, tokens=5, tid=2, pid=8, index=number)
        builder.step(number * 10, number * 10 + 10, warmup=True, tid=1, pid=7, index=number + 1)
    builder.counter("syncs", 9, step=0, pid=7)
    builder.counter("syncs", 3, step=0, pid=8)
    got = measures(builder)
    assert got["steps"].value == 3
    assert got["syncs_per_step"].value == 1


@pytest.mark.parametrize(
    ("steps", "reason"), [([], "no step was completed"), ([(0, 10), (10, 20)], "all 2 steps are warm-up")]
)
def test_without_measured_steps_everything_is_none_with_the_reason(steps: list[tuple[int, int]], reason: str) -> None:
    builder = RunBuilder(device="host")
    for begin, end in steps:
        builder.step(begin, end, warmup=True)
        builder.activity(ActivityKind.KERNEL, begin, end)
    builder.counter("syncs", 1, step=0)
    builder.gauge("loss", 1, step=0)
    builder.region("data", 0, 5)
    builder.stack(("a.py:1",), 0, 5)
    analysis = analyse(builder.build())
    values = {
        name: (m.value, describe(m.reason))
        for name, m in analysis.measures.items()
        if name not in ("steps", "peak_memory")
    }
    assert set(values.values()) == {(None, reason)}, values
    assert analysis.measures["steps"].value == 0
    assert {(m.value, describe(m.reason)) for m in analysis.breakdown.values()} == {(None, reason)}
    assert {(m.value, describe(m.reason)) for m in analysis.device_breakdown.values()} == {(None, reason)}
    assert (analysis.idle, analysis.call_sites, analysis.series, analysis.flame) == ((), (), (), None)
    assert f"nothing was measured: {reason}" in warnings(analysis)
    assert all(gap.reason for gap in analysis.missing)
