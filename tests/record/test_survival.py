"""Recording and the recorded program survive kills, a full disk, and programs that do unusual things."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from profiler.core.procfs import descendants, is_alive, read_arguments
from profiler.record.launch import record
from profiler.record.target import target_environment
from profiler.run import store, tables
from profiler.run.load import load
from profiler.run.model import Run, RunInfo
from tests.fakes.programs import ROOT, codes, command_line, damage, finished, output, script, spec, start, until
from tests.recorded.directories import info

PYTHON = sys.executable
pytestmark = pytest.mark.usefixtures("importable")


def recorded(folder: Path, text: str, *argv: str | Path, level: str = "standard", **fields: Any) -> tuple[RunInfo, Run]:
    """Record a program of that text: the last manifest, and the run."""
    program = (PYTHON, script(folder, text), *argv)
    made = record(spec(folder, *program, level=level, timeout=120, **fields))
    return made, load(folder / "run")


def waiting(folder: Path, *shell: str) -> tuple[subprocess.Popen[str], IO[str], str]:
    """WAITING as `python -m profiler` records it, what it prints, and its first line."""
    program = (PYTHON, script(folder, WAITING), folder / "go")
    process = start("run", "--out", folder / "run", "--", *shell, *program)
    assert process.stdout is not None
    return process, process.stdout, process.stdout.readline()


# ---------------------------------------------------------------- kills

WAITING = """
import os, sys
from profiler import marks
marks.open_step()
print("ready", os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]):
    with marks.region("tokenize"):
        sum(range(10_000))
    marks.step(tokens=1)
for _ in range(5):
    marks.step(tokens=1000)
print("the end", flush=True)
sys.exit(3)
"""
"""Steps until the file that it is told of is there; then ends with 3."""


def test_the_program_goes_on_when_its_recorder_is_killed(tmp_path: Path) -> None:
    process, printed, line = waiting(tmp_path, "sh", "-c", '"$@"; echo "code $?"', "sh")
    assert line.startswith("ready")
    samples = tmp_path / "run" / store.RECORDER / "samples.bin"
    until(lambda: samples.exists() and samples.stat().st_size)
    process.kill()
    process.wait()
    (tmp_path / "go").touch()
    assert printed.read() == "the end\ncode 3\n"
    run = load(tmp_path / "run")
    assert run.info.state == "running"
    assert "run-not-ended" in codes(run)
    assert len(run.samples)
    assert run.steps["tokens"].tolist().count(1000) == 5, "records of after its death are there"


def test_a_recorder_that_is_stopped_goes_on_later(tmp_path: Path) -> None:
    """Ctrl-Z and fg do the same."""
    process, printed, line = waiting(tmp_path)
    pid = int(line.split()[1])
    for one in (process.pid, pid):
        os.kill(one, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    assert printed.readline() == "the end\n", "it does not need its recorder"
    os.kill(process.pid, signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    assert load(tmp_path / "run").info.state == "failed"


def killed_at_work(pid: int) -> bool:
    """Kill `pid`; False when it has ended before. It is stopped first: what stands still cannot end meanwhile."""
    with suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        while is_alive(pid):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def test_a_killed_py_spy_loses_its_window_only(tmp_path: Path) -> None:
    path, go = script(tmp_path, WAITING), tmp_path / "go"
    written = tmp_path / "run" / store.RECORDER / "stacks.bin"
    killed: list[int] = []
    after: set[int] = set()

    def watch() -> None:
        running = [pid for pid in descendants(os.getpid()) if "--pid" in read_arguments(pid)]
        if not killed:
            killed.extend(pid for pid in running if killed_at_work(pid))
        after.update(pid for pid in running if pid not in killed)
        if written.exists() or len(after) > 5:  # where ptrace is forbidden one py-spy fails after the other
            go.touch()

    info = record(spec(tmp_path, PYTHON, path, go, level="standard", collectors=("stacks",), timeout=60), watch=watch)
    (status,) = (status for status in info.collectors if status.name == "stacks")
    if status.code == "ptrace-forbidden":
        pytest.skip(status.reason)
    assert info.exit_code == 3
    assert status.state == "ok", status
    # at the first step a window ends while the next one begins: the py-spys of both may be killed
    assert re.search("windows lost because their py-spy was killed: [12]$", status.reason)
    assert len(load(tmp_path / "run").stacks)
    assert not [*(tmp_path / "run" / store.RECORDER).glob("window*")]


CLOSING_TERMINAL = """
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
seen = b''
while b'\\n' not in seen.partition(b'ready')[2]: seen += os.read(terminal, 100)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_terminal_that_is_closed(tmp_path: Path) -> None:
    """The program gets the SIGHUP that it would have without us, and the run is closed though nobody can be told."""
    command = command_line("run", "--out", tmp_path / "run", "--", PYTHON, script(tmp_path, WAITING), tmp_path / "go")
    done = finished([PYTHON, "-c", CLOSING_TERMINAL, *command])
    assert done.stdout.strip() == str(-signal.SIGHUP), done
    run = load(tmp_path / "run")
    assert (run.info.state, run.info.exit_code, damage(run)) == ("interrupted", -signal.SIGHUP, [])


