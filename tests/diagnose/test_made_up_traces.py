"""Causes in small traces of GPUs that are made up in the shape of real ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from profiler import read
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Finding
from profiler.report.finding_text import finding_text, told
from profiler.run.tables import MEMORY_FILL
from tests.run.ingest.made_up import event, on_device, written

PROPERTIES: Final = [{"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 1}]
FILL_KERNEL: Final = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"


def analysed(folder: Path, events: Iterable[Any]) -> Analysis:
    return read(written(folder / "trace.json", list(events), deviceProperties=PROPERTIES))


def kernel(number: int, launch: float, begin: float, length: float, name: str = "k", stream: int = 7) -> list[Any]:
    """A kernel with the call that launches it."""
    call = event("cuda_runtime", "cudaLaunchKernel", launch, 4, correlation=number)
    return [call, on_device("kernel", name, begin, length, stream=stream, correlation=number)]


def steps(count: int, length: float) -> list[Any]:
    return [event("user_annotation", f"ProfilerStep#{n}", n * length, length - 10) for n in range(count)]


def small_kernels(count: int, begin: float = 0.0, first: int = 1) -> list[Any]:
    """Launches of kernels of 7 µs, one each 40 µs."""
    events = []
    for number in range(count):
        at = begin + 40 * number
        events += [event("cpu_op", "aten::mm", at, 30), *kernel(first + number, at + 15, at + 22, 7)]
    return events


def rules(analysis: Analysis) -> list[str]:
    return [finding.rule.name for finding in told(analysis.findings)]


def found(analysis: Analysis, rule: str) -> Finding:
    return next(each for each in analysis.findings if each.rule.name == rule)


# ---------------------------------------------------------------- launches


@pytest.mark.parametrize(("count", "is_found"), [(1, False), (2, True), (3, True)])
def test_few_launches_are_enough_where_steps_repeat_them(tmp_path: Path, count: int, is_found: bool) -> None:
    launches = [each for n in range(count) for each in small_kernels(16, 700.0 * n, 100 * n + 1)]
    analysis = analysed(tmp_path, [*steps(count, 700), *launches])
    assert ("many-small-kernels" in rules(analysis)) == is_found
    assert ("only 16 launches" in analysis.verdict) != is_found


def test_launches_of_one_step_are_not_those_of_each(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, [*steps(2, 700), *small_kernels(16)])
    assert "no cause to name" in analysis.verdict


def test_a_long_first_launch_occurs_once(tmp_path: Path) -> None:
    """The first launch loads a module of kernels, and 3,000 others keep the device busy."""
    events = [event("cpu_op", "aten::add", 0, 1_500_020), *kernel(1, 5, 1_500_010, 50)]
    events[1]["dur"] = 1_500_000
    for number in range(2, 3002):
        at = 1_500_100 + 50 * number
        events += [event("cpu_op", "aten::mm", at, 20), *kernel(number, at + 2, at + 10, 49)]
    analysis = analysed(tmp_path, events)
    assert rules(analysis) == ["idle-launched-once"]
    assert "occurs once" in analysis.headline
    assert "1.50 s" in analysis.headline
    assert not found(analysis, "idle-launched-once").gains


def test_a_launch_before_the_steps_is_no_part_of_them(tmp_path: Path) -> None:
    launches = [each for n in range(3) for each in small_kernels(16, 900_000 + 700.0 * n, 100 * n + 1)]
    marked = [{**each, "ts": each["ts"] + 900_000} for each in steps(3, 700)]
    first = [event("cuda_runtime", "cudaLaunchKernel", 0, 800_000, correlation=999)]
    analysis = analysed(tmp_path, [*first, on_device("kernel", "k", 800_010, 50, correlation=999), *marked, *launches])
    finding = found(analysis, "many-small-kernels")
    assert finding.values["launches"] == 16
    assert finding.values["call"] == pytest.approx(690e-6 / 16)


def test_few_large_kernels_are_not_limited_by_launches(tmp_path: Path) -> None:
    events = steps(4, 40_000)
    for number in range(16):
        at = 10_000 * number
        events += [event("cpu_op", "aten::conv2d", at, 4000), *kernel(number + 1, at + 3900, at + 3906, 6000)]
    assert rules(analysed(tmp_path, events)) == ["idle-framework"]


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(("name", "setting"), [("hipFree", ""), ("cudaFree", "expandable_segments:True")])
@pytest.mark.parametrize("marked", [0, 5])
def test_memory_that_each_step_gives_back(tmp_path: Path, name: str, setting: str, marked: int) -> None:
    events = steps(marked, 40_000)
    for number in range(200):
        at = 1000 * number
        events += [event("cpu_op", "aten::empty", at, 900), event("cuda_runtime", name, at + 1, 880)]
        events += kernel(number + 1, at + 905, at + 911, 80)
    analysis = analysed(tmp_path, events)
    assert rules(analysis)[0] == "empty-cache"
    finding = found(analysis, "empty-cache")
    assert name in finding_text(finding).evidence[0]
    assert finding.share == pytest.approx(0.88, abs=0.01)
    assert setting in finding_text(finding).fix
    assert "empty_cache()" in finding_text(finding).fix
    assert ("expandable_segments" in finding_text(finding).fix) == bool(setting)


@pytest.mark.parametrize("allocating", [1, 2])
def test_memory_that_only_the_first_steps_allocate_is_got_once(tmp_path: Path, allocating: int) -> None:
    events = steps(6, 10_000)
    for number in range(72):
        step, at = divmod(number, 12)
        begin = 10_000 * step + 800 * at
        events += [event("cpu_op", "aten::mm", begin, 790), *kernel(number + 1, begin + 700, begin + 706, 90)]
        if step < allocating:
            events.append(event("cuda_runtime", "cudaMalloc", begin + 5, 600))
    analysis = analysed(tmp_path, events)
    assert "empty-cache" not in rules(analysis)
    once = found(analysis, "idle-setup-once")
    assert once.values["once"] == pytest.approx(12 * allocating * 600e-6, rel=0.01)
    assert not once.gains


def filling(count: int = 12) -> list[Any]:
    """Steps that fill the memory of each result, as torch does with deterministic algorithms."""
    events = steps(3, 1000)
    for step in range(3):
        for number in range(count):
            at, first = 1000 * step + 80 * number, 100 * step + 2 * number + 1
            events += [event("cpu_op", "aten::mm", at, 60), event("cpu_op", "aten::empty", at + 2, 30)]
            events += [event("cpu_op", "aten::fill_", at + 5, 20), *kernel(first, at + 10, at + 16, 20, FILL_KERNEL)]
            events += kernel(first + 1, at + 40, at + 46, 50)
    return events


def test_fills_of_new_memory(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, filling())
    finding = found(analysis, "memory-fills")
    assert analysis.findings[0] is finding
    assert finding.values["fills"] == 12
    assert finding.costs["filling"] == pytest.approx(12 * 20e-6)
    assert finding.gain == pytest.approx(990 / (990 - 12 * 20), rel=0.02)
    assert "fill_uninitialized_memory = False" in finding_text(finding).fix


def test_fills_that_a_program_asks_for_are_no_fills_of_new_memory(tmp_path: Path) -> None:
    """torch.full and torch.zeros call aten::empty before they fill, and not around that."""
    events = filling()
    for each in events:
        if each["name"] == "aten::empty":
            each["dur"] = 2
    analysis = analysed(tmp_path, events)
    assert "memory-fills" not in rules(analysis)
    assert MEMORY_FILL not in [row.subject for row in analysis.idle]


def test_fills_of_new_memory_on_the_cpu(tmp_path: Path) -> None:
    events = [each for each in filling() if each["cat"] in ("cpu_op", "user_annotation")]
    analysis = read(written(tmp_path / "trace.json", events))
    assert found(analysis, "memory-fills").costs == {"compute": pytest.approx(12 * 20e-6)}


# ---------------------------------------------------------------- work that was submitted


def test_idle_time_between_the_kernels_of_a_graph(tmp_path: Path) -> None:
    events = steps(5, 10_000)
    for step in range(5):
        at = 10_000 * step
        events.append(event("cuda_runtime", "cudaGraphLaunch", at, 20, correlation=step + 1))
        events.append(event("cuda_runtime", "cudaStreamSynchronize", at + 30, 9900))
        events += [on_device("kernel", "k", at + 30 + 10 * n, 6, correlation=step + 1) for n in range(980)]
    analysis = analysed(tmp_path, events)
    assert rules(analysis) == ["idle-submitted"]
    assert "between the kernels of one launch" in analysis.headline
    assert found(analysis, "idle-submitted").share == pytest.approx(0.39, abs=0.01)


def test_idle_time_of_streams_that_wait_for_events(tmp_path: Path) -> None:
    """All kernels of a step are launched in its first 400 µs. The rest of it they wait for each other's events."""
    events = steps(4, 10_000)
    for number in range(80):
        step, at = divmod(number, 20)
        launch = 10_000 * step + 20 * at
        events += [event("cpu_op", "aten::mm", launch, 15), event("cuda_runtime", "cudaStreamWaitEvent", launch + 1, 2)]
        events += kernel(number + 1, launch + 4, 10_000 * step + 20 + 490 * at, 200, stream=7 + at % 2)
    analysis = analysed(tmp_path, [*events, event("python_function", "train.py(3): main", 0, 40_000)])
    assert rules(analysis) == ["idle-submitted"]
    finding = found(analysis, "idle-submitted")
    assert finding.share == pytest.approx(0.55, abs=0.01)
    assert (finding.sites, finding.gains, finding_text(finding).fix) == ((), (), "")


