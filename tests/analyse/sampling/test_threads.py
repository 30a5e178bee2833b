"""What a thread was doing, by frames, clocks and the GIL: every answer on stacks as programs have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import ThreadActivity, ThreadState
from profiler.core.samples import SOURCE_LINE, THREAD_NAME
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import Run, RunInfo
from tests.recorded.builders import RunBuilder

MS = 1_000_000
SITE = "/v/lib/python3.11/site-packages/"
LIB = "/v/lib/python3.11/"
MAIN = ("/home/someone/train.py", 10, "main")
STEP = ("/home/someone/train.py", 30, "step")
NEXT = (SITE + "torch/utils/data/dataloader.py", 700, "_BaseDataLoaderIter.__next__")
TAKE = (SITE + "torch/utils/data/dataloader.py", 1200, "_MultiProcessingDataLoaderIter._try_get_data")
WAIT = (LIB + "threading.py", 320, "Condition.wait")
MODULE = (SITE + "torch/nn/modules/module.py", 1500, "Module._call_impl")
LINEAR = (SITE + "torch/nn/modules/linear.py", 117, "Linear.forward")
WORKER = (SITE + "torch/utils/data/_utils/worker.py", 300, "_worker_loop")
Row = tuple[tuple[tuple[str, int, str], ...], int, int]


def recorded(
    folder: Path,
    rows: list[Row],
    *,
    gil: dict[tuple[tuple[str, int, str], ...], int] | None = None,
    text: str = "",
    tid: int = 7,
    devices: tuple[dict[str, object], ...] = ({"name": "a GPU"},),
) -> Run:
    """A run with rows of (frames, active, ms) of a thread of process 7, and ms for which the GIL was held, of 1 s."""
    store.create(folder)
    info = RunInfo(2, "r", "", ("python", "train.py"), state="attached", level="standard", devices=devices)
    store.write_manifest(folder, info)
    writer = store.RunWriter(folder)
    at = 0
    for frames, active, length in rows:
        writer.stacks([(at, at + length * MS, 7, tid, frames, active)])
        at += length * MS
    values = [(7, 0, "stacks.period_s", 0.01)]
    if gil is not None:
        writer.stacks([(0, length * MS, 7, tid, frames, 1) for frames, length in gil.items()], table="gil_stacks")
        values.append((7, 0, "stacks.gil_window_s", 1.0))
    if text:
        values.append((7, 0, f"{SOURCE_LINE}{STEP[0]}:{STEP[1]}:{text}", 1.0))
    writer.samples(at, values)
    writer.samples(0, [(7, tid, "thread.cpu_s", 1.0), (7, tid, THREAD_NAME + "loop", 1.0)])
    writer.samples(1000 * MS, [(7, tid, "thread.cpu_s", 1.25)])
    writer.close()
    return load(folder)


def threads(run: Run) -> tuple[ThreadActivity, ...]:
    return analyse(run).threads


def answer(run: Run) -> str:
    (found,) = threads(run)
    return found.state


def test_the_largest_answer_has_its_line_and_its_interval(tmp_path: Path) -> None:
    waiting, busy = (MAIN, NEXT, WAIT), (MAIN, STEP)
    run = recorded(tmp_path / "r", [(waiting, 0, 620), (busy, 1, 380)], gil={busy: 380})
    (found,) = threads(run)
    assert (found.state, found.share) == (ThreadState.WAITING_FOR_DATA, pytest.approx(0.62))
    assert str(found.site) == "/home/someone/train.py:10 (main)"
    assert found.calls == "threading.Condition.wait"
    assert found.low < 0.62 < found.high
    assert found.high - found.low == pytest.approx(0.186, abs=0.01), "of 100 samples"
    assert found.states == (
        (ThreadState.WAITING_FOR_DATA, pytest.approx(0.62)),
        (ThreadState.PYTHON, pytest.approx(0.38)),
    )
    assert (found.on_cpu, found.gil) == (pytest.approx(0.25), pytest.approx(0.38))
    assert (found.process, found.thread) == ("process", "")


def test_each_line_has_its_own_share(tmp_path: Path) -> None:
    evaluate, log = ("/home/someone/train.py", 23, "evaluate"), ("/home/someone/train.py", 40, "log")
    rows: list[Row] = [((MAIN, evaluate, MODULE), 1, 690), ((MAIN, STEP, MODULE), 1, 260), ((MAIN, log), 1, 50)]
    (found,) = threads(recorded(tmp_path / "r", rows, gil={(MAIN, log): 50}))
    assert (found.state, found.share) == (ThreadState.TORCH, pytest.approx(0.95))
    assert [(line.site.line, round(line.share, 2)) for line in found.lines] == [(23, 0.69), (30, 0.26), (40, 0.05)]
    first = found.lines[0]
    assert first.low < 0.69 < first.high
    assert first.categories == {ThreadState.TORCH: pytest.approx(0.69)}
    assert first.samples == 69


def below(folder: str, file: str, function: str) -> tuple[tuple[str, int, str], ...]:
    """A stack of a step that calls this function of a library."""
    return MAIN, STEP, (folder + file, 9, function)


@pytest.mark.parametrize(
    ("frames", "active", "expected"),
    [
        ((MAIN, NEXT, ("/home/someone/data.py", 5, "__getitem__")), 1, "MAKING_DATA"),
        ((MAIN, NEXT, TAKE, (LIB + "multiprocessing/queues.py", 9, "Queue.get")), 1, "RECEIVING_DATA"),
        ((MAIN, NEXT, TAKE, WAIT), 0, "WAITING_FOR_DATA"),
        ((MAIN, STEP, MODULE, LINEAR), 1, "TORCH"),
        (below(SITE, "torch/cuda/__init__.py", "synchronize"), 1, "SYNC"),
        (below(SITE, "torch/_tensor_str.py", "_str"), -1, "SYNC"),
        (below(SITE, "torch/distributed/distributed_c10d.py", "all_reduce"), 1, "WAITING_FOR_RANKS"),
        (below(SITE, "torch/serialization.py", "save"), 1, "CHECKPOINTING"),
        ((*below(SITE, "wandb/sdk/wandb_run.py", "log"), WAIT), 0, "LOGGING"),
        (below(SITE, "torch/_inductor/graph.py", "run"), 1, "COMPILING"),
        (
            (MAIN, ("<frozen importlib._bootstrap>", 9, "_load"), (SITE + "torch/fx/a.py", 1, "<module>")),
            1,
            "IMPORTING",
        ),
        ((MAIN, STEP, WAIT), 0, "LOCK"),
        (below(LIB, "ssl.py", "SSLSocket.read"), 0, "NETWORK"),
        (below(LIB, "subprocess.py", "Popen.wait"), 0, "CHILD"),
        (((SITE + "torch/distributed/elastic/agent/server/api.py", 9, "_invoke_run"),), 0, "CHILD"),
        ((MAIN, STEP), 0, "IDLE"),
        ((WORKER, (LIB + "multiprocessing/connection.py", 9, "_poll")), 0, "IDLE"),
    ],
)
def test_frames_and_clock_say_it(
    tmp_path: Path, frames: tuple[tuple[str, int, str], ...], active: int, expected: str
) -> None:
    assert answer(recorded(tmp_path / "r", [(frames, active, 1000)])) == ThreadState[expected]


@pytest.mark.parametrize(
    ("text", "held", "devices", "expected"),
    [
        ("total += loss.item()", 20, 1, ThreadState.PROBABLY_SYNC),
        ("total += loss.item()", 20, 0, ThreadState.TORCH),  # without a device nothing waits for it
        ("y = x @ w", 20, 1, ThreadState.TORCH),
        ("total += loss.item()", 980, 1, ThreadState.PYTHON),
        ("for i in range(n): total += i", 980, 1, ThreadState.PYTHON),
    ],
)
def test_a_line_that_calls_no_python_is_judged_by_its_text_and_the_gil(
    tmp_path: Path, text: str, held: int, devices: int, expected: ThreadState
) -> None:
    rows: list[Row] = [((MAIN, STEP), 1, 990), ((MAIN, STEP, MODULE), 1, 10)]
    gil, gpus = {(MAIN, STEP): held}, ({"name": "a GPU"},) * devices
    (found,) = threads(recorded(tmp_path / "r", rows, gil=gil, text=text, devices=gpus))
    assert (found.state, found.source_line) == (expected, text)


def test_a_thread_that_holds_the_gil_is_busy_although_others_have_its_core(tmp_path: Path) -> None:
    run = recorded(tmp_path / "r", [((MAIN, STEP), 0, 1000)], gil={(MAIN, STEP): 990})
    assert answer(run) == ThreadState.PYTHON


def test_other_threads_are_told_of_when_they_were_not_idle(tmp_path: Path) -> None:
    serving = (LIB + "threading.py", 1002, "Thread._bootstrap"), WAIT
    assert threads(recorded(tmp_path / "a", [(serving, 0, 1000)], tid=8)) == ()
    (found,) = threads(recorded(tmp_path / "b", [(serving, 0, 800), ((serving[0], MAIN), 1, 200)], tid=8))
    assert (found.thread, found.state) == ("loop", ThreadState.IDLE)
    assert found.states[1] == (ThreadState.PYTHON, pytest.approx(0.2))


def test_the_gil_is_a_share_of_the_time_in_which_the_thread_lived() -> None:
    builder = RunBuilder(state="attached")
    for number in range(1000):
        builder.stack(("/usr/lib/python3.11/threading.py:1:wait",), number * MS, (number + 1) * MS, tid=9, active=0)
    for number in range(100):
        builder.stack(("t.py:5:prepare",), number * MS, (number + 1) * MS, tid=8)
        builder.holder(("t.py:5:prepare",), number * MS, (number + 1) * MS, tid=8)
    builder.gil_window(0, 1000 * MS)
    [found] = threads(builder.build())
    assert (found.tid, found.gil, found.state) == (8, pytest.approx(1), ThreadState.PYTHON)


def test_phases_widen_the_interval_where_not_all_was_seen_and_samples_are_the_threads_own() -> None:
    widths = []
    for order in (sorted(range(100)), [37 * number % 100 for number in range(100)]):
        builder = RunBuilder(state="attached")
        for number in range(100):
            line = "t.py:1:main" if order[number] < 50 else "/v/site-packages/torch/serialization.py:9:save"
            builder.stack((line,), 4 * number * MS, (4 * number + 1) * MS, tid=100)
            builder.stack(("t.py:1:main",), 4 * number * MS, (4 * number + 1) * MS, tid=7)
        main = threads(builder.build())[0]
        assert (main.tid, main.samples) == (100, 100)
        widths.append(main.high - main.low)
    assert widths[0] > 1.5 * widths[1], widths


def test_processes_come_as_the_recorder_named_them(tmp_path: Path) -> None:
    run = recorded(tmp_path / "r", [((MAIN, STEP), 1, 1000)])
    facts = {"processes": [{"pid": 7, "name": "child", "rank": 3, "command": "x"}]}
    (found,) = threads(replace(run, info=replace(run.info, facts=facts)))
    assert found.process == "rank 3"
    assert found.gil is None, "there was no window of the GIL's holder"


def test_a_worker_is_called_so(tmp_path: Path) -> None:
    rows: list[Row] = [((WORKER, ("/home/someone/data.py", 5, "__getitem__")), 1, 1000)]
    (found,) = threads(recorded(tmp_path / "r", rows))
    assert (found.process, found.state) == ("loader worker", ThreadState.PYTHON)


def test_a_launcher_that_imports_torch_is_no_worker(tmp_path: Path) -> None:
    imported = (WORKER[0], 1, "<module>")
    (found,) = threads(recorded(tmp_path / "r", [((MAIN, STEP), 1, 1000), ((MAIN, imported), 1, 100)]))
    assert found.process == "process"


def test_processes_that_train_a_model_each_are_no_ranks(tmp_path: Path) -> None:
    run = recorded(tmp_path / "r", [((MAIN, STEP), 1, 1000)])
    steps = np.zeros(4, run.steps.dtype)
    steps["pid"] = (7, 7, 8, 8)
    (found,) = threads(replace(run, steps=steps))
    assert found.process == "training process"
    steps["rank"] = (1, 1, 0, 0)
    (found,) = threads(replace(run, steps=steps))
    assert found.process == "rank 1"


def test_no_stacks_no_answers(tmp_path: Path) -> None:
    assert threads(recorded(tmp_path / "r", [])) == ()