# ---------------------------------------------------------------- the disk

FILLING = """
import os, resource, sys
from profiler import marks
if sys.argv[1] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
marks.open_step()
for number in range(40_000):
    marks.gauge("loss", 1.0)
    marks.step(tokens=1)
print("the end", flush=True)
sys.exit(5)
"""
STOPPED = "recording stopped: "


def test_a_limit_of_file_size_stops_recording_only(tmp_path: Path) -> None:
    info, run = recorded(tmp_path, FILLING, "200000", level="light")
    assert (info.exit_code, info.state) == (5, "failed")
    assert output(tmp_path).startswith(f"profiler: {STOPPED}File too large")
    assert output(tmp_path).splitlines()[1:] == ["the end"]
    assert 0 < len(run.steps) < 40_000
    assert "process-stopped" in codes(run)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        done = finished(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder])
    except OSError as error:
        pytest.skip(f"mount cannot be run: {error}")
    if done.returncode:
        pytest.skip(f"mounting a small disk is forbidden here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a py-spy may still be on its way out of it


def test_a_full_disk_stops_recording_only(tmp_path: Path, small_disk: Path) -> None:
    out = small_disk / "run"
    command = command_line("run", "--out", out, "--sample-period", "0.01", "--", PYTHON, script(tmp_path, FILLING), "0")
    done = finished(command)
    assert (done.returncode, done.stdout) == (5, "the end\n"), done.stderr
    assert done.stderr.count(STOPPED + "No space left on device; the") == 1, done.stderr
    assert "Traceback" not in done.stderr
    run = load(out)
    assert run.info.exit_code == 5, "the reserve had room for the last manifest"
    assert 0 < len(run.steps) < 40_000
    assert "process-stopped" in codes(run)


DELETING = """
import os, shutil, sys
from profiler import marks
marks.open_step()
for number in range(3):
    marks.step()
    if number == 1:
        marks.recorder().flush()
        while os.path.exists(os.environ["PROFILER_RUN_DIR"]):  # the recorder and py-spy write into it meanwhile
            shutil.rmtree(os.environ["PROFILER_RUN_DIR"], ignore_errors=True)
    with marks.region(f"region {number}"):
        pass
print("the end", flush=True)
sys.exit(7)
"""


def test_a_run_directory_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    program = (PYTHON, script(tmp_path, DELETING))
    done = finished(command_line("run", "--level", "standard", "--out", tmp_path / "run", "--", *program))
    assert (done.returncode, done.stdout) == (7, "the end\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert f"there is no run at {tmp_path / 'run'}" in done.stderr


# ---------------------------------------------------------------- programs that do unusual things

CLOSING = """
import os, sys
from profiler import marks
marks.open_step()
for _ in range(10):
    marks.step()
    with marks.region("log"):
        pass
marks.recorder().flush()
os.closerange(3, 256)
mine = [open(f"{sys.argv[1]}/mine-{number}", "w+") for number in range(20)]
for _ in range(10):
    marks.step()
    with marks.region("log"):
        pass
marks.recorder().flush()
for number, file in enumerate(mine):
    file.write(f"mine {number}")
    file.close()
"""


def test_our_records_never_go_into_a_file_of_the_programs(tmp_path: Path) -> None:
    info, run = recorded(tmp_path, CLOSING, tmp_path)
    assert info.exit_code == 0, output(tmp_path)
    assert [(tmp_path / f"mine-{number}").read_text() for number in range(20)] == [f"mine {n}" for n in range(20)]
    assert (len(run.steps), run.problems, output(tmp_path)) == (20, (), "")


NO_STREAMS = """
import os, sys
from profiler import marks
marks.open_step()
marks.step()
marks.recorder().flush()
number = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.write(1, b"to my own file")
marks.recorder().folder.fail(OSError(28, "No space left on device"))
sys.exit(number + 10)
"""


@pytest.mark.parametrize("closed", [pytest.param(">&-", marks=pytest.mark.slow), ">&- 2>&-"])
def test_closed_streams_stay_the_programs(tmp_path: Path, closed: str) -> None:
    """Without a standard output the first file that the program opens is number 1: ours must not be in its place."""
    mine = tmp_path / "mine"
    command = command_line("run", "--out", tmp_path / "run", "--", PYTHON, script(tmp_path, NO_STREAMS), mine)
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], cwd=ROOT, timeout=60, check=False)
    assert mine.read_bytes() == b"to my own file"
    assert done.returncode == 11
    assert len(load(tmp_path / "run").steps) == 1


