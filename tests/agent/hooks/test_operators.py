"""The operators of one step: which are counted, how long they take, and which lines call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from profiler.agent.hooks import operators
from profiler.agent.hooks.operators import OperatorCall, summarize, undisturbed
from profiler.run.tables import OPERATORS
from tests.fakes.programs import ROOT

PROGRAM = """
import sys
from pathlib import Path
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from profiler.agent.hooks import operators
from profiler.agent.patching import STATE, unpatch
from profiler.agent.recorder import Recorder
from profiler.run.tables import BoundaryKind
root = Path(sys.argv[1])
weights = torch.randn(8, 8, requires_grad=True)
table = torch.nn.Embedding(500, 4)
def step():
    with record_function("Optimizer.step"):
        total = weights.sum() * 0
        for row in weights.split(1):
            total = total + row.exp().mean()  # the line of small operators
    total = total + table(torch.tensor([[1, 2, 3]])).sum() * 0
    total.backward()
    weights.grad = None
    if "anomaly" in str(STATE.recorder and STATE.recorder.directory):
        torch.autograd.set_detect_anomaly(True)
def scenario(name, steps):
    unpatch()
    (root / name).mkdir()
    STATE.recorder = Recorder(root / name, "standard")
    operators.install(torch.autograd.profiler)
    for _ in range(steps):
        step()
        STATE.recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
scenario("whole", operators.SKIP + operators.STEPS + 2)
scenario("short", 3)
scenario("anomaly", operators.SKIP + operators.STEPS + 2)
torch.autograd.set_detect_anomaly(False)
scenario("cut", operators.SKIP + 2)
STATE.recorder.close()
unpatch()
with profile(activities=[ProfilerActivity.CPU], acc_events=True) as own:
    scenario("around", operators.SKIP + operators.STEPS + 2)
scenario("inside", operators.SKIP + 1)
with profile(activities=[ProfilerActivity.CPU], acc_events=True) as own:
    step()
assert any(event.name == "aten::exp" for event in own.events())
scenario("broken", operators.SKIP - 1)
torch.autograd._enable_profiler_legacy = None
step()
STATE.recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
unpatch()
"""
LINE = next(number for number, text in enumerate(PROGRAM.splitlines(), 1) if "the line of small" in text)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("operators")
    script = folder / "train.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sources = {path.parent.parent.name: json.loads(path.read_text()) for path in folder.glob("*/*/source.json")}
    return {name: source["facts"][OPERATORS] for name, source in sources.items()}


def test_every_operator_counts_once_at_its_line(facts: dict[str, Any]) -> None:
    fact = facts["whole"]
    assert fact["state"] == "recorded"
    assert fact["began"] <= fact["begin"] <= fact["end"] <= fact["ended"]
    rows = [row for row in fact["lines"] if row[0] and row[0][0][1] == LINE]
    forward, backward = ([row for row in rows if row[1] is side] for side in (False, True))
    assert sum(row[3] for row in forward) == 8 * 3  # exp, mean, add
    assert sum(row[3] for row in backward) == 8 * 3
    assert all(row[0][0][2] == "step" and not row[2] and 0 <= row[6] <= row[4] for row in rows)


def test_the_gradient_of_a_table_has_its_line_and_its_numbers_of_rows(facts: dict[str, Any]) -> None:
    ((frames, rows, taken, seconds),) = facts["whole"]["tables"]
    assert (frames[0][1:], rows, taken) == ([LINE + 1, "step"], 500, 3)
    assert 0 < seconds <= sum(row[4] for row in facts["whole"]["lines"] if row[1])


def test_the_engine_looks_for_nan_in_gradients_while_anomaly_detection_is_on(facts: dict[str, Any]) -> None:
    assert "nan_checks" not in facts["whole"]
    assert facts["anomaly"]["nan_checks"] > 0


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("short", "waiting", "the program ended before"),
        ("cut", "recorded", "ended early"),
        ("around", "skipped", "started by the program"),
        ("inside", "recorded", "the program started torch's profiler"),
        ("broken", "failed", "TypeError"),
    ],
)
def test_windows_that_do_not_run_to_their_end(facts: dict[str, Any], name: str, state: str, reason: str) -> None:
    assert facts[name]["state"] == state
    assert reason in facts[name]["reason"]


def operator(name: str, microseconds: float, sequence: int = -1, stack: tuple[str, ...] = ()) -> OperatorCall:
    return OperatorCall(name, microseconds, 1, sequence, stack)


def test_a_wait_for_a_core_in_one_step_does_not_count() -> None:
    steps = [[operator("a", 5), operator("b", 900)], [operator("a", 700), operator("b", 6)], [operator("c", 9_000)]]
    assert [each.microseconds for each in undisturbed(steps)] == [5, 6]


def test_the_profiler_s_list_grows_at_another_operator_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it grows, the operator that is recorded then takes longer."""
    session = operators.OperatorSession.__new__(operators.OperatorSession)
    probes: list[int] = []
    session._steps, session._has_stacks = [], False
    monkeypatch.setattr(session, "_start", lambda *, with_stack: probes.append(-1 if with_stack else 0))
    monkeypatch.setattr(session, "_stop", list)
    monkeypatch.setattr(session, "_probe", probes.append)
    for _ in range(operators.STEPS - 1):
        session.next_step()
    assert probes == [0, 100, 0, 200, 0, 300, -1], "the step with stacks is not timed"
    # the second of three operators takes longer in the first step only, as the third one does in the second
    first = [OperatorCall(name, time, 1, -1) for name, time in (("a", 5.0), ("b", 900.0), ("c", 7.0))]
    second = [OperatorCall(name, time, 1, -1) for name, time in (("a", 5.0), ("b", 6.0), ("c", 900.0))]
    assert [each.microseconds for each in undisturbed([first, second])] == [5.0, 6.0, 7.0]


