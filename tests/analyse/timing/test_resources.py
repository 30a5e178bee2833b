"""Peak memory, never less than a sample said; and how busy a device was that does not count it, by NVML."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.core.notice import Notice
from profiler.report.text import describe
from tests.recorded.builders import RunBuilder

SAMPLED = [("process.rss", 10, 100.0), ("process.rss", 20, 80.0)]


def peak(samples: list[tuple[str, int, float]], *more: tuple[str, int, float]) -> tuple[float | None, str]:
    builder = RunBuilder(level="light")
    builder.step(0, 100)
    for pid, rows in enumerate((samples, more), start=1):
        for name, time, value in rows:
            builder.sample(name, time, value, pid=pid)
    measure = analyse(builder.build()).measures["peak_memory"]
    return measure.value, measure.source or describe(measure.reason)


def test_the_high_water_mark_knows_what_no_sample_saw() -> None:
    assert peak([*SAMPLED, ("process.peak_rss", 20, 170.0)]) == (170.0, "peak resident memory")


def test_processes_are_added_up_where_they_were_sampled_together() -> None:
    marks = [*SAMPLED, ("process.peak_rss", 20, 110.0)]
    assert peak(marks, ("process.rss", 10, 50.0)) == (150.0, "sampled resident memory")


@pytest.mark.parametrize(("samples", "value"), [(SAMPLED, 100.0), ([], None)])
def test_without_a_mark(samples: list[tuple[str, int, float]], value: float | None) -> None:
    found, said = peak(samples)
    assert (found, bool(said)) == (value, True)


H200, SMALL = {"index": 0, "name": "NVIDIA H200"}, {"index": 1, "name": "NVIDIA T4"}


@pytest.mark.parametrize(
    ("label", "devices", "value"), [("NVIDIA H200", [H200, SMALL], 0.35), ("", [H200, SMALL], 0.9)]
)
def test_on_cuda_nvml_says_how_busy_the_gpu_was(label: str, devices: list[dict[str, Any]], value: float) -> None:
    """The GPU that bears the program's name for it, else the busiest; weighted by the measured time before a sample."""
    builder = RunBuilder(level="light", device="cuda", device_label=label, devices=devices)
    builder.step(0, 100, warmup=True)
    builder.step(100, 200)
    for time, share in ((100, 1.0), (175, 0.4), (250, 0.2)):  # of these stand for 0, 75 and 25 ns of the step
        builder.sample("gpu.util", time, share, pid=0, tid=0)
        builder.sample("gpu.util", time, 0.9, pid=0, tid=1)
    measure = analyse(builder.build()).measures["device_utilization"]
    assert (measure.value, measure.n) == (pytest.approx(value), 2)
    assert measure.source == "nvml"


@pytest.mark.parametrize("level", ["light", "standard"])
def test_without_any_count_of_busy_time_the_reason_is_true(level: str) -> None:
    builder = RunBuilder(level=level, device="cuda")
    builder.step(0, 100)
    measure = analyse(builder.build()).measures["device_utilization"]
    assert (measure.value, measure.reason) == (None, Notice("no-busy-time"))