EXECUTING = """
import os, sys
import torch
recorder = sys._training_profiler_recorder
for number in range(3):
    recorder.record_boundary(0, f"{sys.argv[1]} image")
if sys.argv[1] == "first":
    os.execvp(sys.executable, [sys.executable, __file__, "second"])
"""


def test_a_program_that_becomes_another_leaves_the_records_of_both(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    info, run = recorded(tmp_path, EXECUTING, "first", level="light")
    assert info.exit_code == 0, output(tmp_path)
    problems = [problem for problem in run.problems if "hook" not in problem.values.get("name", "")]
    assert problems == [], "hooks miss much in this torch"
    assert len(set(run.boundaries["pid"].tolist())) == 1
    names = sorted(run.names[number] for number in run.boundaries["name"])
    assert names == ["first image"] * 3 + ["second image"] * 3


POOL = """
import multiprocessing, os, sys
import torch
sys._training_profiler_recorder.record_boundary(0, "SGD")
with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
    assert set(pool.map(str.upper, ["a"] * 60, 1)) == {"A"}
"""


def test_children_that_record_nothing_leave_no_folder(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    assert recorded(tmp_path, POOL, level="light")[0].exit_code == 0, output(tmp_path)
    assert len([*(tmp_path / "run").glob("source-*")]) == 1


FORKING_THREADS = """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on Python warns of every fork out of threads
from profiler import marks
marks.open_step()
def work():
    for number in range(15):
        with marks.region(f"work {number}"):
            marks.recorder().flush()
        child = os.fork()
        if child == 0:
            with marks.region("child"):
                pass
            marks.recorder().flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_forks_out_of_threads(tmp_path: Path) -> None:
    info, run = recorded(tmp_path, FORKING_THREADS)
    assert (info.state, run.problems, output(tmp_path)) == ("complete", (), "")
    names = [run.names[number] for number in run.regions["name"]]
    assert (names.count("child"), len(names)) == (60, 120)


HANDLING = """
import signal
from profiler import marks
marks.open_step()
seen = 0
def handle(number, frame):
    global seen
    seen += 1
    with marks.region(f"handler {seen}"):
        marks.recorder().flush()
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0001)
number = 0
while seen < 500:
    number += 1
    with marks.region(f"work {number}"):
        marks.recorder().flush()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(number)
"""


def test_a_handler_of_a_signal_may_record_in_the_middle_of_recording(tmp_path: Path) -> None:
    info, run = recorded(tmp_path, HANDLING)
    assert info.state == "complete", "it waits for itself"
    names = [run.names[number] for number in run.regions["name"]]
    assert sum(name.startswith("handler") for name in names) >= 500
    assert len(names) == len(set(names)) == len(run.names), "each under its own name"
    assert sum(name.startswith("work") for name in names) == int(output(tmp_path))


DAEMON = """
import os, sys, time
from profiler import marks
marks.open_step()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 256)
    marks.step(tokens=1)
    while not os.path.exists(f"{sys.argv[1]}/go"):
        marks.step(tokens=1)
        time.sleep(0.01)
    marks.recorder().flush()
    open(f"{sys.argv[1]}/done.new", "w").close()
    os.rename(f"{sys.argv[1]}/done.new", f"{sys.argv[1]}/done")
    os._exit(0)
