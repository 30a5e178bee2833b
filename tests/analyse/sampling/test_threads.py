"""The state of threads by their frames, clocks and the GIL, on stacks as py-spy writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.host import ThreadActivity, ThreadState
from profiler.core.metrics import THREAD_NAME
from tests.analyse.sampling.test_frames import LIB, LINEAR, MODULE, SITE
from tests.recorded.builders import MS, RunBuilder, S, parse_site

MAIN, STEP = "/home/someone/train.py:10:main", "/home/someone/train.py:30:step"
NEXT = f"{SITE}torch/utils/data/dataloader.py:700:_BaseDataLoaderIter.__next__"
TAKE = f"{SITE}torch/utils/data/dataloader.py:1200:_MultiProcessingDataLoaderIter._try_get_data"
WAIT = f"{LIB}threading.py:320:Condition.wait"
WORKER = f"{SITE}torch/utils/data/_utils/worker.py:300:_worker_loop"
SERVING = f"{LIB}threading.py:1002:Thread._bootstrap"
GPU = ({"name": "a GPU"},)
Frames = tuple[str, ...]
Row = tuple[Frames, int, int]


def process(
    *rows: Row, gil: dict[Frames, int] | None = None, text: str = "", tid: int = 7, **options: Any
) -> RunBuilder:
    """A thread of process 7 with rows of (frames, active, ms), and ms for which the GIL was held, of 1 s."""
    builder = RunBuilder(**({"state": "attached", "devices": GPU} | options))
    builder.sample("stacks.period_s", 0, 0.01, pid=7)
    at = 0
    line = replace(parse_site(STEP), source=text)
    for frames, active, length in rows:
        builder.stack(
            [line if frame == STEP else frame for frame in frames], at, at + length * MS, active=active, tid=tid, pid=7
        )
        at += length * MS
    for frames, length in (gil or {}).items():
        builder.holder(frames, 0, length * MS, tid=tid, pid=7)
    if gil is not None:
        builder.sample("stacks.gil_window_s", at, 1.0, pid=7)
    builder.sample(THREAD_NAME + "loop", 0, 1.0, pid=7, tid=tid)
    for time, cpu in ((0, 1.0), (S, 1.25)):
        builder.sample("thread.cpu_s", time, cpu, pid=7, tid=tid)
    return builder


def threads(builder: RunBuilder) -> tuple[ThreadActivity, ...]:
    return analyse(builder.build()).threads


def state(*rows: Row, **options: Any) -> ThreadState:
    [thread] = threads(process(*rows, **options))
    return thread.state


def test_the_most_frequent_state_has_its_line_and_its_interval() -> None:
    waiting, busy = (MAIN, NEXT, WAIT), (MAIN, STEP)
    [thread] = threads(process((waiting, 0, 620), (busy, 1, 380), gil={busy: 380}))
    assert thread.states == (
        (ThreadState.WAITING_FOR_DATA, pytest.approx(0.62)),
        (ThreadState.PYTHON, pytest.approx(0.38)),
    )
    assert (thread.state, thread.share) == thread.states[0]
    assert (str(thread.site), thread.calls) == ("/home/someone/train.py:10 (main)", "threading.Condition.wait")
    assert thread.low < 0.62 < thread.high
    assert thread.high - thread.low == pytest.approx(0.186, abs=0.01), "of 100 samples"
    assert (thread.on_cpu, thread.gil) == (pytest.approx(0.25), pytest.approx(0.38))
    assert (thread.process, thread.thread) == ("process", "")


def test_each_line_has_its_own_share() -> None:
    evaluate, log = "/home/someone/train.py:23:evaluate", "/home/someone/train.py:40:log"
    rows: list[Row] = [((MAIN, evaluate, MODULE), 1, 690), ((MAIN, STEP, MODULE), 1, 260), ((MAIN, log), 1, 50)]
    [thread] = threads(process(*rows, gil={(MAIN, log): 50}))
    assert (thread.state, thread.share) == (ThreadState.TORCH, pytest.approx(0.95))
    assert [(line.site.line, round(line.share, 2)) for line in thread.lines] == [(23, 0.69), (30, 0.26), (40, 0.05)]
    first = thread.lines[0]
    assert first.low < 0.69 < first.high
    assert (first.categories, first.samples) == ({ThreadState.TORCH: pytest.approx(0.69)}, 69)
    assert thread.share_at_site == pytest.approx(0.69)


@pytest.mark.parametrize(
    ("frames", "active", "expected"),
    [
        ((MAIN, NEXT, "/home/someone/data.py:5:__getitem__"), 1, "MAKING_DATA"),
        ((MAIN, NEXT, TAKE, f"{LIB}multiprocessing/queues.py:9:Queue.get"), 1, "RECEIVING_DATA"),
        ((MAIN, NEXT, TAKE, WAIT), 0, "WAITING_FOR_DATA"),
        ((MAIN, STEP, MODULE, LINEAR), 1, "TORCH"),
        ((MAIN, STEP, f"{SITE}torch/cuda/__init__.py:9:synchronize"), 1, "SYNC"),
        ((MAIN, STEP, f"{SITE}torch/_tensor_str.py:9:_str"), -1, "SYNC"),
        ((MAIN, STEP, f"{SITE}torch/distributed/distributed_c10d.py:9:all_reduce"), 1, "WAITING_FOR_RANKS"),
        ((MAIN, STEP, f"{SITE}torch/serialization.py:9:save"), 1, "CHECKPOINTING"),
        ((MAIN, STEP, f"{SITE}wandb/sdk/wandb_run.py:9:log", WAIT), 0, "LOGGING"),
        ((MAIN, STEP, f"{SITE}torch/_inductor/graph.py:9:run"), 1, "COMPILING"),
        ((MAIN, "<frozen importlib._bootstrap>:9:_load", f"{SITE}torch/fx/a.py:1:<module>"), 1, "IMPORTING"),
        ((MAIN, STEP, WAIT), 0, "LOCK"),
        ((MAIN, STEP, f"{LIB}ssl.py:9:SSLSocket.read"), 0, "NETWORK"),
        ((MAIN, STEP, f"{LIB}subprocess.py:9:Popen.wait"), 0, "CHILD"),
        ((f"{SITE}torch/distributed/elastic/agent/server/api.py:9:_invoke_run",), 0, "CHILD"),
        ((MAIN, STEP), 0, "IDLE"),
        ((WORKER, f"{LIB}multiprocessing/connection.py:9:_poll"), 0, "IDLE"),
    ],
)
def test_frames_and_the_clock_give_the_state(frames: Frames, active: int, expected: str) -> None:
    assert state((frames, active, 1000)) is ThreadState[expected]


@pytest.mark.parametrize(
    ("text", "active", "held", "devices", "expected"),
    [
        ("total += loss.item()", 1, 20, GPU, ThreadState.PROBABLY_SYNC),
        ("total += loss.item()", 1, 20, (), ThreadState.TORCH),  # without a device nothing waits for it
        ("y = x @ w", 1, 20, GPU, ThreadState.TORCH),
        ("file.write(text); os.fsync(file.fileno())", 1, 20, GPU, ThreadState.NATIVE),
        ("y = np.sort(x)", 1, 20, (), ThreadState.NATIVE),
        ("total += loss.item()", 1, 980, GPU, ThreadState.PYTHON),
        ("for i in range(n): total += i", 1, 980, GPU, ThreadState.PYTHON),
        ("for i in range(n): total += i", 0, 980, GPU, ThreadState.PYTHON),  # other threads have its core
    ],
)
def test_a_line_that_calls_no_python_is_judged_by_its_text_and_the_gil(
    text: str, active: int, held: int, devices: tuple[Any, ...], expected: ThreadState
) -> None:
    rows: list[Row] = [((MAIN, STEP), active, 990), ((MAIN, STEP, MODULE), 1, 10)]
    [thread] = threads(process(*rows, gil={(MAIN, STEP): held}, text=text, devices=devices))
    assert thread.site is not None
    assert (thread.state, thread.site.source) == (expected, text)


def test_other_threads_are_listed_where_they_were_not_idle() -> None:
    assert threads(process(((SERVING, WAIT), 0, 1000), tid=8)) == ()
    [thread] = threads(process(((SERVING, WAIT), 0, 800), ((SERVING, MAIN), 1, 200), tid=8))
    assert (thread.thread, thread.state) == ("loop", ThreadState.IDLE)
    assert thread.states[1] == (ThreadState.PYTHON, pytest.approx(0.2))


@pytest.mark.parametrize(
    "frames",
    [
        (SERVING, f"{SITE}ipykernel/iostream.py:92:IOPubThread._thread_main", f"{LIB}selectors.py:468:select"),
        (SERVING, f"{SITE}tqdm/_monitor.py:69:TMonitor.run", WAIT),
        (SERVING, f"{SITE}torch/_inductor/async_compile.py:9:watch", WAIT),
    ],
)
def test_a_librarys_own_thread_that_only_waits_is_idle(frames: Frames) -> None:
    assert threads(process((frames, 0, 1000), tid=8)) == ()


def test_a_librarys_own_thread_runs_its_outermost_function() -> None:
    polling = (SERVING, f"{SITE}fitkit/memory.py:3:Tracker.poll", f"{SITE}psutil/_common.py:7:wrapper")
    rows: list[Row] = [(polling, 1, 500), ((*polling, f"{SITE}psutil/_linux.py:9:read"), 1, 500)]
    main, other = threads(process(*rows, tid=7)), threads(process(((MAIN, polling[1]), 1, 1000), tid=7))
    assert [thread.runs for thread in (*main, *other)] == ["fitkit.memory.Tracker.poll", ""]


def test_a_thread_without_cpu_time_is_idle_though_no_sample_knows_it() -> None:
    frames = (SERVING, f"{SITE}ipykernel/heartbeat.py:103:Heartbeat.run")
    builder = process((frames, -1, 1000), gil={}, tid=8)
    assert threads(builder)[0].state is ThreadState.NATIVE, "a quarter of a core"
    idle = RunBuilder(state="attached")
    idle.stack(frames, 0, S, active=-1, tid=8, pid=7)
    for time in (0, S):
        idle.sample("thread.cpu_s", time, 1.0, pid=7, tid=8)
    assert threads(idle) == ()


def with_delay(builder: RunBuilder, seconds: float) -> RunBuilder:
    """The kernel's count of the time in which the thread had no core."""
    for time, delay in ((0, 3.0), (S, 3.0 + seconds)):
        builder.sample("thread.wait_s", time, delay, pid=7, tid=7)
    return builder