def test_a_short_delay_of_a_launch_is_the_hosts(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, [*steps(3, 700), *(e for n in range(3) for e in small_kernels(16, 700 * n, 99 * n))])
    assert not [row for row in analysis.idle if row.state.name == "SUBMITTED"]


def test_a_wait_for_a_loaders_workers_is_not_making_batches(tmp_path: Path) -> None:
    events = steps(5, 10_000)
    for step in range(5):
        at = 10_000 * step
        wait = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events.append(event("user_annotation", wait, at, 7000))
        events.append(event("cuda_runtime", "cudaGraphLaunch", at + 7010, 20, correlation=step + 1))
        events.append(on_device("kernel", "k", at + 7035, 2700, correlation=step + 1))
    assert rules(analysed(tmp_path, events)) == ["exposed-input"]


# ---------------------------------------------------------------- traces without the device


@pytest.mark.parametrize(
    ("more", "properties"),
    [
        ([event("cuda_runtime", "cudaLaunchKernel", 5, 5, correlation=1)], []),
        ([event("cpu_op", "aten::cudnn_convolution", 900, 50)], []),
        ([], PROPERTIES),
    ],
)
def test_a_trace_that_lacks_what_the_device_did_says_so_first(
    tmp_path: Path, more: list[Any], properties: list[Any]
) -> None:
    events = [*steps(3, 1000), *(event("cpu_op", "aten::mm", 30 * n, 25) for n in range(90)), *more]
    analysis = read(written(tmp_path / "trace.json", events, deviceProperties=properties))
    assert analysis.headline.startswith("The trace has no activity of the ")
    assert "ProfilerActivity.CUDA" in analysis.headline
    assert not [each for each in analysis.findings if each.is_told and each.gains]
    assert "gpu-unused" not in rules(analysis)


def test_a_trace_of_a_machine_without_a_gpu_lacks_nothing(tmp_path: Path) -> None:
    events = [*steps(3, 1000), *(event("cpu_op", "aten::mm", 30 * n, 25) for n in range(90))]
    assert "no activity" not in read(written(tmp_path / "trace.json", events)).verdict
