"""A controlled program runs the requested steps and no more, is frozen with all its processes, and ends completely."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from profiler.agent import control_client
from profiler.check.counters.counted import counted
from profiler.check.speed.controlled_process import (
    ControlledProcess,
    Program,
    StepBoundaryChangedError,
    measured_spans,
    process_starter,
)
from profiler.check.speed.interleave import record_steps
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive, process_tree
from profiler.run.load import load
from tests.check.speed.programs import LIMIT_S, MOMENTS, ROOT, STEPPING, WORK, program, state, until

Start = Callable[..., ControlledProcess]
SGD = "SGD (train.py:2)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a source, or a Program, as a controlled process."""
    with process_starter() as starter:
        numbers = itertools.count()

        def begin(source: str | Program, **env: str) -> ControlledProcess:
            chosen = program(tmp_path, source, env=env) if isinstance(source, str) else source
            return starter(chosen, tmp_path / f"{next(numbers)}-run")

        yield begin


def frozen(process: ControlledProcess) -> ControlledProcess:
    until(process.align)
    process.freeze()
    return process


def totals(process: ControlledProcess) -> tuple[int, dict[str, float]]:
    """End it; measured steps and counters."""
    process.end()
    counts = counted(load(process.folder), measured_spans(process.folder))
    return counts.steps, dict(counts.totals)


def test_it_runs_the_requested_steps_and_no_more(start: Start) -> None:
    process = frozen(start(STEPPING))
    warmup = process.run_steps(4, measured=False)
    blocks = [process.run_steps(5), process.run_steps(3)]
    assert [len(block.steps) for block in (warmup, *blocks)] == [4, 5, 3]
    assert [block.tokens for block in blocks] == [35, 21]
    assert blocks[0].begin + blocks[0].time <= blocks[1].begin
    assert totals(process) == (8, {"syncs": 24})
    assert measured_spans(process.folder) == [(block.begin, block.begin + block.time) for block in blocks]


def test_the_time_frozen_belongs_to_no_step(start: Start) -> None:
    process = frozen(start(STEPPING))
    first = process.run_steps(2)
    time.sleep(0.3)  # the other side's block
    second = process.run_steps(2)
    process.end()
    steps = load(process.folder).steps
    assert len(steps) >= 5
    for begin, end in zip(steps["begin"].tolist(), steps["end"].tolist(), strict=True):
        overlap = min(end, second.begin) - max(begin, first.begin + first.time)
        assert overlap < 0.03e9, "only the work at the end of a block may lie in a step"


def test_what_another_thread_counts_around_a_pause_is_not_lost(start: Start) -> None:
    source = WORK + (
        "import threading\n"
        "wanted, done = threading.Event(), threading.Event()\n"
        "def count():\n"
        "    while wanted.wait():\n"
        "        wanted.clear()\n        marks.count('syncs', 1)\n        done.set()\n"
        "threading.Thread(target=count, daemon=True).start()\n"
        "recorder = marks.recorder()\n"
        "def drain():\n    wanted.set()\n    done.wait()\n    done.clear()\n"
        "recorder.drains.append(drain)\n"  # it counts between the end of a step and the pause
        "while True:\n    work()\n    marks.step()\n"
    )
    process = frozen(start(source))
    for _ in range(4):
        process.run_steps(1)
    assert totals(process) == (4, {"syncs": 4})


def test_all_descendants_are_frozen_and_ended(start: Start, tmp_path: Path) -> None:
    spin = "while True: pass"
    (tmp_path / "child.py").write_text(
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {spin!r}])\n{spin}\n"
    )
    (tmp_path / "orphan.py").write_text(
        "import subprocess, sys\n"
        "no = subprocess.DEVNULL\n"
        f"print(subprocess.Popen([sys.executable, '-c', {spin!r}], stdout=no, stderr=no).pid)\n"
    )
    source = (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, 'child.py'])\n"
        "subprocess.run([sys.executable, 'orphan.py'])\n"
    )
    process = frozen(start(source + STEPPING))
    orphan = int((process.folder / "output.log").read_text().split()[0])
    pids: list[int] = []

    def has_grandchild() -> bool:
        nonlocal pids
        process.run_steps(100)
        pids = process_tree(process.tree.root)
        return len(pids) == 3

    until(has_grandchild)
    assert {state(pid) for pid in (*pids, orphan)} == {"T"}
    process.end()
    assert not [pid for pid in (*pids, orphan) if is_alive(pid)]


