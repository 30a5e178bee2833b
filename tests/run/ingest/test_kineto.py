"""A trace of torch's profiler as a Run: what each kind of event becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.report.text import step_text
from profiler.run.ingest.trace_rows import activity_kind, call_kind, waits_by_itself
from profiler.run.load import load
from profiler.run.model import Run
from profiler.run.tables import ActivityKind, CallKind
from tests.run.ingest.made_up import PID, TID, event, on_device, written

BASE = 1_700_000_000_000_000_000
GPU = {"id": 0, "name": "Some GPU", "totalGlobalMem": 1024}
EVENTS = [
    {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": {"name": "python"}},
    event("user_annotation", "ProfilerStep#7", 100, 100),
    event("user_annotation", "ProfilerStep#8", 200.5, 99.5),
    event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 101, 9),
    event("user_annotation", "Optimizer.step#SGD.step", 150, 20),
    event("user_annotation", "evaluate", 180, 10),
    event("cpu_op", "aten::linear", 111, 20),
    event("cpu_op", "aten::addmm", 112, 18),
    event("cpu_op", "aten::add", 131, 5),
    event("cpu_op", "MulBackward0", 111, 20, tid=99),
    event("python_function", "train.py(3): main", 100, 200),
    event("cuda_runtime", "cudaLaunchKernel", 113.001, 4.002, correlation=1),
    event("cuda_runtime", "cudaMemcpyAsync", 132, 3, correlation=2),
    event("cuda_runtime", "cudaStreamSynchronize", 135, 0.5, correlation=3),
    event("cuda_runtime", "cudaMemcpyAsync", 160, 1, correlation=4),
    event("cuda_runtime", "cudaMalloc", 210, 5, correlation=5),
    event("cuda_runtime", "cudaGraphLaunch", 220, 5, correlation=6),
    on_device("kernel", "ampere_sgemm", 118.123, 10.456, correlation=1),
    on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 133, 1, correlation=2, bytes=4),
    on_device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 162, 3, correlation=4, bytes=4096, stream=9),
    on_device("kernel", "graph_a", 226, 2, correlation=6),
    on_device("kernel", "graph_b", 228, 2, correlation=6),
    on_device("kernel", "ncclDevKernel_AllReduce", 240, 20, correlation=0, stream=20),
    on_device("gpu_memset", "Memset (Device)", 262, 1),
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": PID, "tid": TID, "ts": 113},
    event("Trace", "PyTorch Profiler (0)", 0, 1000),
    event("gpu_user_annotation", "ProfilerStep#7", 100, 100),
]


def test_numbers_beyond_all_bounds_are_no_numbers(tmp_path: Path) -> None:
    endless = float("inf")
    events = [
        *EVENTS,
        event("cuda_runtime", "cudaLaunchKernel", 300, 1, correlation=endless, tid=endless, pid=endless),
        on_device("kernel", "k", 301, 1, correlation=endless, stream=endless),
        event("cpu_op", "aten::add", endless, 1),
    ]
    run = load(written(tmp_path / "t.json", events, baseTimeNanoseconds=endless))
    assert "k" in [run.names[name] for name in run.activities["name"]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load(
        written(tmp_path / "trace.json.gz", EVENTS, baseTimeNanoseconds=BASE, deviceProperties=[GPU], cupti_version=18)
    )


def rows(run: Run, table: str, *fields: str) -> list[tuple[Any, ...]]:
    """`fields` of a table, names as text, times in ns from BASE."""

    def shown(field: str, value: int) -> Any:
        return run.names[value] if field == "name" else value - BASE if field in {"begin", "end"} else value

    return [tuple(map(shown, fields, row.tolist())) for row in getattr(run, table)[list(fields)]]


def test_what_the_run_says_of_itself(run: Run) -> None:
    assert (run.info.label, run.info.level, run.info.argv, run.info.state) == ("trace.json.gz", "full", (), "complete")
    assert run.info.facts == {"device": "cuda"}
    assert run.info.devices == ({"name": "Some GPU", "memory_bytes": 1024},)
    assert run.info.versions == {"cupti": "18"}
    assert run.info.started_at == "2023-11-14T22:13:20+00:00"
    assert run.problems == ()
    assert set(run.steps["pid"]) == set(run.activities["pid"]) == set(run.calls["pid"]) == {PID}


def test_steps_are_the_annotated_ones(run: Run) -> None:
    assert step_text(run.step) == "ProfilerStep annotations"
    expected = [(0, 100_000, 200_000, TID, 0), (1, 200_500, 300_000, TID, 0)]
    assert rows(run, "steps", "index", "begin", "end", "tid", "warmup") == expected


def test_activities(run: Run) -> None:
    fields = ("begin", "end", "kind", "name", "bytes", "stream", "correlation")
    assert rows(run, "activities", *fields) == [
        (118_123, 128_579, ActivityKind.KERNEL, "ampere_sgemm", 0, 7, 1),
        (133_000, 134_000, ActivityKind.D2H, "Memcpy DtoH (Device -> Pageable)", 4, 7, 2),
        (162_000, 165_000, ActivityKind.H2D, "Memcpy HtoD (Pinned -> Device)", 4096, 9, 4),
        (226_000, 228_000, ActivityKind.KERNEL, "graph_a", 0, 7, 6),
        (228_000, 230_000, ActivityKind.KERNEL, "graph_b", 0, 7, 6),
        (240_000, 260_000, ActivityKind.COMMUNICATION, "ncclDevKernel_AllReduce", 0, 20, 0),
        (262_000, 263_000, ActivityKind.MEMSET, "Memset (Device)", 0, 7, 0),
    ]


def test_calls_take_direction_and_bytes_from_what_they_caused(run: Run) -> None:
    assert rows(run, "calls", "begin", "end", "kind", "name", "blocked", "bytes", "stream", "site") == [
        (113_001, 117_003, CallKind.LAUNCH, "cudaLaunchKernel", 0, 0, 7, 0),
        (132_000, 135_000, CallKind.D2H, "cudaMemcpyAsync", 3_000, 4, 7, 0),  # pageable: it waits
        (135_000, 135_500, CallKind.SYNC, "cudaStreamSynchronize", 500, 0, 0, 0),
        (160_000, 161_000, CallKind.H2D, "cudaMemcpyAsync", 0, 4096, 9, 0),  # pinned: it does not
        (210_000, 215_000, CallKind.ALLOC, "cudaMalloc", 0, 0, 0, 0),
        (220_000, 225_000, CallKind.LAUNCH, "cudaGraphLaunch", 0, 0, 7, 0),
    ]


def test_regions_are_annotations_outermost_operators_and_python_functions_of_each_thread(run: Run) -> None:
    assert rows(run, "regions", "begin", "end", "tid", "name", "depth") == [
        (100_000, 300_000, TID, "frame train.py(3): main", 0),
        (101_000, 110_000, TID, "data", 1),
        (111_000, 131_000, TID, "operator aten::linear", 1),
        (131_000, 136_000, TID, "operator aten::add", 1),
        (150_000, 170_000, TID, "optimizer", 1),
        (180_000, 190_000, TID, "evaluate", 1),
        (111_000, 131_000, 99, "operator MulBackward0", 0),
    ]


def test_counters_of_each_step(run: Run) -> None:
    counted: dict[str, list[float]] = {}
    for row in run.values:
        counted.setdefault(run.names[row["name"]], []).append(float(row["value"]))
    assert counted == {
        "syncs": [1, 0], "h2d": [1, 0], "d2h": [1, 0], "h2d_bytes": [4096, 0], "d2h_bytes": [4, 0],
        "launches": [1, 1], "allocations": [0, 1],
    }  # fmt: skip


def test_it_is_analysed_as_any_run(run: Run) -> None:
    analysis = analyse(run)
    busy = 10_456 + 1_000 + 3_000 + 4_000 + 20_000 + 1_000
    wall = 100_000 + 99_500
    assert analysis.measures["device_utilization"].value == pytest.approx(busy / wall)
    assert sum(m.value or 0 for m in analysis.breakdown.values()) == pytest.approx(wall / 2 / 1e9)
    assert sum(m.value or 0 for m in analysis.device_breakdown.values()) == pytest.approx(wall / 2 / 1e9)
    assert analysis.measures["syncs_per_step"].value == 0.5
    # the operators' 25 us and the optimizer's 20 us less the calls in them, 4.002 and 3.5, and 1
    assert analysis.breakdown["framework"].value == pytest.approx((25_000 - 4_002 - 3_500 + 19_000) / 2 / 1e9)
    assert analysis.breakdown["input"].value == pytest.approx(9_000 / 2 / 1e9)


def test_a_bare_list_of_2020(tmp_path: Path) -> None:
    """Other categories, numbers of threads as text, no base of times, annotations among the operators."""
    events = [
        event("Operator", "ProfilerStep#1", 1606911006433250, 100, tid="3340707648"),
        event("Operator", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1606911006433251, 9),
        event("Operator", "aten::empty", 1606911006433270, 10, tid="3340707648"),
        event("Operator", "aten::add", 1606911006433260, 3, tid="main"),
        event("Runtime", "cudaLaunchKernel", 1606911006433271, 5, tid="3340707648", correlation="12"),
        {**on_device("Kernel", "k", 1606911006433280, 4, correlation="12"), "tid": "stream 7"},
        {**on_device("Memset", "Memset (Device)", 1606911006433290, 1, device="", stream="a")},
    ]
    path = tmp_path / "list.json"
    path.write_text(str(events).replace("'", '"'))
    run = load(path)
    assert run.steps[["begin", "end", "tid"]].tolist() == [(1606911006433250000, 1606911006433350000, 3340707648)]
    assert run.activities[["kind", "stream", "device", "correlation"]].tolist() == [(0, 7, 0, 12), (4, 0, 0, 0)]
    assert [run.names[n] for n in run.regions["name"]] == ["operator aten::add", "input", "operator aten::empty"]
    assert len(set(run.regions["tid"])) == 3
    assert run.info.devices == ({"name": "device 0"},)


def test_without_annotations_the_whole_trace_is_one_step(tmp_path: Path) -> None:
    """It ends where torch's profiler began to wait for the device, so as to stop."""
    events = [
        event("cpu_op", "aten::mm", 100, 20),
        event("cuda_runtime", "cudaLaunchKernel", 105, 5, correlation=1),
        on_device("kernel", "k", 112, 50, correlation=1),
        event("cuda_runtime", "cudaDeviceSynchronize", 130, 900, correlation=2),
    ]
    run = load(written(tmp_path / "t.json", events))
    assert run.steps[["begin", "end", "tid"]].tolist() == [(100_000, 162_000, TID)]
    assert step_text(run.step) == "the whole trace as one step: it has no ProfilerStep annotations"