def test_time_without_a_core_is_neither_python_nor_operators() -> None:
    [thread] = threads(with_delay(process(((MAIN, STEP, MODULE), 1, 1000), gil={}), 0.75))
    assert thread.states == ((ThreadState.CORE, pytest.approx(0.75)), (ThreadState.TORCH, pytest.approx(0.25)))


def test_samples_of_unknown_state_are_as_active_as_the_clocks_tell() -> None:
    waiting, busy = (MAIN, STEP), (MAIN, "/home/someone/train.py:40:log")
    rows: list[Row] = [(waiting, -1, 800), (busy, -1, 200)]
    [thread] = threads(with_delay(process(*rows, gil={busy: 200}), 0.0))
    states = dict(thread.states)
    assert states[ThreadState.PYTHON] == pytest.approx(0.2), "the holder of the GIL is active"
    assert states[ThreadState.IDLE] == pytest.approx(0.75), "the clocks have 0.25"


def test_a_rank_that_is_blocked_in_backward_waits_for_other_ranks() -> None:
    """Clocks tell how active it is within its steps: outside of them it only computes."""
    engine = f"{SITE}torch/autograd/__init__.py:300:backward", f"{SITE}torch/autograd/graph.py:800:run"
    builder = process(((MAIN, STEP, *engine), -1, 500), ((MAIN, MODULE), -1, 500), gil={}, world_size=2)
    builder.step(0, 500 * MS, tid=7, pid=7)
    for time, cpu in ((0, 0), (500, 100), (1000, 600)):
        builder.thread_clocks(time * MS, cpu * MS, 0, tid=7, pid=7)
    states = dict(threads(builder)[0].states)
    assert states == pytest.approx({ThreadState.WAITING_FOR_RANKS: 0.4, ThreadState.TORCH: 0.6})


