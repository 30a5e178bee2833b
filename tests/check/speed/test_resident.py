"""A program that is driven: it runs so many steps and no more, stands still with all its processes, and ends whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.check.counted import counted
from profiler.check.speed.resident import EndedError, OtherStepsError, Program, Resident, spans_of
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive, process_tree
from profiler.run.load import load
from tests.check.speed.programs import MOMENTS, ROOT, STEPPING, WORK, program

Start = Callable[[Program], Resident]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Resident] = []
    (tmp_path / "sockets").mkdir()

    def begin(of: Program) -> Resident:
        made.append(Resident(of, tmp_path / f"{len(made)}-run", tmp_path / "sockets"))
        return made[-1]

    yield begin
    for resident in made:
        resident.end()


def settled(resident: Resident) -> Resident:
    until = time.monotonic() + 60
    while not resident.settle():
        assert time.monotonic() < until, "it took no step"
        time.sleep(0.005)
    resident.freeze()
    return resident


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_runs_so_many_steps_and_no_more(start: Start, tmp_path: Path) -> None:
    resident = settled(start(program(tmp_path, STEPPING)))
    warm = resident.turn(4, measured=False)
    turns = [resident.turn(5), resident.turn(3)]
    assert [len(turn.steps) for turn in (warm, *turns)] == [4, 5, 3]
    assert [turn.tokens for turn in turns] == [35, 21]
    assert turns[0].begin + turns[0].time <= turns[1].begin
    resident.end()
    run = load(resident.folder)
    spans = spans_of(resident.folder)
    assert spans == [(turn.begin, turn.begin + turn.time) for turn in turns]
    found = counted(run, spans)
    assert (found.steps, found.totals["syncs"]) == (8, 24)


def test_the_time_in_which_it_stands_still_belongs_to_no_step(start: Start, tmp_path: Path) -> None:
    resident = settled(start(program(tmp_path, STEPPING)))
    first = resident.turn(2)
    time.sleep(0.3)  # the other side's turn
    second = resident.turn(2)
    resident.end()
    steps = load(resident.folder).steps
    begins, ends = steps["begin"].tolist(), steps["end"].tolist()
    assert len(begins) >= 5
    for begin, end in zip(begins, ends, strict=True):
        overlap = min(end, second.begin) - max(begin, first.begin + first.time)
        assert overlap < 0.03e9, "only what the end of a turn takes may lie in a step"


def test_what_another_thread_counts_around_a_pause_is_not_lost(start: Start, tmp_path: Path) -> None:
    source = WORK + (
        "import threading\n"
        "told, done = threading.Event(), threading.Event()\n"
        "def other():\n"
        "    while told.wait():\n"
        "        told.clear()\n        marks.count('syncs', 1)\n        done.set()\n"
        "threading.Thread(target=other, daemon=True).start()\n"
        "recorder = marks.recorder()\n"
        "def between():\n    told.set()\n    done.wait()\n    done.clear()\n"
        "recorder.drains.append(between)\n"  # what counts between the end of a step and the pause
        "while True:\n    work()\n    marks.step()\n"
    )
    resident = settled(start(program(tmp_path, source)))
    for _ in range(4):
        resident.turn(1)
    resident.end()
    assert counted(load(resident.folder), spans_of(resident.folder)).totals == {"syncs": 4}


def test_frozen_with_its_whole_tree(start: Start, tmp_path: Path) -> None:
    source = f"""
        import os, subprocess, sys
        child = "import time, os, subprocess, sys\\nif len(sys.argv) > 1: subprocess.Popen([sys.executable, '-c', " \\
                "'while True: pass'])\\nwhile True: pass"
        subprocess.Popen([sys.executable, "-c", child, "more"])
        {"".join(line + chr(10) + "        " for line in STEPPING.splitlines())}
    """
    resident = settled(start(program(tmp_path, source)))
    resident.turn(2)
    pids = process_tree(resident._tree.root)
    until = time.monotonic() + 30
    while len(pids) < 3 and time.monotonic() < until:  # the child may not have had its own child yet
        resident.turn(200)
        pids = process_tree(resident._tree.root)
    assert len(pids) == 3
    assert {state(pid) for pid in pids} == {"T"}
    resident.end()
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_process_that_lost_its_parent_is_frozen_and_ended_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(
        "import subprocess, sys\n"
        "no = subprocess.DEVNULL\n"
        "print(subprocess.Popen([sys.executable, '-c', 'while True: pass'], stdout=no, stderr=no).pid)\n"
    )
    source = "import subprocess, sys\nsubprocess.run([sys.executable, 'leaves.py'])\n" + STEPPING
    resident = settled(start(program(tmp_path, source)))
    orphan = int((resident.folder / "output.log").read_text().split()[0])
    assert state(orphan) == "T"
    resident.turn(1)
    assert state(orphan) == "T"
    resident.end()
    assert not is_alive(orphan)


def test_ranks_take_their_turns_together(start: Start, tmp_path: Path) -> None:
    rank = (
        WORK + "import os, sys\nos.environ['RANK'] = sys.argv[1]\nwhile True:\n    work()\n    marks.step(tokens=1)\n"
    )
    (tmp_path / "rank.py").write_text(rank)
    source = f"""
        import os, subprocess, sys
        ranks = [subprocess.Popen([sys.executable, {str(tmp_path / "rank.py")!r}, str(n)]) for n in range(2)]
        for one in ranks: one.wait()
    """
    resident = settled(start(program(tmp_path, source, env={"LOCAL_WORLD_SIZE": "2"})))
    assert resident.turn(6).tokens == 12
    assert resident.turn(2).tokens == 4


def test_a_program_that_ends_says_how(start: Start, tmp_path: Path) -> None:
    few = WORK + "for _ in range(9):\n    marks.step()\n"
    resident = settled(start(program(tmp_path, few)))
    with pytest.raises(EndedError) as caught:
        resident.turn(50)
    assert caught.value.code == 0
    failing = start(program(tmp_path, "import sys\nprint('no data at all')\nsys.exit(3)", name="failing.py"))
    with pytest.raises(EndedError) as caught:
        settled(failing)
    assert (caught.value.code, caught.value.resident.last_words()) == (3, "no data at all")


def test_a_program_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    with pytest.raises(ProfilerError, match="no such program"):
        Resident(Program("base", ("no-such-program-anywhere",), tmp_path), tmp_path / "run", tmp_path / "sockets")
    assert [path.name for path in tmp_path.rglob("*")] == ["sockets"]


def test_kill_9_of_the_gate_leaves_no_frozen_process(tmp_path: Path) -> None:
    made = program(tmp_path, STEPPING)
    gate = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from profiler.check.speed.resident import Program, Resident
(Path({str(tmp_path)!r}) / "s").mkdir()
one = Resident(Program("base", {made.argv!r}, Path({str(tmp_path)!r}), {dict(made.env)!r}, inside=False),
               Path({str(tmp_path)!r}) / "run", Path({str(tmp_path)!r}) / "s")
while not one.settle(): time.sleep(0.005)
one.freeze()
print(one._tree.root, flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", gate], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    root = int(process.stdout.readline())
    assert state(root) == "T"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 30
    while is_alive(root):
        assert time.monotonic() < until, "it still stands there"
        time.sleep(0.01)


# ---------------------------------------------------------------- what ends a step turns out to be something else


def driven(resident: Resident, steps: int) -> int:
    """Steps of a turn, however often what ends a step turned out to be something else; how often that was."""
    other = 0
    while True:
        try:
            resident.turn(2, measured=False)
            assert len(resident.turn(steps).steps) == steps
        except OtherStepsError:
            other += 1
            resident.forget_turns()
            settled(resident)
        else:
            return other


def test_batches_of_a_validation_before_the_training_are_no_steps(start: Start, tmp_path: Path) -> None:
    source = MOMENTS + "for _ in range(150):\n    batch()\nwhile True:\n    batch()\n    batch()\n    optimized()\n"
    resident = settled(start(program(tmp_path, source)))
    assert resident.step_source.startswith("batches")
    others = 0
    for _ in range(4):
        others += driven(resident, 30)
    assert (others, resident.step_source) == (1, "steps of SGD (train.py:2)")
    resident.end()
    run = load(resident.folder)
    assert counted(run, spans_of(resident.folder)).steps == 30 * len(spans_of(resident.folder) or ())


def test_a_mark_that_comes_after_optimizers_is_the_step(start: Start, tmp_path: Path) -> None:
    source = MOMENTS + "while True:\n    for _ in range(9):\n        optimized()\n    marks.step(tokens=5)\n"
    resident = settled(start(program(tmp_path, source)))
    others = driven(resident, 5) + driven(resident, 6)
    assert (others, resident.step_source) == (1, "steps as the program marks them")
    assert resident.turn(3).tokens == 15


# ---------------------------------------------------------------- more than one process


def test_a_process_that_comes_late_takes_no_turns_and_disturbs_none(start: Start, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(STEPPING.replace("while True:", "for _ in range(200):"))
    source = WORK + (
        "import subprocess, sys\n"
        "for step in range(10**9):\n"
        "    work()\n"
        "    if step == 6: late = subprocess.Popen([sys.executable, 'late.py'])\n"
        "    if step == 8: late.wait()\n"
        "    marks.step(tokens=1)\n"
    )
    resident = settled(start(program(tmp_path, source)))
    assert [resident.turn(5).tokens for _ in range(4)] == [5, 5, 5, 5]


LAUNCHES = """
import socket, subprocess, sys
pair = socket.socketpair()
ranks = [
    subprocess.Popen([sys.executable, "rank.py", str(n), str(end.fileno())], pass_fds=[end.fileno()])
    for n, end in enumerate(pair)
]
for one in ranks: one.wait()
"""


def in_step(folder: Path, before: str) -> None:
    """rank.py: `before`, then steps that wait for each other, as a collective does."""
    (folder / "rank.py").write_text(
        MOMENTS
        + "import os, socket, sys\n"
        + "rank = int(sys.argv[1])\nos.environ['RANK'] = sys.argv[1]\n"
        + "pair = socket.socket(fileno=int(sys.argv[2]))\n"
        + "def together():\n    pair.sendall(b'x')\n    assert pair.recv(1)\n"
        + before
        + "while True:\n    batch()\n    together()\n    optimized()\n"
    )


def test_ranks_that_saw_other_moments_come_to_the_same_step(start: Start, tmp_path: Path) -> None:
    """Each step of one waits for the other's, as a collective does, and rank 0 has seen more before the first."""
    in_step(tmp_path, "for _ in range(0 if rank else 9):\n    batch()\n")
    resident = settled(start(program(tmp_path, LAUNCHES, env={"LOCAL_WORLD_SIZE": "2"})))
    assert resident.expected == 2
    assert [len(resident.turn(6).steps) for _ in range(3)] == [6, 6, 6]