def test_a_gradient_is_of_the_last_operator_with_its_number() -> None:
    """An operator without a gradient has the number that the next one with a gradient will have."""
    read, made = ("/project/train.py(34): log",), ("/project/train.py(30): step",)
    backward = f"{operators._BACKWARD}: GruBackward0"
    located = [operator("aten::detach", 1, 7, read), operator("aten::gru", 50, 7, made), operator(backward, 9, 7)]
    rows = summarize(located, located, event_cost=0.0, torch_folder="/lib/torch")["lines"]
    assert [(row[0][0][1], row[1]) for row in rows] == [(30, False), (30, True), (34, False)]


@pytest.mark.parametrize(
    ("stack", "caller"),
    [
        (("torch/optim/adam.py(3): step", "/project/train.py(9): main"), "optimizer"),
        (("torch/nn/linear.py(3): forward", "/project/train.py(5): closure", "torch/optim/adam.py(3): step"), ""),
        (("/project/data.py(5): __getitem__", "torch/utils/data/fetch.py(3): fetch"), "loader"),
    ],
)
def test_a_closure_of_an_optimizer_is_the_program(stack: tuple[str, ...], caller: str) -> None:
    frames = tuple(frame if frame.startswith("/") else f"/lib/{frame}" for frame in stack)
    (row,) = summarize([operator("a", 1)], [operator("a", 1, -1, frames)], 0.0, "/lib/torch")["lines"]
    assert row[2] == caller


def test_the_line_of_the_program_is_kept_however_deep_a_library_is() -> None:
    library = [f"/v/site-packages/transformers/m.py({depth}): forward" for depth in range(9)]
    frames = (*library, "/project/train.py(7): main", "/project/run.py(3): start")
    (row,) = summarize([operator("a", 1)], [operator("a", 1, -1, frames)], 0.0, "/lib/torch")["lines"]
    assert [line for _, line, _ in row[0]] == [0, 1, 2, 3, 4, 5, 7]


def test_the_cost_of_events_is_taken_out_and_gradients_get_the_line_of_their_operator() -> None:
    located = [
        operator("aten::exp", 1, 7, ("/lib/torch/x.py(3): inner", "/project/train.py(12): step")),
        operator(f"{operators._BACKWARD}: ExpBackward0", 1, 7, ("/project/train.py(20): main",)),
        operator("aten::mm", 1, -1, ("/lib/torch/utils/data/fetch.py(1): fetch", "/project/train.py(30): main")),
    ]
    timed = [operator(each.name, took) for each, took in zip(located, (10.0, 0.25, 50.0), strict=True)]
    rows = summarize(timed, located, event_cost=2.0, torch_folder="/lib/torch")["lines"]
    assert rows == [
        [(("/project/train.py", 30, "main"),), False, "loader", 1, pytest.approx(49e-6), 0, 0.0],
        [(("/project/train.py", 12, "step"),), False, "", 1, pytest.approx(9e-6), 1, pytest.approx(9e-6)],
        [(("/project/train.py", 12, "step"),), True, "", 1, 0.0, 1, 0.0],
    ]
