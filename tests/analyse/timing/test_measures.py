"""Counters, gauges, throughput and resources of the measured steps, added up by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.measures import Measure
from profiler.analyse.timing.counters import counted_unit
from profiler.analyse.timing.resources import CLOCKS_S, RECORD_S
from profiler.run.model import CollectorStatus
from tests.recorded.builders import MS, RunBuilder, S, timeline

MEMORY = "step 0 100; sample process.rss 10 100 pid=1; sample process.rss 20 80 pid=1"
GPUS = "; ".join(
    f"sample gpu.util {time} {share} pid=0 thread=0; sample gpu.util {time} 0.9 pid=0 thread=1"
    for time, share in ((100, 1.0), (175, 0.4), (250, 0.2))  # of these stand for 0, 75 and 25 ns of the step
)
NAMED_GPUS = [{"index": 0, "name": "NVIDIA H200"}, {"index": 1, "name": "NVIDIA T4"}]
OTHER_PROCESSES = "step 1 3; " + "; ".join(
    f"sample process.cpu_s {second} {value} pid={pid}"
    for pid, used in ((100, (0, 2, 4)), (71, (0, 0.5, 1.5)), (72, (1, 1, 3)))  # 100 is the stepping process
    for second, value in zip((0, 2, 4), used, strict=True)
)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        pytest.param(
            "warm-up 0 10; step 10 20; step 20 30; step 30 40; step 40 50; counter syncs 77 1000 6 2 step=-1;"
            "counter syncs 4 step=4; counter syncs 500 step=2 pid=999; counter my_own 8 step=2;"
            "counter h2d_bytes 4096 step=1; counter allocations 12",
            {},
            {
                "syncs_per_step": (3, "1/step", 4),
                "my_own_per_step": (2, "1/step", 4),
                "h2d_bytes_per_step": (1024, "bytes/step", 4),
                "allocations_per_step": (0, "1/step", 4),
                "launches_per_step": "not-counted",
            },
            id="counters are means over the measured steps of their process",
        ),
        pytest.param(
            "step 0 10 tokens=100; step 10 20 tokens=300; gauge loss 1 2; gauge device_memory 64 step=1",
            {},
            {"loss": (1.75, "1", 2), "device_memory": (64, "bytes", 1), "accuracy": "no-gauge"},
            id="gauges are weighted by tokens where steps have them",
        ),
        pytest.param(
            "steps 2 10; gauge loss 1 2; gauge accuracy nan 0.5",
            {},
            {"loss": (1.5, "1", 2), "accuracy": "not-finite"},
            id="gauges without tokens are plain means",
        ),
        pytest.param(
            "warm-up 0 10; step 10 20; gauge loss 1", {}, {"loss": "no-gauge-in-steps"}, id="a gauge of the warm-up"
        ),
        pytest.param(
            "step 0 1 tokens=1000; step 5 8 tokens=3000",
            {"tick": S},
            {"tokens_per_s": (1000, "tokens/s", 2), "steps_per_s": (0.5,), "step_time": (2, "s"), "steps": (2,)},
            id="steps that are not contiguous count their own time only",
        ),
        pytest.param(
            "steps 4 10 tokens=50",
            {"tick": MS, "unit": "points"},
            {"tokens_per_s": (5000, "points/s"), "steps_per_s": (100, "steps/s")},
            id="a program says what its steps count",
        ),
        pytest.param("steps 2 10", {}, {"tokens_per_s": "no-tokens"}, id="steps that count nothing"),
        pytest.param(
            "step 0 100 process_cpu=150 device_cpu=40; step 100 200 process_cpu=170 device_cpu=20",
            {},
            {"host_cpu": (1.3, "cores", 2), "device_cpu": (0.3, "cores", 2)},
            id="the host's CPU leaves the device's threads out",
        ),
        pytest.param(
            "step 0 9 process_cpu=18", {}, {"host_cpu": (2,), "device_cpu": "no-device-threads"}, id="no device threads"
        ),
        pytest.param("step 0 100", {}, {"host_cpu": "no-cpu-times"}, id="no clocks"),
        pytest.param(
            OTHER_PROCESSES,
            {"tick": S},
            {"children_cpu": (((0.5 + 1.0) / 2 + (0.0 + 2.0) / 2) / 2, "cores", 2)},
            id="other processes count by how much of their time was within steps",
        ),
        pytest.param("step 1 3", {"tick": S}, {"children_cpu": "no-other-process"}, id="no other process"),
        pytest.param(
            "step 1 3; sample process.cpu_s 0 0 pid=7; sample process.cpu_s 1 9 pid=7; sample process.cpu_s 2 1 pid=8",
            {"tick": S},
            {"children_cpu": "no-other-process"},
            id="other processes outside of the steps",
        ),
        pytest.param(
            "step 1 3; sample process.cpu_s 0 1 pid=71; sample process.cpu_s 4 1.001 pid=71",
            {"tick": S},
            {"children_cpu": "other-processes-idle"},
            id="other processes that only wait",
        ),
        pytest.param(
            "steps 2 100; kernel 0 40; upload 30 50 stream=1",
            {"level": "standard", "device": "host"},
            {"device_utilization": (0.25, "1", 2, "activities")},
            id="the device's activities",
        ),
        pytest.param(
            "steps 2 100; kernel 0 40; counter device_busy_ns 100",
            {"level": "standard", "device": "host"},
            {"device_utilization": (0.5, "1", 2, "counters")},
            id="the device's own count comes first",
        ),
        pytest.param(
            f"warm-up 0 100; step 100 200; {GPUS}",
            {"device": "cuda", "device_label": "NVIDIA H200", "devices": NAMED_GPUS},
            {"device_utilization": (0.35, "1", 2, "nvml")},
            id="NVML: the GPU with the program's name for it, weighted by the measured time before a sample",
        ),
        pytest.param(
            f"warm-up 0 100; step 100 200; {GPUS}",
            {"device": "cuda", "device_label": "", "devices": NAMED_GPUS},
            {"device_utilization": (0.9, "1", 2, "nvml")},
            id="NVML: else the busiest",
        ),
        pytest.param("step 0 9", {"device": "cuda"}, {"device_utilization": "no-busy-time"}, id="no count, light"),
        pytest.param(
            "step 0 100",
            {"device": "cuda", "level": "standard"},
            {"device_utilization": "no-busy-time"},
            id="no count, standard",
        ),
        pytest.param(
            "step 0 9; sample process.rss 1 50 pid=1; sample process.rss 1 30 pid=2; sample process.rss 2 70 pid=1",
            {},
            {"peak_memory": (80, "bytes", 2, "sampled resident memory")},
            id="memory of processes that were sampled together is added up",
        ),
        pytest.param(
            f"{MEMORY}; sample process.peak_rss 20 170 pid=1",
            {},
            {"peak_memory": (170, "bytes", 2, "peak resident memory")},
            id="the high-water mark knows more than samples",
        ),
        pytest.param(
            f"{MEMORY}; sample process.peak_rss 20 110 pid=1; sample process.rss 10 50 pid=2",
            {},
            {"peak_memory": (150, "bytes", 2, "sampled resident memory")},
            id="the high-water mark of one process is less than the memory of two",
        ),
        pytest.param(MEMORY, {}, {"peak_memory": (100,)}, id="no high-water mark"),
        pytest.param("step 0 1", {}, {"peak_memory": "no-memory-samples"}, id="no memory samples"),
        pytest.param(
            "step 0 9 thread=1 pid=7 index=0; warm-up 0 9 thread=1 pid=7 index=1; step 0 9 thread=2 pid=8 index=0;"
            "step 10 20 thread=2 pid=8 index=1; step 20 30 thread=2 pid=8 index=2; counter syncs 9 pid=7;"
            "counter syncs 3 pid=8",
            {},
            {"steps": (3,), "syncs_per_step": (1,)},
            id="the stepping thread is the one with most measured steps",
        ),
    ],
)
def test_measure(text: str, options: dict[str, Any], expected: dict[str, str | tuple[object, ...]]) -> None:
    measures = analyse(timeline(text, **({"level": "light"} | options))).measures
    for name, value in expected.items():
        measure = measures[name]
        if isinstance(value, str):
            assert (measure.value, measure.reason.code) == (None, value)
        else:
            actual = (measure.value, measure.unit, measure.n, measure.source)
            assert (pytest.approx(actual[0]), *actual[1 : len(value)]) == value, name


def test_hooks_that_counted_nothing_counted_zero() -> None:
    def counted(**facts: Any) -> dict[str, float | None]:
        measures = analyse(timeline("step 0 9; counter h2d 4", level="light", **facts)).measures
        return {name: measures[name].value for name in ("syncs_per_step", "might_sync_per_step") if name in measures}

    failed = [CollectorStatus("hook tensors", "failed", "a fault")]
    assert counted(package="/p", device="cpu") == {"syncs_per_step": None, "might_sync_per_step": 0}
    assert counted(package="/p", device="cuda") == {"syncs_per_step": 0}
    assert counted(package="/p", device="cuda", collectors=failed) == {"syncs_per_step": None}
    assert counted(device="cpu") == {"syncs_per_step": None}, "no hook was installed"


def test_step_time_has_a_t_interval_and_percentiles() -> None:
    run = timeline("step 0 8; step 8 17; step 17 27; step 27 38; step 38 50", tick=MS, level="light")
    measures = analyse(run).measures
    half = 2.7764451051977987 * math.sqrt(2.5 / 5) * 1e-3  # t(0.975, 4) of any printed table: 2.776
    step = measures["step_time"]
    assert (step.value, step.low, step.high) == pytest.approx((0.010, 0.010 - half, 0.010 + half))
    assert (measures["step_time_p50"].value, measures["step_time_p95"].value) == pytest.approx((0.010, 0.0118))


def test_one_step_has_no_interval() -> None:
    measures = analyse(timeline("step 0 10", tick=MS, level="light")).measures
    assert measures["step_time"] == Measure("step_time", 0.01, "s", n=1, source="steps")


@pytest.mark.parametrize("unit", ["", 3, None, "<b>", "a word too many", "x" * 30])
def test_what_is_no_word_is_no_unit(unit: object) -> None:
    assert counted_unit(RunBuilder(unit=unit).build().info) == "tokens"


@pytest.mark.parametrize(
    ("text", "code"), [("", "no-step"), ("warm-up 0 9; warm-up 9 18; kernel 0 18; ", "only-warm-up")]
)
def test_without_measured_steps_everything_is_missing_with_the_reason(text: str, code: str) -> None:
    text += "counter syncs 1; gauge loss 1; data 0 5; stack a.py:1 0 5"
    analysis = analyse(timeline(text, device="host", unit="points"))
    measures = {name: measure for name, measure in analysis.measures.items() if name not in ("steps", "peak_memory")}
    everything = [*measures.values(), *analysis.breakdown.values(), *analysis.device_breakdown.values()]
    assert {(measure.value, measure.reason.code) for measure in everything} == {(None, code)}
    assert (analysis.measures["steps"].value, measures["tokens_per_s"].unit) == (0, "points/s")
    assert (analysis.idle, analysis.call_sites, analysis.series, analysis.flame) == ((), (), (), None)
    assert [warning.values["reason"].code for warning in analysis.warnings] == [code]
    assert all(gap.reason for gap in analysis.missing)


@pytest.mark.parametrize(
    ("megabytes", "step_ms", "growth"),
    [
        ([100 + 2 * at for at in range(18)], 100, (2e6 / 5, 2e6 / 5, 2e6 / 5)),
        ([100 + 2 * at for at in range(18)], 50, None),
        ([100 + min(at, 9) for at in range(18)], 100, None),
        ([100 + 30 * (at >= 9) for at in range(18)], 100, None),
        ([100 + at % 3 for at in range(18)], 100, None),
        ([100, 110, 120], 1000, None),
    ],
)
def test_memory_grows_where_it_does_so_throughout_some_seconds(
    megabytes: list[float], step_ms: int, growth: tuple[float, float, float] | None
) -> None:
    builder = RunBuilder()
    builder.steps(90, step_ms * MS)
    for number, size in enumerate(megabytes):
        builder.sample("process.anonymous", (5 * number + 1) * step_ms * MS - 1, size * 1e6)
        builder.sample("process.anonymous", (5 * number + 1) * step_ms * MS - 1, 1e9 * number, pid=7)
    measure = analyse(builder.build()).measures.get("memory_growth")
    assert (measure and (measure.value, measure.low, measure.high)) == (growth and pytest.approx(growth))


@pytest.mark.parametrize("step", [0, 1, 2])
def test_samples_within_one_step_tell_no_growth_of_memory(step: int) -> None:
    builder = RunBuilder()
    builder.steps(3, 20_000 * MS)
    for number in range(20):
        builder.sample("process.anonymous", (20_000 * step + 1000 + 500 * number) * MS, 1e8 + 1e6 * number)
    assert "memory_growth" not in analyse(builder.build()).measures


@pytest.mark.parametrize(("pages", "tid", "expected"), [(5000, 100, (5000, 2e-3)), (100, 100, None), (5000, 101, None)])
def test_new_pages_of_the_stepping_thread(pages: int, tid: int, expected: tuple[float, float] | None) -> None:
    builder = RunBuilder()
    builder.steps(10, 10 * MS, tid=100)
    for step in (0, 4, 9):
        builder.sample("thread.minor_faults", (step * 10 + 5) * MS, 7 + pages * step, tid=tid)
        builder.sample("thread.system_s", (step * 10 + 5) * MS, 1 + 2e-3 * step, tid=tid)
    measures = analyse(builder.build()).measures
    found = [measures[name].value for name in ("page_faults", "kernel_time") if name in measures]
    assert found == pytest.approx(expected or [])


def test_the_cost_of_recording_is_that_of_the_records_of_the_stepping_thread() -> None:
    builder = RunBuilder(device="cpu")
    for number in range(4):
        builder.step(number * 10 * MS, (number + 1) * 10 * MS)
        builder.region("backward", (10 * number + 1) * MS, (10 * number + 2) * MS)
        builder.boundary((10 * number + 9) * MS)
        builder.region("dataset", (10 * number + 1) * MS, (10 * number + 2) * MS, tid=7)  # of another thread
        builder.region("dataset", (10 * number + 1) * MS, (10 * number + 2) * MS, pid=7)
    builder.region("backward", 50 * MS, 51 * MS)  # after the last step
    builder.thread_clocks(9 * MS, 1, 1)
    analysis = analyse(builder.build())
    assert analysis.recording == pytest.approx(2 * RECORD_S + CLOCKS_S / 4)
    builder = RunBuilder(device="cpu")
    builder.steps(4, 10 * MS)
    builder.region("backward", 1 * MS, 2 * MS)
    assert analyse(builder.build()).recording == 0.0, "the program marks itself"