def test_a_program_that_cannot_be_started_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    with pytest.raises(ProfilerError, match="no such program"):
        ControlledProcess(Program("base", ("no-such-program",), tmp_path), tmp_path / "run", tmp_path / "sockets")
    assert [path.name for path in tmp_path.rglob("*")] == ["sockets"]


def test_sigkill_of_check_ends_a_frozen_program(tmp_path: Path) -> None:
    target = program(tmp_path, STEPPING)
    source = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from profiler.check.speed.controlled_process import Program, ControlledProcess
folder = Path({str(tmp_path)!r})
(folder / "s").mkdir()
process = ControlledProcess(
    Program("base", {target.argv!r}, folder, {dict(target.env)!r}, hooked=False), folder / "run", folder / "s"
)
while not process.align(): time.sleep(0.005)
process.freeze()
print(process.tree.root, flush=True)
time.sleep({LIMIT_S})
"""
    check = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert check.stdout is not None
    root = int(check.stdout.readline())
    assert state(root) == "T"
    check.kill()
    check.wait()
    until(lambda: not is_alive(root))


def test_a_block_that_hangs_is_an_error(tmp_path: Path) -> None:
    source = WORK + "import time\nfor _ in range(8):\n    work()\n    marks.step()\ntime.sleep(600)\n"
    with process_starter(patience=1.0) as starter:
        process = frozen(starter(program(tmp_path, source), tmp_path / "run"))
        with pytest.raises(ProfilerError, match=r"30 steps did not end within 1 s: .*`patience`"):
            process.run_steps(30)


def test_damaged_spans_are_an_error(tmp_path: Path) -> None:
    assert measured_spans(tmp_path) is None
    (tmp_path / "turns.json").write_text("[[1,")
    with pytest.raises(ProfilerError, match="which steps of"):
        measured_spans(tmp_path)


# ---------------------------------------------------------------- another event turns out to end a step


def realignments(process: ControlledProcess, steps: int) -> int:
    """Run a block of `steps`; how often the end of a step turned out to be another event."""
    count = 0
    while True:
        try:
            process.run_steps(2, measured=False)
            assert len(process.run_steps(steps).steps) == steps
        except StepBoundaryChangedError:
            count += 1
            process.discard_measured()
            frozen(process)
        else:
            return count


def test_batches_of_a_validation_before_the_training_are_not_steps(start: Start) -> None:
    source = MOMENTS + "for _ in range(150):\n    batch()\nwhile True:\n    batch()\n    batch()\n    optimized()\n"
    process = frozen(start(source))
    assert process.controller.step.phases == (("DataLoader (train.py:1)",),)
    assert sum(realignments(process, 30) for _ in range(4)) == 1
    assert process.controller.step.phases == ((SGD,),)
    steps, _ = totals(process)
    assert steps == 30 * len(measured_spans(process.folder) or ())


def test_a_warm_up_with_an_optimizer_of_its_own_is_over(start: Start) -> None:
    source = MOMENTS.replace("train.py:2", "warm.py:5") + "for _ in range(40):\n    optimized()\n"
    process = frozen(start(source + MOMENTS.removeprefix(WORK) + "while True:\n    optimized()\n"))
    assert process.controller.step.phases == (("SGD (warm.py:5)",),)
    assert realignments(process, 60) == 1
    assert process.controller.step.phases == ((SGD,),)


def test_optimizers_that_take_turns_change_no_step(start: Start) -> None:
    source = MOMENTS + "def other():\n    marks.recorder().record_boundary(BoundaryKind.OPTIMIZER, 'SGD (gan.py:9)')\n"
    loop = f"    for _ in range({control_client._ABANDONED - 1}):\n        other()\n"
    process = frozen(start(source + "while True:\n    optimized()\n" + loop))
    assert realignments(process, 5) == 0


def test_a_mark_that_comes_after_optimizers_is_the_step(start: Start) -> None:
    process = frozen(
        start(MOMENTS + "while True:\n    for _ in range(9):\n        optimized()\n    marks.step(tokens=5)\n")
    )
    assert realignments(process, 5) + realignments(process, 6) == 1
    assert process.controller.step.kind == "marked"
    assert process.run_steps(3).tokens == 15


# ---------------------------------------------------------------- several processes

LAUNCHER = """
import socket, subprocess, sys
pair = socket.socketpair()
ranks = [
    subprocess.Popen([sys.executable, "rank.py", str(n), str(end.fileno())], pass_fds=[end.fileno()])
    for n, end in enumerate(pair)
]
for rank in ranks: rank.wait()
"""


def two_ranks(start: Start, folder: Path, before: str) -> ControlledProcess:
    """Two ranks that each execute `before`, then steps that wait for each other, as a collective does."""
    (folder / "rank.py").write_text(
        MOMENTS
        + "import os, socket, sys\n"
        + "rank = int(sys.argv[1])\nos.environ['RANK'] = sys.argv[1]\n"
        + "pair = socket.socket(fileno=int(sys.argv[2]))\n"
        + "def synchronize():\n    pair.sendall(b'x')\n    assert pair.recv(1)\n"
        + before
        + "while True:\n    batch()\n    synchronize()\n    optimized()\n"
    )
    return start(LAUNCHER, LOCAL_WORLD_SIZE="2")


def test_ranks_run_their_steps_together(start: Start, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(
        WORK + "import os, sys\nos.environ['RANK'] = sys.argv[1]\nwhile True:\n    work()\n    marks.step(tokens=1)\n"
    )
    process = frozen(start(LAUNCHER, LOCAL_WORLD_SIZE="2"))
    assert [process.run_steps(steps).tokens for steps in (6, 2)] == [12, 4]


def test_ranks_that_have_seen_different_events_are_brought_to_the_same_step(start: Start, tmp_path: Path) -> None:
    process = frozen(two_ranks(start, tmp_path, "for _ in range(0 if rank else 9):\n    batch()\n"))
    assert process.controller.expected_ranks == 2
    assert [len(process.run_steps(6).steps) for _ in range(3)] == [6, 6, 6]


@pytest.mark.parametrize("late_s", [0.0, 0.05])
def test_ranks_that_find_another_step_at_once_are_all_answered(start: Start, tmp_path: Path, late_s: float) -> None:
    """Each rank validates and then trains in step; if `check` is late, both messages come in one poll."""
    process = two_ranks(start, tmp_path, "for _ in range(90):\n    batch()\n")
    poll = process.controller.server.poll
    process.controller.server.poll = lambda timeout_s: (  # type: ignore[method-assign]
        time.sleep(late_s),
        poll(timeout_s),
    )[1]
    assert realignments(frozen(process), 60) == 1
    assert [len(process.run_steps(6).steps) for _ in range(2)] == [6, 6]
    assert process.controller.step.phases == ((SGD,),)


def test_a_process_that_connects_late_is_not_driven_and_disturbs_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(STEPPING.replace("while True:", "for _ in range(200):"))
    source = WORK + (
        "import subprocess, sys\n"
        "for step in range(10**9):\n"
        "    work()\n"
        "    if step == 6: late = subprocess.Popen([sys.executable, 'late.py'])\n"
        "    if step == 8: late.wait()\n"
        "    marks.step(tokens=1)\n"
    )
    process = frozen(start(source))
    assert [process.run_steps(5).tokens for _ in range(4)] == [5, 5, 5, 5]


def test_ranks_that_never_step_are_counted(start: Start) -> None:
    process = start(STEPPING, LOCAL_WORLD_SIZE="2")

    def reached_step() -> bool:
        assert not process.align()
        return process.controller.reached_step

    until(reached_step)
    assert "1 of 2 ranks reached the end of a step within 7 s" in process.not_aligned_message(7)


def test_steps_of_a_process_that_is_no_descendant_are_refused(start: Start, tmp_path: Path) -> None:
    """A worker of a cluster that was started before, or one in a container, is no descendant."""
    worker = program(tmp_path, STEPPING, name="worker.py")
    process = start("""
        import json, os, time
        variables = {name: value for name, value in os.environ.items() if name.startswith("PROFILER_")}
        with open("variables.part", "w") as file: json.dump(variables, file)
        os.rename("variables.part", "variables.json")
        while True: time.sleep(0.1)
    """)
    until((tmp_path / "variables.json").exists)
    variables = json.loads((tmp_path / "variables.json").read_text())
    with subprocess.Popen(worker.argv, cwd=tmp_path, env={**os.environ, **worker.env, **variables}) as outside:
        try:
            with pytest.raises(ProfilerError, match=rf"process {outside.pid} takes the steps"):
                frozen(process)
        finally:
            outside.kill()


# ---------------------------------------------------------------- counted over a fixed number of steps

LATE_MARKS = MOMENTS + (
    "while True:\n    for _ in range(8):\n        optimized()\n        marks.count('syncs', 1)\n    marks.step()\n"
)


def counts(folder: Path, source: str, **settings: int) -> list[tuple[int, float]]:
    """Steps and syncs of two processes."""
    paths = record_steps(program(folder, source), folder / "runs", ["1", "2"], level="light", **settings)
    processes = [counted(load(path), measured_spans(path)) for path in paths]
    return [(process.steps, process.totals["syncs"]) for process in processes]


@pytest.mark.parametrize(
    ("source", "steps", "warmup", "expected"),
    [
        pytest.param(STEPPING, 7, 3, (7, 21), id="marked steps"),
        pytest.param(LATE_MARKS, 5, 2, (5, 40), id="marks that come after optimizers"),
    ],
)
def test_counts_of_given_steps(tmp_path: Path, source: str, steps: int, warmup: int, expected: tuple[int, int]) -> None:
    assert counts(tmp_path, source, steps=steps, warmup=warmup) == [expected] * 2


def test_a_program_that_ends_early_is_counted_over_the_steps_that_it_took(tmp_path: Path) -> None:
    short = WORK + "for _ in range(20):\n    marks.count('syncs', 2)\n    marks.step()\n"
    first, second = counts(tmp_path, short, steps=100, warmup=5)
    assert first == second
    assert 0 < first[0] <= 15
    assert first[1] == 2 * first[0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (WORK + "for _ in range(8):\n    marks.step()\n", "ended during its 10 warm-up steps"),
        (WORK + "work()\n", r"profiler.step\(\)"),
        ("import sys\nprint('no data')\nsys.exit(5)", "exited with 5: no data"),
    ],
)
def test_a_program_that_cannot_be_counted_is_an_error_in_one_line(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ProfilerError, match=message) as caught:
        counts(tmp_path, source)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("clocks", "expected"), [("5 7000 3", 6800), ("5", 0), ("", 0)])
def test_what_other_threads_may_have_caused_is_no_wait_for_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clocks: str, expected: int
) -> None:
    (tmp_path / "schedstat").write_text(clocks)
    monkeypatch.setattr(control_client, "_SCHEDULER", str(tmp_path / "schedstat"))
    monkeypatch.setattr("time.process_time_ns", lambda: 500)
    monkeypatch.setattr("time.thread_time_ns", lambda: 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert control_client._delay_by_others() == expected


class Solo:
    prefetch = 0


@pytest.mark.parametrize("helper", ["none", "workers", "ranks", "child", "ended child", "unknown"])
def test_what_other_processes_of_the_program_may_have_caused_is_no_wait_for_other_programs(
    monkeypatch: pytest.MonkeyPatch, helper: str
) -> None:
    client, recorder = control_client.ControlClient(""), Solo()
    monkeypatch.setattr(control_client, "_delay_by_others", lambda: 900)
    monkeypatch.setattr(control_client, "_has_children", lambda: False)
    client._begin_clocks = 200, control_client._children_cpu()
    if helper == "workers":
        recorder.prefetch = 2
    elif helper == "ranks":
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    elif helper == "ended child":
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    elif helper != "none":
        monkeypatch.undo()
        monkeypatch.setattr(control_client, "_delay_by_others", lambda: 900)
    if helper == "unknown":
        monkeypatch.setattr(control_client, "_CHILDREN", "/nowhere/*/children")
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        if helper == "child"
        else nullcontext()
    ):
        assert client._kept_waiting(recorder) == (700 if helper == "none" else 0)  # type: ignore[arg-type]


def test_children_are_seen_until_they_have_ended() -> None:
    if control_client._has_children():
        pytest.skip("other tests of this process have left child processes")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
        assert control_client._has_children()
    assert not control_client._has_children()
