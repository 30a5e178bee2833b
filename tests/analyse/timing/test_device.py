"""Device categories: a union over streams in which compute hides what runs beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.timing.breakdown import kernel_times
from profiler.analyse.window import LEVEL_LIGHT, measured_window
from profiler.run.model import Run
from profiler.run.tables import ActivityKind
from tests.recorded.builders import MS, RunBuilder, timeline


def test_categories_are_exclusive_and_sum_to_the_step() -> None:
    builder = RunBuilder(device="cuda")
    builder.step(100, 200)
    builder.step(300, 400)
    builder.activity(ActivityKind.KERNEL, 50, 120)
    builder.activity(ActivityKind.KERNEL, 110, 130, stream=2)
    builder.activity(ActivityKind.H2D, 125, 150, stream=3)  # 5 of it hidden behind a kernel
    builder.activity(ActivityKind.MEMSET, 190, 310)  # 10 in each step
    builder.activity(ActivityKind.COMMUNICATION, 145, 170, stream=4)  # 5 of it beside the copy
    parts = analyse(builder.build()).device_breakdown
    ns = {name: round((measure.value or 0) * 2e9) for name, measure in parts.items()}
    assert ns == {"compute": 30, "copy": 20 + 10 + 10, "communication": 20, "idle": 200 - 30 - 40 - 20}
    assert sum(measure.value or 0 for measure in parts.values()) == pytest.approx(100e-9)


def test_several_devices_have_a_mean_and_a_warning_with_each() -> None:
    text = "step 0 10; kernel 0 6; kernel 6 8 device=1; upload 8 10 device=1"
    analysis = analyse(timeline(text, tick=MS, device="cuda"))
    assert analysis.measures["device_utilization"].value == pytest.approx(0.5)
    parts = {name: 1e3 * (measure.value or 0) for name, measure in analysis.device_breakdown.items()}
    assert parts == pytest.approx({"compute": 4, "copy": 1, "communication": 0, "idle": 5})
    busy = [warning.values["busy"] for warning in analysis.warnings if warning.code == "several-devices"]
    assert busy == [((0, 0.6), (1, 0.4))]


def test_at_level_light_it_is_missing() -> None:
    parts = analyse(timeline("step 0 10", device="host", level="light")).device_breakdown
    assert {(measure.value, measure.reason) for measure in parts.values()} == {(None, LEVEL_LIGHT)}


def traced(begin: int) -> Run:
    """Ten steps of 10 ms on CUDA; the trace saw steps 2 (from `begin` on) and 3, busy 4 ms each."""
    steps = (f"{'warm-up' if number in (2, 3) else 'step'} {number * 10} {number * 10 + 10}" for number in range(10))
    device = "launch 21 22 train.py:5; kernel 22 26; launch 31 32 train.py:5; kernel 32 36"
    run = timeline("; ".join([*steps, device]), tick=MS, level="full", device="cuda")
    facts = run.info.facts | {"trace": {"state": "recorded", "begin": begin * MS, "end": 40 * MS}}
    return replace(run, info=replace(run.info, facts=facts))


def test_the_device_is_judged_by_the_steps_that_were_traced() -> None:
    analysis = analyse(traced(20))
    utilization = analysis.measures["device_utilization"]
    assert (utilization.value, utilization.n) == (pytest.approx(0.4), 2)
    assert analysis.device_breakdown["idle"].value == pytest.approx(6e-3)
    assert sum(row.seconds_per_step for row in analysis.idle) == pytest.approx(6e-3)
    assert analysis.measures["steps"].value == 8


def test_a_step_that_the_trace_saw_in_part_counts_in_part() -> None:
    assert analyse(traced(25)).measures["device_utilization"].value == pytest.approx(5 / 15)


def test_products_in_float32_are_known_by_the_names_of_their_kernels() -> None:
    builder = RunBuilder(device="cuda")
    builder.step(0, 100)
    names = (
        "volta_sgemm_64x64_tn", "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
        "void implicit_convolve_sgemm<float, float, 128>(int)", "void cudnn::cnn::wgrad_alg0_engine<float, 128>(int)",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(cutlass_80)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128", "ampere_fp16_s16816gemm_fp16_128x64",
        "void cudnn::cnn::dgrad_engine<__half, 512>(int)", "vectorized_elementwise_kernel<float>",
    )  # fmt: skip
    for number, name in enumerate(names):
        builder.activity(ActivityKind.KERNEL, 10 * number, 10 * number + 10, name=name)
    assert analyse(builder.build()).float32_products == pytest.approx(0.4)
    assert analyse(timeline("step 0 10", device="cpu")).float32_products == 0.0


def test_kernels_are_summed_by_name_within_the_measured_steps() -> None:
    builder = RunBuilder(device="cuda")
    builder.step(0, 100, warmup=True)
    builder.steps(2, 100, begin=100)
    builder.activity(ActivityKind.KERNEL, 0, 90, name="warm")
    builder.activity(ActivityKind.KERNEL, 90, 120, name="gemm", stream=7)
    builder.activity(ActivityKind.KERNEL, 150, 210, name="gemm", stream=7)
    builder.activity(ActivityKind.COMMUNICATION, 150, 170, name="nccl", stream=20)
    builder.activity(ActivityKind.H2D, 120, 150, name="copy")
    run = builder.build()
    rows = kernel_times(run, measured_window(run))
    assert [(row.name, row.calls_per_step, row.seconds_per_step) for row in rows] == [
        ("gemm", 1.0, 40e-9),
        ("nccl", 0.5, 10e-9),
    ]
    assert [row.share for row in rows] == [0.8, 0.2]


def test_without_a_queue_there_are_no_kernels() -> None:
    run = timeline("step 0 100; forward 0 50", device="cpu")
    assert kernel_times(run, measured_window(run)) == ()
