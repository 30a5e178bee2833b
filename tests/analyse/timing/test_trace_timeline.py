"""What the host did while the device of a foreign trace was idle: all threads, Python functions, input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler import read
from profiler.analyse.analysis import analyse
from profiler.analyse.model.device import HostState
from profiler.diagnose.rule import StepCosts
from profiler.report.finding_text import told
from profiler.run.load import load
from tests.run.ingest.made_up import PID, TID, event, on_device, written

AUTOGRAD = 99
STEP = event("user_annotation", "ProfilerStep#1", 0, 100)
KERNEL = on_device("kernel", "k", 0, 10, correlation=1)
LAUNCH = event("cuda_runtime", "cudaLaunchKernel", 90, 1, correlation=2)
LAST = on_device("kernel", "k", 95, 5, correlation=2)


def blamed(folder: Path, *events: Any) -> dict[tuple[str, str, str], float]:
    """(category, subject, site) -> points of the step in which the device was idle."""
    rows: dict[tuple[str, str, str], float] = {}
    for row in analyse(load(written(folder / "trace.json", [STEP, KERNEL, LAUNCH, LAST, *events]))).idle:
        key = row.category, row.subject, row.site.function if row.site else ""
        rows[key] = round(rows.get(key, 0.0) + 100 * row.share_of_wall, 6)
    return rows


def test_the_backward_pass_on_another_thread_is_work_of_the_step(tmp_path: Path) -> None:
    rows = blamed(
        tmp_path,
        event("user_annotation", "## backward ##", 20, 60),
        event("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 30, 20, tid=AUTOGRAD),
        event("cuda_runtime", "cudaLaunchKernel", 35, 5, tid=AUTOGRAD, correlation=3),
    )
    assert rows == {
        ("framework", "operator autograd::engine::evaluate_function: MulBackward0", ""): 15,
        ("launch", "launch", ""): 5 + 1,
        ("python", "## backward ##", ""): 40,
        ("unattributed", "", ""): 10 + 10 + 4,
    }


def test_the_stepping_thread_comes_first_where_it_works(tmp_path: Path) -> None:
    rows = blamed(
        tmp_path,
        event("cpu_op", "aten::add", 20, 60),
        event("cpu_op", "MulBackward0", 10, 80, tid=AUTOGRAD),
        event("cuda_runtime", "cudaLaunchKernel", 10, 5, tid=AUTOGRAD, correlation=3),
    )
    assert rows[("framework", "operator aten::add", "")] == 60
    assert rows[("framework", "operator MulBackward0", "")] == 5 + 10


def test_threads_that_give_the_device_no_work_do_not_count(tmp_path: Path) -> None:
    rows = blamed(tmp_path, event("cuda_runtime", "cudaEventQuery", 10, 80, tid=AUTOGRAD))
    assert rows == {("launch", "launch", ""): 1, ("unattributed", "", ""): 84}


def test_idle_time_is_at_the_innermost_function_that_is_not_of_torch_or_python(tmp_path: Path) -> None:
    rows = blamed(
        tmp_path,
        event("python_function", "train.py(3): main", 0, 100),
        event("python_function", "train.py(9): metrics", 10, 30),
        event("python_function", "json/encoder.py(5): encode", 15, 10),
        event("python_function", "torch/nn/modules/linear.py(7): forward", 40, 40),
        event("python_function", "<built-in function linear>", 45, 30),
        event("cpu_op", "aten::linear", 50, 20),
    )
    assert rows == {
        ("python", "", "metrics"): 30,
        ("framework", "", "main"): 20,
        ("framework", "operator aten::linear", "main"): 20,
        ("python", "", "main"): 14,
        ("launch", "launch", "main"): 1,
    }


def test_the_engine_of_autograd_waits_for_its_thread(tmp_path: Path) -> None:
    rows = blamed(
        tmp_path,
        event("python_function", "train.py(3): main", 0, 100),
        event("python_function", "torch/autograd/graph.py(814): _engine_run_backward", 20, 60),
        event("cpu_op", "MulBackward0", 30, 20, tid=AUTOGRAD),
        event("cuda_runtime", "cudaLaunchKernel", 35, 5, tid=AUTOGRAD, correlation=3),
        event("cpu_op", "AddBackward0", 85, 3, tid=AUTOGRAD),
    )
    assert rows[("framework", "operator MulBackward0", "")] == 15
    assert ("framework", "operator AddBackward0", "") not in rows, "the stepping thread runs Python there"
    assert rows[("framework", "", "main")] == 40


@pytest.mark.parametrize(
    "around",
    [
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 80),
        event("python_function", "transformers/image_processing_utils.py(30): __call__", 10, 80),
        event("python_function", "torch/utils/data/dataloader.py(70): __next__", 10, 80),
        event("python_function", "PIL/Image.py(7): resize", 10, 80),
        event("python_function", "transformers/pipelines/video_classification.py(129): preprocess", 10, 80),
    ],
)
def test_what_runs_inside_of_a_loader_or_an_image_processor_is_input(tmp_path: Path, around: Any) -> None:
    rows = blamed(
        tmp_path,
        around,
        event("cpu_op", "aten::div", 20, 10),
        event("python_function", "scipy/ndimage.py(7): zoom", 30, 10),
    )
    assert sum(points for (category, _, _), points in rows.items() if category == "input") == 80


def test_an_operator_inside_of_a_loader_is_time_of_the_loader(tmp_path: Path) -> None:
    loader = event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 80)
    operators = [event("cpu_op", "aten::div", 20, 10), event("cpu_op", "aten::stack", 40, 30)]
    rows = blamed(tmp_path, loader, *operators)
    assert rows[("input", "data", "")] == 80
    assert not any(subject.startswith("operator") for _, subject, _ in rows)
    trace = written(tmp_path / "trace.json", [STEP, KERNEL, LAUNCH, LAST, loader, *operators])
    analysis = analyse(load(trace))
    assert [(part.name, part.share) for part in analysis.input] == [("the loader itself", pytest.approx(0.8))]
    assert analysis.breakdown["input"].value == pytest.approx(analysis.input[0].seconds_per_step)


def test_image_processors_prepare_no_input_where_they_read_the_output(tmp_path: Path) -> None:
    name = "transformers/models/owlv2/image_processing_owlv2.py(5): post_process_object_detection"
    rows = blamed(tmp_path, event("python_function", name, 10, 80))
    assert rows[("python", "", "post_process_object_detection")] == 80


def test_input_after_a_wait_is_input(tmp_path: Path) -> None:
    """Without the wait the input would take as long."""
    events = (
        event("cuda_runtime", "cudaStreamSynchronize", 5, 10),
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 60),
    )
    rows = blamed(tmp_path, *events)
    assert rows == {
        ("sync", "sync", ""): 5 + 5 + 10,
        ("input", "data", ""): 60,
        ("launch", "launch", ""): 1,
        ("unattributed", "", ""): 4,
    }


def test_the_part_of_a_call_without_a_kind_has_the_name_of_the_call(tmp_path: Path) -> None:
    rows = blamed(tmp_path, event("cuda_runtime", "cudaDeviceGetStreamPriorityRange", 20, 60))
    assert rows[("launch", "cudaDeviceGetStreamPriorityRange", "")] == 60


def test_the_stepping_thread_of_a_trace_without_steps(tmp_path: Path) -> None:
    """Autograd's thread often has most events."""
    events = [event("cpu_op", f"aten::op{n}", 10 * n, 5, tid=AUTOGRAD) for n in range(9)]
    events += [event("cpu_op", "aten::mul", 0, 5, tid=TID), event("cpu_op", "aten::mul", 0, 5, tid=PID)]
    flow = {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": PID, "tid": TID, "ts": 1}
    optimizer = event("user_annotation", "Optimizer.step#SGD.step", 0, 1, tid=55)
    for number, (more, tid) in enumerate([([], PID), ([flow], TID), ([flow, optimizer], 55)]):
        run = load(written(tmp_path / f"{number}.json", [*events, *more]))
        assert run.steps["tid"].tolist() == [tid]


def test_idle_states_of_python_functions(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [STEP, KERNEL, event("python_function", "train.py(3): main", 0, 100)])
    assert {row.state for row in analyse(load(path)).idle} == {HostState.IN_PYTHON}


def test_functions_of_a_trace_are_places_of_its_time(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("python_function", "train.py(3): main", 0, 100),
        event("python_function", "train.py(9): metrics", 10, 70),
        event("cpu_op", "aten::mm", 80, 20),
    ]
    costs = StepCosts(analyse(load(written(tmp_path / "trace.json", events))))
    assert [site.function for site in costs.sites("python")] == ["metrics", "main"]
    assert [site.function for site in costs.sites("compute")] == ["main"]


def test_time_before_the_first_activity_may_be_work_from_before_the_trace(tmp_path: Path) -> None:
    """The host submits a kernel and waits for a copy, but the device begins with neither: its queue is not empty."""
    trace = [
        event("cuda_runtime", "cudaLaunchKernel", 10, 2, correlation=1),
        event("cpu_op", "aten::add", 12, 10),
        event("cuda_runtime", "cudaStreamSynchronize", 30, 50),
        on_device("kernel", "k", 75, 5, correlation=1),
        STEP,
    ]
    analysis = read(written(tmp_path / "trace.json", trace))
    earlier = [row.share_of_wall for row in analysis.idle if row.state is HostState.EARLIER_WORK]
    assert sum(earlier) == pytest.approx(0.63), "12 to 75"
    assert HostState.BLOCKED_IN_CALL not in [row.state for row in analysis.idle]
    verdict = analysis.verdict
    assert "63% of the time passed before its first activity" in verdict
    assert "no cause to name" in verdict


def test_one_call_that_takes_nearly_all_of_the_time_needs_no_further_launches(tmp_path: Path) -> None:
    calls = [event("cuda_runtime", "cudaMalloc", 10, 85), KERNEL, LAUNCH, LAST, STEP]
    [finding] = told(read(written(tmp_path / "trace.json", calls)).findings)
    assert finding.rule.name == "idle-setup-calls"


def test_operators_of_a_program_with_a_gpu_launch_work_though_the_trace_has_no_activity(tmp_path: Path) -> None:
    operator = event("cpu_op", "aten::add", 0, 60)
    collective = event("user_annotation", "nccl:all_reduce", 70, 10)
    lstm = event("cpu_op", "aten::cudnn_is_acceptable", 65, 1)  # which torch calls on the CPU too
    traces = (read(written(tmp_path / "trace.json", [STEP, operator, *more])) for more in ([], [lstm], [collective]))
    are_launches = [any("framework" in each.costs for each in told(trace.findings)) for trace in traces]
    assert are_launches == [False, False, True]