def test_a_trace_of_the_cpu(tmp_path: Path) -> None:
    run = load(written(tmp_path / "t.json", [event("cpu_op", "aten::mm", 100, 20)], distributedInfo={"rank": 3}))
    assert run.info.facts == {"device": "cpu", "rank": 3}
    assert len(run.activities) == len(run.calls) == len(run.values) == 0
    assert run.steps["rank"].tolist() == run.regions["rank"].tolist() == [3]
    analysis = analyse(run)
    assert analysis.measures["device_utilization"].value is None
    assert analysis.breakdown["compute"].value == pytest.approx(20_000 / 1e9)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", CallKind.LAUNCH), ("cuLaunchKernelEx", CallKind.LAUNCH),
        ("hipExtModuleLaunchKernel", CallKind.LAUNCH), ("hipGraphLaunch", CallKind.LAUNCH),
        ("cudaMemcpyAsync", CallKind.D2D), ("cuMemcpyHtoDAsync_v2", CallKind.H2D), ("cuMemcpyDtoH_v2", CallKind.D2H),
        ("cudaMemsetAsync", CallKind.MEMSET), ("cudaMalloc", CallKind.ALLOC), ("hipHostMalloc", CallKind.ALLOC),
        ("cuMemCreate", CallKind.ALLOC), ("cudaFree", CallKind.FREE), ("cuMemRelease", CallKind.FREE),
        ("cudaStreamSynchronize", CallKind.SYNC), ("hipEventSynchronize", CallKind.SYNC),
        ("cuCtxSynchronize", CallKind.SYNC), ("cudaStreamWaitEvent", CallKind.EVENT),
        ("cudaEventQuery", CallKind.EVENT), ("cudaEventRecordWithFlags", CallKind.EVENT),
        ("cudaFuncSetAttribute", CallKind.OTHER), ("cudaStreamIsCapturing", CallKind.OTHER),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessor", CallKind.OTHER), ("INVALID", CallKind.OTHER),
    ],
)  # fmt: skip
def test_kinds_of_calls(name: str, kind: CallKind) -> None:
    assert call_kind(name) is kind
    assert waits_by_itself(name) is (kind is CallKind.SYNC)


