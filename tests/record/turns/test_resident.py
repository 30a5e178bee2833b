"""A program that is driven: it runs so many steps and no more, stands still with all its processes, and ends whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.base.errors import ProfilerError
from profiler.gate.counted import counted
from profiler.record.processes import family, is_alive
from profiler.record.turns.resident import EndedError, Program, Resident, spans_of
from profiler.run.load import load
from tests.record.turns.programs import ROOT, STEPPING, WORK, program

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
    second = resident.turn(2)
    resident.end()
    steps = load(resident.folder).steps
    pause = second.begin - first.begin - first.time
    inside = [(begin, end) for begin, end in zip(steps["begin"].tolist(), steps["end"].tolist(), strict=True)]
    for begin, end in inside:
        overlap = min(end, second.begin) - max(begin, first.begin + first.time)
        assert overlap < 0.5 * pause, (begin, end, first, second)


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
    pids = family(resident._tree.root)
    until = time.monotonic() + 30
    while len(pids) < 3 and time.monotonic() < until:  # the child may not have had its own child yet
        resident.turn(200)
        pids = family(resident._tree.root)
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
from profiler.record.turns.resident import Program, Resident
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