def test_a_line_that_goes_on_when_others_release_the_gil_waits_for_it() -> None:
    builder = process(((MAIN, STEP), 1, 300), ((MAIN, STEP), 0, 700), gil={(MAIN, STEP): 300})
    builder.stack((SERVING, MAIN), 0, S, tid=9, pid=7)
    builder.holder((SERVING, MAIN), 300 * MS, S, tid=9, pid=7)
    thread = threads(builder)[0]
    assert dict(thread.states) == {ThreadState.GIL: pytest.approx(0.7), ThreadState.PYTHON: pytest.approx(0.3)}


def test_the_gil_is_a_share_of_the_time_in_which_the_thread_lived() -> None:
    builder = process(((WAIT,), 0, 1000), tid=9, gil={})
    builder.stack(("t.py:5:prepare",), 0, 100 * MS, tid=8, pid=7)
    builder.holder(("t.py:5:prepare",), 0, 100 * MS, tid=8, pid=7)
    [thread] = threads(builder)
    assert (thread.tid, thread.gil, thread.state) == (8, pytest.approx(1), ThreadState.PYTHON)


def test_phases_widen_the_interval_where_not_all_was_seen_and_samples_are_the_threads_own() -> None:
    widths = []
    for order in (sorted(range(100)), [37 * number % 100 for number in range(100)]):
        builder = RunBuilder(state="attached")
        for number in range(100):
            line = "t.py:1:main" if order[number] < 50 else f"{SITE}torch/serialization.py:9:save"
            builder.stack((line,), 4 * number * MS, (4 * number + 1) * MS, tid=100)
            builder.stack(("t.py:1:main",), 4 * number * MS, (4 * number + 1) * MS, tid=7)
        main = threads(builder)[0]
        assert (main.tid, main.samples) == (100, 100)
        widths.append(main.high - main.low)
    assert widths[0] > 1.5 * widths[1], widths


