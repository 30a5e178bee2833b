"""`profiler.record` in a program of its own: what is recorded, what is taken back, and what each kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.agent import recorder
from profiler.core.errors import ProfilerError
from profiler.report.text import step_text
from profiler.run import tables
from profiler.run.model import Run
from profiler.run.step_detection import detect_steps
from profiler.run.tables import BoundaryKind
from tests.fakes.programs import ROOT, codes, command_line, damage, finished, gone, script

TRAINING = """
import json, os, sys
import torch
import profiler
from profiler.core.errors import ProfilerError

torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(steps):
    for _ in range(steps):
        with profiler.region("mine"):
            loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()

def state():
    hooks = sys.modules["torch.optim.optimizer"]  # torch.optim has no such attribute
    return [
        hooks.Optimizer.__init__, hooks._global_optimizer_pre_hooks.copy(), hooks._global_optimizer_post_hooks.copy(),
        list(sys.meta_path), dict(os.environ), os._exit, torch.Tensor.item,
    ]

said = {}
before = state()
with profiler.record("one", label="first") as run:
    train(6)
    try:
        with profiler.record("nested"):
            pass
    except ProfilerError as error:
        said["nested"] = str(error)
    train(1)
said["taken back"] = [one == other for one, other in zip(before, state(), strict=True)]
train(2)
with profiler.record("two", level="light") as again:
    train(4)
try:
    with profiler.record("three"):
        train(3)
        raise RuntimeError("mine")
except RuntimeError as error:
    said["raised"] = str(error)
said["paths"] = [os.fspath(run), os.fspath(again)]
print(json.dumps(said))
"""

MARKED = """
import os, signal, sys, threading
import profiler

def work(run):
    for _ in range(5):
        with profiler.region("mine"):
            pass
        profiler.count("things", 2)
        profiler.gauge("loss", 0.5)
        profiler.step(tokens=7)

how, out = sys.argv[1:]
if how == "thread":
    def inside():
        with profiler.record(out) as run:
            work(run)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