marks.step(tokens=5)
os.wait()
"""


def test_a_daemon_goes_on_when_the_recording_has_ended(tmp_path: Path) -> None:
    assert recorded(tmp_path, DAEMON, tmp_path, level="light")[0].state == "complete"
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists)
    run = load(tmp_path / "run")
    assert (run.problems, set(run.steps["tokens"].tolist())) == ((), {1, 5})


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))
from profiler import marks
mine = []
try:
    while True:
        mine.append(open(os.devnull))
except OSError as error:
    pass
marks.open_step()
for _ in range(5):
    with marks.region("log"):
        marks.step()
    marks.recorder().flush()
mine.clear()
marks.recorder().flush()
sys.exit(9)
"""


def test_a_program_without_a_free_descriptor(tmp_path: Path) -> None:
    info, run = recorded(tmp_path, LIMITED)
    assert info.exit_code == 9
    assert output(tmp_path).count("\n") == 1, output(tmp_path)
    assert STOPPED + "Too many open files" in output(tmp_path)
    assert "process-stopped" in codes(run)


FAILING = """
import os, sys, threading
import torch
def work():
    try:
        1 / 0
    except ZeroDivisionError as error:
        os.execv("/no/such/program", ["it"])
if sys.argv[1] == "thread":
    thread = threading.Thread(target=work, name="mine")
    thread.start()
    thread.join()
elif sys.argv[1] == "group":
    try:
        work()
    except OSError as error:
        raise ExceptionGroup("all", [error])
else:
    work()
"""


@pytest.mark.parametrize("how", ["", "thread", "group"])
def test_an_error_that_ends_a_program_is_printed_as_without_recording(tmp_path: Path, how: str) -> None:
    """Though it comes out of a function that a hook has replaced."""
    (tmp_path / "torch").mkdir()
    script(tmp_path / "torch", "__version__ = '0'", "__init__.py")
    (tmp_path / "run").mkdir()
    argv = (PYTHON, script(tmp_path, FAILING), how)
    bare = finished(argv)
    ours = finished(argv, env=target_environment(spec(tmp_path, *argv, level="standard")))
    assert (ours.returncode, ours.stderr) == (bare.returncode, bare.stderr)
    assert "No such file or directory" in bare.stderr
    assert "torch " in (tmp_path / "run" / tables.HOOKED).read_text(), "and yet the hooks were in"


# ---------------------------------------------------------------- hours of it