CHILD = {"pid": 7, "name": "child", "command": "x"}
BUSY: Row = ((MAIN, STEP), 1, 1000)


@pytest.mark.parametrize(
    ("rows", "listed", "ranks", "name"),
    [
        ([BUSY], [], (), "process"),
        ([BUSY], [CHILD], (), "child"),
        ([BUSY], [CHILD | {"rank": 3}], (), "rank 3"),
        ([((WORKER, "/home/someone/data.py:5:__getitem__"), 1, 1000)], [], (), "loader worker"),
        # the data set of a training process asks whether it is in a worker
        ([((MAIN, NEXT, f"{WORKER.rpartition(':')[0]}:get_worker_info"), 1, 900), BUSY], [], (), "process"),
        # a worker that is forked has the frames of its parent; a process that once was in its loop is none
        ([((MAIN, NEXT, WORKER, WAIT), 0, 900), ((MAIN,), 1, 100)], [], (), "loader worker"),
        ([((MAIN, NEXT, WORKER), 1, 100), ((MAIN,), 1, 900)], [], (), "process"),
        # a launcher that imports torch is no worker
        ([BUSY, ((MAIN, f"{WORKER.rpartition(':')[0]}:<module>"), 1, 100)], [], (), "process"),
        # processes that train a model each are no ranks
        ([BUSY], [], (0, 0), "training process"),
        ([BUSY], [], (1, 0), "rank 1"),
    ],
)
def test_the_name_of_a_process(rows: list[Row], listed: list[Any], ranks: tuple[int, ...], name: str) -> None:
    builder = process(*rows, processes=listed)
    for pid, rank in enumerate(ranks, 7):
        builder.step(0, 1, pid=pid, rank=rank)
    [thread] = threads(builder)
    assert (thread.process, thread.gil) == (name, None), "there was no window of the GIL's holder"


def test_processes_come_in_the_order_of_the_recorder() -> None:
    builder = process(BUSY, processes=[{"pid": 9}, CHILD])
    builder.stack((MAIN,), 0, S, pid=9, tid=9)
    assert [thread.pid for thread in threads(builder)] == [9, 7]


def test_no_stacks_no_threads() -> None:
    assert threads(RunBuilder()) == ()


def test_samples_without_length_tell_nothing() -> None:
    assert analyse(process(((MAIN,), 1, 0)).build()).threads == ()
    (thread,) = analyse(process(((MAIN,), 1, 0), ((STEP,), 1, 100)).build()).threads
    assert (thread.share, str(thread.site)) == (1.0, "/home/someone/train.py:30 (step)")
    assert 0 < thread.low < thread.high <= 1