@pytest.mark.parametrize("name", ["cudaMemcpy", "hipMemcpyWithStream"])
def test_copies_that_return_when_the_device_is_done(name: str) -> None:
    assert waits_by_itself(name)


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", True), ("ncclDevKernel_Generic(…)", True),
        ("rcclGenericKernel", True), ("void at::native::vectorized_elementwise_kernel<4>", False),
    ],
)  # fmt: skip
def test_kernels_that_communicate(name: str, communicates: bool) -> None:
    kind = activity_kind("kernel", name)
    assert kind is (ActivityKind.COMMUNICATION if communicates else ActivityKind.KERNEL)


@pytest.mark.parametrize(
    ("category", "kind"), [("cuda_runtime", "cuda"), ("xpu_runtime", "xpu"), ("mtia_runtime", "mtia")]
)
def test_accelerators_of_other_makers_are_no_cpu(tmp_path: Path, category: str, kind: str) -> None:
    run = load(written(tmp_path / "t.json", [event("cpu_op", "aten::mm", 100, 20), event(category, "launch", 105, 5)]))
    assert run.info.facts == {"device": kind}
    assert bool(len(run.values)) is (kind == "cuda"), "a count of 0 would be false: no call of theirs is known"


def test_stretches_that_a_program_named_are_no_operators(tmp_path: Path) -> None:
    """In old traces, and with record_function in C++, they have the category of operators."""
    names = (
        "forward",
        "aten::mm",
        "MulBackward0",
        "Torch-Compiled Region: 0/0",
        "## sort ##",
        "torch::autograd::Accumulate",
    )
    run = load(written(tmp_path / "t.json", [event("cpu_op", name, 100 + 10 * n, 5) for n, name in enumerate(names)]))
    shown = [run.names[number] for number in run.regions["name"]]
    assert [name for name in shown if not name.startswith("operator ")] == ["forward", "## sort ##"]