@pytest.mark.parametrize("late_s", [0.0, 0.2])
def test_ranks_that_find_other_steps_at_once_are_all_answered(start: Start, tmp_path: Path, late_s: float) -> None:
    """A validation on each rank, then training in step: where the gate is late, what both say comes in one batch."""
    in_step(tmp_path, "for _ in range(90):\n    batch()\n")
    resident = start(program(tmp_path, LAUNCHES, env={"LOCAL_WORLD_SIZE": "2"}))
    heard = resident._board.heard
    resident._board.heard = lambda seconds: (time.sleep(late_s), heard(seconds))[1]  # type: ignore[method-assign]
    settled(resident)
    assert driven(resident, 60) == 1
    assert [len(resident.turn(6).steps) for _ in range(2)] == [6, 6]
    assert resident.step_source == "steps of SGD (train.py:2)"


def test_a_rank_that_never_steps_is_said_by_number(start: Start, tmp_path: Path) -> None:
    resident = start(program(tmp_path, STEPPING, env={"LOCAL_WORLD_SIZE": "2"}))
    until = time.monotonic() + 60
    while not resident.stood and time.monotonic() < until:
        assert not resident.settle()
        time.sleep(0.005)
    assert "1 of 2 ranks came to the end of a step within 7 s" in resident.late(7)