else:
    with profiler.record(out) as run:
        profiler.describe(device="cpu")
        work(run)
        if how == "fork" and os.fork() == 0:
            profiler.step(tokens=1)
            os._exit(0)
        if how == "fork":
            os.wait()
        if how == "kill program":
            from profiler.agent import patching
            patching.STATE.recorder.flush()
            print(run._sidecar.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "kill beside":
            os.kill(run._sidecar.pid, signal.SIGKILL)
        if how == "exit":
            sys.exit(3)
        if how == "interrupt":
            raise KeyboardInterrupt
    print("went on", run.joined)
"""


def python(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROFILER_")}
    return finished([sys.executable, *arguments], cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)})


def marked(folder: Path, how: str) -> tuple[subprocess.CompletedProcess[str], Run]:
    done = python(folder, script(folder, MARKED), how, folder / "run")
    return done, profiler.load(folder / "run")


def optimizer_steps(run: Run) -> int:
    """The number of recorded optimizer steps; a step of the run lies between two of them."""
    number = int((run.boundaries["kind"] == BoundaryKind.OPTIMIZER).sum())
    _, (ends,) = detect_steps(run.boundaries, run.names)
    assert len(ends) == number - 1, "the backward pass before the first optimizer step ends no step"
    return number


def times(run: Run, region: str) -> int:
    return [run.names[number] for number in run.regions["name"]].count(region)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trained")
    done = python(folder, script(folder, TRAINING))
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_a_block_of_training_is_a_run_with_its_steps(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, said = trained
    run = profiler.load(folder / "one")
    assert (run.info.label, run.info.level, run.info.state, run.info.exit_code) == ("first", "standard", "complete", 0)
    assert "SGD (train.py:16)" in step_text(run.step)
    assert (optimizer_steps(run), times(run, "mine")) == (7, 7), "those of the block, and no more"
    statuses = {status.name: status.state for status in run.info.collectors}
    assert (statuses["host"], statuses["environment"], statuses["hooks"]) == ("ok", "ok", "ok")
    assert damage(run) == []
    assert said["paths"] == [str(folder / "one"), str(folder / "two")]
    assert profiler.read(folder / "one").verdict
    assert all(said["taken back"]), "after the block everything is as it was"


def test_a_second_block_records_each_step_once(trained: tuple[Path, dict[str, Any]]) -> None:
    run = profiler.load(trained[0] / "two")
    assert (run.info.label, run.info.level, optimizer_steps(run), len(run.regions)) == ("two", "light", 4, 0)


def test_an_exception_goes_on_and_the_run_has_failed(trained: tuple[Path, dict[str, Any]]) -> None:
    run = profiler.load(trained[0] / "three")
    assert (run.info.state, run.info.exit_code, optimizer_steps(run)) == ("failed", 1, 3)
    assert trained[1]["raised"] == "mine"


def test_one_recording_at_a_time(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, said = trained
    assert said["nested"] == f"this program is being recorded into {folder / 'one'}: end that recording first"
    assert not (folder / "nested").exists()


def test_marks_of_the_package_in_a_thread(tmp_path: Path) -> None:
    done, run = marked(tmp_path, "thread")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith(f"profiler: recorded {tmp_path / 'run'}; see python -m profiler diagnose ")
    assert (len(run.steps), int(run.steps["tokens"].sum()), times(run, "mine")) == (5, 35, 5)
    values = [(run.names[name], value) for name, value in run.values[["name", "value"]].tolist()]
    assert values == [("things", 2.0), ("loss", 0.5)] * 5


def test_a_fork_has_a_recorder_of_its_own_and_closes_nothing(tmp_path: Path) -> None:
    done, run = marked(tmp_path, "fork")
    assert done.stdout == "went on False\n", done.stderr
    assert run.info.state == "complete"
    steps = run.steps["pid"].tolist()
    assert sorted(steps.count(pid) for pid in set(steps)) == [1, 5]


@pytest.mark.parametrize(
    ("how", "code", "state"),
    [("exit", 3, "failed"), pytest.param("interrupt", -2, "interrupted", marks=pytest.mark.slow)],
)
def test_ways_out_of_the_block(tmp_path: Path, how: str, code: int, state: str) -> None:
    done, run = marked(tmp_path, how)
    assert done.returncode in {code, 128 - code}
    assert (run.info.state, len(run.steps)) == (state, 5)


def test_a_program_that_is_killed_leaves_a_run_that_is_closed(tmp_path: Path) -> None:
    done = python(tmp_path, script(tmp_path, MARKED), "kill program", tmp_path / "run")
    assert done.returncode == -signal.SIGKILL
    assert gone(int(done.stdout)), "the process beside outlives its program"
    run = profiler.load(tmp_path / "run")
    assert (run.info.state, run.info.exit_code, len(run.steps)) == ("failed", None, 5)
    assert run.info.facts["device"] == "cpu"
    assert damage(run) == []


def test_a_recorder_that_is_killed_leaves_a_run_and_the_program_goes_on(tmp_path: Path) -> None:
    done, run = marked(tmp_path, "kill beside")
    assert (done.returncode, done.stdout) == (0, "went on False\n")
    assert done.stderr == "profiler: the recorder beside was ended; what it had written still loads\n"
    assert len(run.steps) == 5
    assert "run-not-ended" in codes(run)


@pytest.mark.usefixtures("importable")
def test_in_a_recorded_program_the_block_is_a_region_of_that_run(tmp_path: Path) -> None:
    program = (sys.executable, script(tmp_path, MARKED), "plain", tmp_path / "inner")
    command = command_line("run", "--level", "standard", "--out", tmp_path / "outer", "--", *program)
    done = finished(command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "went on True\n"), done.stderr
    assert not (tmp_path / "inner").exists()
    run = profiler.load(tmp_path / "outer")
    assert (len(run.steps), times(run, "inner")) == (5, 1)


def test_faults_come_before_anything_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, level, said in (
        (tmp_path, "standard", r"it is not empty \(file is in it\)"),
        (tmp_path / "file", "standard", f"it is a file, .* {tmp_path}/file-2 is free"),
        (tmp_path / "new", "some", "there is no level some: choose from light, standard, full"),
        (tmp_path / "file" / "below", "standard", "cannot make the run directory"),
    ):
        with pytest.raises(ProfilerError, match=said), profiler.record(path, level=level):
            pytest.fail("the block was entered")
    assert tables.ENV_RUN not in os.environ
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_is_taken_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's text is the whole message: a script that does not catch it ends with it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / tables.MANIFEST).write_text("mine")
    (tmp_path / "run-2").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProfilerError) as caught, profiler.record("run"):
        pytest.fail("the block was entered")
    assert str(caught.value) == (
        "cannot use run: there is a run in it, and a run is never overwritten. Nothing was recorded or changed; "
        "run-3 is free"
    )
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["run", "run-2", tables.MANIFEST]
    assert (tmp_path / "run" / tables.MANIFEST).read_text() == "mine"
    assert tables.ENV_RUN not in os.environ
    assert recorder.start() is None


def test_an_entry_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("profiler.agent.installation.install_hooks", fail)
    before = dict(os.environ)
    with pytest.raises(KeyboardInterrupt), profiler.record(tmp_path / "run", level="light"):
        pytest.fail("the block was entered")
    assert dict(os.environ) == before
    assert recorder.start() is None
    assert profiler.load(tmp_path / "run").info.state == "failed"