STREAM = """
import os, sys
from profiler import marks
from profiler.agent.clocks import now
marks.open_step()
site = marks.recorder().site(sys._getframe())
first = 0
for step in range(int(sys.argv[1])):
    for name in ("data", "tokenize", "log", "checkpoint", "eval") * 2:
        with marks.region(name):
            pass
    marks.recorder().call(7, "item", now(), site=site)
    marks.count("syncs", 2)
    marks.step(tokens=10)
    if step == 1000 or step % 50_000 == 0:
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        first = size if step <= 1000 else first
print(size - first)
"""
LOADING = """
import resource, sys, time
from profiler.run.load import load
begin = time.perf_counter()
run = load(sys.argv[1])
print(len(run.regions), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, time.perf_counter() - begin)
"""
MOST_OF_RECORDER = 300_000_000
MOST_OF_TARGET = 20_000_000
MOST_OF_LOADING = 2.5
"""Times the size on disk: the loaded tables are 1.3 times as large, and what is copied is mapped meanwhile."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_million_regions(tmp_path: Path) -> None:
    """5 hours of 50 steps a second leave as many, at 15 records a step."""
    out, steps = tmp_path / "run", 1_000_000
    path = script(tmp_path, STREAM)
    process = start("run", "--level", "standard", "--out", out, "--", PYTHON, path, str(steps))
    sizes = []
    while process.poll() is None and not (out / store.RECORDER).exists():
        time.sleep(0.05)
    while (out / ".reserve").exists():  # it goes when the program has ended
        sizes.append(int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize())
        time.sleep(0.1)
    said, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert max(sizes) < MOST_OF_RECORDER
    assert int(said) < MOST_OF_TARGET, "what we add to the program's own memory"
    disk = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    loading = subprocess.run([PYTHON, "-c", LOADING, str(out)], cwd=ROOT, capture_output=True, text=True, check=True)
    regions, peak, seconds = map(float, loading.stdout.split())
    records = 15 * steps
    print(
        f"recorder {max(sizes) / 1e6:.0f} MB, program grew by {int(said) / 1e6:.1f} MB, "
        f"{disk / records:.0f} MB a million records, {disk / steps * 50 * 3600 / 1e6:.0f} MB an hour of "
        f"50 such steps a second; loads in {seconds:.1f} s with {peak / disk:.1f} times its size of memory"
    )
    assert regions == 12 * steps, "ten of the program, two of recording itself"
    assert peak < MOST_OF_LOADING * disk + 100_000_000


def test_texts_without_end_are_not_remembered_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of stacks: those that are met again later are written again, and mean the same."""
    monkeypatch.setattr(store, "_MAX_TEXTS", 10)
    store.create(tmp_path / "run")
    writer = store.RunWriter(tmp_path / "run")
    for when in range(100):
        stack = (("train.py", 1, "main"), ("train.py", when % 25, "work"))
        writer.stacks([(when, when + 1, 7, 7, stack, 1)])
        writer.samples(when, [(7, 0, f"name {when % 25}", 1.0)])
    writer.close()
    assert max(map(len, (writer._stacks, writer._names, writer._frames))) <= 11
    store.write_manifest(tmp_path / "run", info(state="complete"))
    run = load(tmp_path / "run")
    assert [run.stack_frames[number][1].line for number in run.stacks["stack"]] == [n % 25 for n in range(100)]
    assert [run.names[number] for number in run.samples["name"]] == [f"name {n % 25}" for n in range(100)]
    assert len(run.stack_frames) == 25


WORKERS = """
import os, signal, sys, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(3)
if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for x in DataLoader(Data(), batch_size=4, num_workers=2):
            model(x).sum().backward()
            optimizer.step()
    except (RuntimeError, OSError):  # torch says that it was killed, or fails to fetch what it had made
        print("a worker has died", flush=True)
        sys.exit(6)
"""


@pytest.mark.slow
def test_a_loader_worker_that_is_killed(tmp_path: Path) -> None:
    info, run = recorded(tmp_path, WORKERS)
    assert info.exit_code == 6
    # torch's handler of SIGCHLD may raise in the iterator's __del__, too, which Python reports
    assert output(tmp_path).startswith("a worker has died\n")
    assert 0 < len(run.steps) < 10
    assert run.problems == ()