def test_steps_of_a_process_that_is_not_below_the_command_are_refused(start: Start, tmp_path: Path) -> None:
    """As a worker of a cluster that was there before, or in a container."""
    worker = program(tmp_path, STEPPING, name="worker.py")
    source = """
        import json, os, time
        names = ("PROFILER_TURNS", "PROFILER_RUN_DIR", "PROFILER_LEVEL")
        told = {name: value for name, value in os.environ.items() if name.startswith("PROFILER_")}
        with open("told.part", "w") as file: json.dump(told, file)
        os.rename("told.part", "told.json")
        while True: time.sleep(0.1)
    """
    resident = start(program(tmp_path, source))
    until = time.monotonic() + 60
    while not (tmp_path / "told.json").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    told = json.loads((tmp_path / "told.json").read_text())
    outside = subprocess.Popen(worker.argv, cwd=tmp_path, env={**os.environ, **worker.env, **told})
    try:
        with pytest.raises(ProfilerError, match=rf"process {outside.pid} takes the steps and does not run below"):
            settled(resident)
    finally:
        outside.kill()
        outside.wait()


# ---------------------------------------------------------------- what does not end as it should


def test_a_turn_that_hangs_names_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    source = WORK + "import time\nfor _ in range(8):\n    work()\n    marks.step()\ntime.sleep(600)\n"
    resident = Resident(program(tmp_path, source), tmp_path / "run", tmp_path / "sockets", patience=1.0)
    try:
        settled(resident)
        with pytest.raises(ProfilerError, match="30 steps did not end within 1 s: give them longer with --patience"):
            resident.turn(30)
    finally:
        resident.end()


def test_a_turn_that_the_program_did_not_finish_counts_as_far_as_it_came(start: Start, tmp_path: Path) -> None:
    few = WORK + "for _ in range(30):\n    work()\n    marks.count('syncs', 2)\n    marks.step()\n"
    resident = settled(start(program(tmp_path, few)))
    resident.turn(10, measured=False)
    with pytest.raises(EndedError):
        resident.turn(50)
    resident.end()
    found = counted(load(resident.folder), spans_of(resident.folder))
    left = 30 - resident.unseen - resident.steps
    assert (found.steps, found.totals) == (left, {"syncs": 2 * left})


def test_damaged_spans_are_no_spans(tmp_path: Path) -> None:
    assert spans_of(tmp_path) is None
    (tmp_path / "turns.json").write_text("[[1,")
    with pytest.raises(ProfilerError, match="which steps of"):
        spans_of(tmp_path)
