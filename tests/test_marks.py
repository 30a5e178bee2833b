"""Marks: near-free when nothing records, exact when something does, harmless when recording cannot go on."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler import marks
from profiler.run import store, tables
from profiler.run.load import load
from profiler.run.model import Run
from tests.fakes.programs import FORKING, ROOT, codes, finished, script
from tests.recorded.directories import info, write_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory of a run to which nothing is written yet."""
    store.create(tmp_path / "run")
    store.write_manifest(tmp_path / "run", info(state="complete"))
    return tmp_path / "run"


@pytest.fixture
def record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    """Call it to begin recording in this process; call what it gives for the run as it would be loaded."""

    def begin(level: str = "standard") -> Callable[[], Run]:
        monkeypatch.setattr(marks, "_recorder", marks.Recorder(folder, level))

        def loaded() -> Run:
            marks._finish()
            return load(folder)

        return loaded

    yield begin
    if marks._recorder is not None:
        marks._recorder.close()


def run_python(run: Path, *arguments: str | Path, level: str = "light") -> str:
    """Run a Python that records into `run`, and return its standard error; it must exit with 0."""
    environment = {**os.environ, tables.ENV_RUN: str(run), tables.ENV_LEVEL: level, "PYTHONPATH": str(ROOT)}
    done = finished([sys.executable, *arguments], env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def values(run: Run, kind: tables.ValueKind) -> list[tuple[int, str, float]]:
    rows = run.values[run.values["kind"] == kind]
    return [(int(row["step"]), run.names[row["name"]], float(row["value"])) for row in rows]


# ---------------------------------------------------------------- when nothing records


def test_nothing_happens_when_nothing_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(marks, "_recorder", None)
    marks.describe(device="cpu")
    marks.open_step()
    with marks.region("data"):
        marks.count("syncs")
        marks.gauge("loss", 1.0)
    marks.result("answer", object())
    marks.worked()
    marks.step(tokens=3)
    assert marks.recorder() is None
    assert [*tmp_path.iterdir()] == []
    assert marks.region("a") is marks.region("b"), "no region is made that nobody records"


def calls_of(work: Callable[[], object]) -> list[str]:
    """Names of the Python functions that `work` calls, and of the C functions."""
    calls: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in {"call", "c_call"}:
            calls.append(frame.f_code.co_name if event == "call" else argument.__name__)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls[1:-1]  # without `work` itself and sys.setprofile


def region() -> None:
    with marks.region("a"):
        pass


@pytest.mark.parametrize(
    ("work", "calls"),
    [
        (lambda: marks.count("a", 1), ["count"]),
        (lambda: marks.gauge("a", 1), ["gauge"]),
        (lambda: marks.result("a", 1), ["result"]),
        (lambda: marks.step(1), ["step"]),
        (lambda: marks.open_step(), ["open_step"]),  # noqa: PLW0108 - the lambda itself is left out
        (lambda: marks.worked(), ["worked"]),  # noqa: PLW0108
        (region, ["region", "__enter__", "__exit__"]),
    ],
)
def test_a_mark_calls_nothing_when_nothing_records(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], None], calls: list[str]
) -> None:
    """Counted and not timed: that holds on a busy machine too. `make bench` times marks."""
    monkeypatch.setattr(marks, "_recorder", None)
    assert calls_of(work) == calls


def test_what_a_recorded_program_imports_is_the_standard_library() -> None:
    code = "import sys; from profiler import marks; print('numpy' in sys.modules, 'ctypes' in sys.modules)"
    assert finished([sys.executable, "-c", code]).stdout.split() == ["False", "False"]


# ---------------------------------------------------------------- what is recorded


def test_a_light_run(record: Callable[..., Any]) -> None:
    loaded = record("light")
    marks.describe(device="host", preset="tiny")
    marks.describe(preset="small", corpus="ü")
    marks.count("before", 5)
    marks.open_step()
    marks.count("syncs")
    marks.count("syncs", 2)
    marks.gauge("loss", 3.0)
    marks.gauge("loss", 2.5)
    with marks.region("data"):
        marks.step(tokens=0, warmup=True)
    marks.count("syncs", 7)
    marks.step(tokens=10)
    marks.step(tokens=20)
    run = loaded()
    assert run.info.facts == {"device": "host", "preset": "small", "corpus": "ü"}
    assert run.steps["index"].tolist() == [0, 1, 2]
    assert run.steps["tokens"].tolist() == [0, 10, 20]
    assert run.steps["warmup"].tolist() == [1, 0, 0]
    assert (run.steps["begin"][1:] == run.steps["end"][:-1]).all()
    assert (run.steps["process_cpu"] >= 0).all()
    assert set(run.steps["pid"].tolist()) == {os.getpid()}
    counted = values(run, tables.ValueKind.COUNTER)
    assert counted == [(0, "syncs", 3.0), (1, "syncs", 7.0)], "what came before the first step belongs to none"
    assert values(run, tables.ValueKind.GAUGE) == [(0, "loss", 2.5)], "a gauge that nobody set again is not repeated"
    assert len(run.regions) == 0


def test_regions_nest_and_end_when_their_bodies_raise(record: Callable[..., Any]) -> None:
    loaded = record()
    marks.open_step()
    with marks.region("outer"):
        with marks.region("inner"):
            pass
        with pytest.raises(ValueError, match="x"), marks.region("failing"):
            raise ValueError("x")
    marks.step()
    run = loaded()
    rows = [(run.names[row["name"]], row) for row in run.regions if run.names[row["name"]] != "recording"]
    assert [(name, row["depth"]) for name, row in rows] == [("inner", 1), ("failing", 1), ("outer", 0)], "as they ended"
    (_, inner), _, (_, outer) = rows
    assert run.steps["begin"][0] <= outer["begin"] <= inner["begin"] <= inner["end"] <= outer["end"]
    assert outer["end"] <= run.steps["end"][0]


def test_counts_of_work_for_another_process_are_written_at_once(record: Callable[..., Any]) -> None:
    loaded = record("light")
    marks.worked()
    marks.open_step()
    marks.count("syncs", 3)
    marks.worked()
    marks.count("syncs", 4)
    marks.step()
    marks.count("syncs", 5)
    marks.step()
    assert values(loaded(), tables.ValueKind.COUNTER) == [(0, "syncs", 3.0), (0, "syncs", 4.0), (1, "syncs", 5.0)]


WORKERS = """
import multiprocessing, sys
from profiler import marks

def work(amount):
    marks.count("done", amount)
    marks.worked()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn" if sys.argv[1:] else "fork").Pool(2) as pool:
        pool.map(work, [100] * 4)  # a warm-up, of no step
        marks.open_step()
        for amount in (1, 10):
            pool.map(work, [amount] * 4)
            marks.step()
        pool.terminate()  # no worker ends by itself
"""


@pytest.mark.parametrize("arguments", [(), ("spawn",)], ids=["fork", "spawn"])
def test_workers_that_are_killed_lose_nothing_that_they_worked(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    run_python(folder, script(tmp_path, WORKERS, "sweep.py"), *arguments)
    counted = values(load(folder), tables.ValueKind.COUNTER)
    assert [sum(value for step, _, value in counted if step == one) for one in (0, 1)] == [4, 40]


@pytest.mark.parametrize("count", [1, 5000], ids=["buffered", "written at once"])
def test_raw_records_are_taken_whole(record: Callable[..., Any], count: int) -> None:
    loaded = record()
    pack = tables.packer("activities").pack
    kernel = marks.recorder().names["kernel"]
    rows = [pack(n, n + 1, 0, n, int(tables.ActivityKind.KERNEL), kernel, 0, 0) for n in range(count)]
    marks.recorder().append_records("activities", rows[0])
    marks.recorder().append_records("activities", b"".join(rows[1:]))
    run = loaded()
    assert run.activities["begin"].tolist() == list(range(count)), "none lost, and in order"
    assert {run.names[number] for number in np.unique(run.activities["name"])} == {"kernel"}


def test_callbacks_of_steps_run_at_every_boundary(record: Callable[..., Any]) -> None:
    loaded = record("light")
    asked: list[int] = []
    marks.recorder().on_step.append(lambda: (asked.append(1), marks.count("launches", len(asked))))
    marks.open_step()
    marks.step()
    marks.step()
    assert values(loaded(), tables.ValueKind.COUNTER) == [(0, "launches", 2.0), (1, "launches", 3.0)]


# ---------------------------------------------------------------- when recording cannot go on


def full_after(room: int) -> Callable[[int, Any], int]:
    """os.write on a disk with room for some bytes."""
    write = os.write

    def limited(descriptor: int, data: Any) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = bytes(data)[:room]
        room -= len(part)
        return write(descriptor, part)

    return limited


def test_a_full_disk_does_not_hurt_the_program(
    record: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.agent.clocks._SCHEDULER", os.devnull)  # only steps need room
    loaded = record("light")
    marks.step()
    marks.recorder().flush()
    monkeypatch.setattr("profiler.agent.folder.os.write", full_after(3 * tables.packer("steps").size + 5))
    for _ in range(10):
        marks.step()
        marks.recorder().flush()
    run = loaded()
    assert len(run.steps) == 4, "what there was room for"
    err = capsys.readouterr().err
    assert err.count("profiler: recording stopped: ") == 1, err
    assert err.rstrip().endswith("the program goes on")
    assert "process-stopped" in codes(run)


def test_a_directory_that_cannot_be_made_does_not_hurt_it_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(marks, "_recorder", marks.Recorder(tmp_path / "file", "standard"))
    marks.describe(device="cpu")
    with marks.region("data"):
        marks.count("syncs")
    marks.step()
    marks._finish()
    assert capsys.readouterr().err.count("recording stopped") == 1


# ---------------------------------------------------------------- more than one process


def test_a_forked_child_writes_a_source_of_its_own(folder: Path, tmp_path: Path) -> None:
    run_python(folder, script(tmp_path, FORKING))
    metas = [json.loads(path.read_text()) for path in folder.glob("source-*/source.json")]
    pids = {meta["pid"] for meta in metas}
    (child,) = (meta for meta in metas if meta["ppid"] in pids)
    found = zip(*np.unique(load(folder).steps["pid"], return_counts=True), strict=True)
    assert dict(found) == {child["ppid"]: 3, child["pid"]: 2}
    assert pids == {child["ppid"], child["pid"]}


THREADS = """
import threading
from profiler import marks

def work(number):
    for index in range(20_000):
        with marks.region(f"region {number} {index % 50}"):
            pass

recorder = marks.recorder()
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    recorder.flush()
"""


def test_threads_may_mark_at_once(tmp_path: Path) -> None:
    assert not run_python(tmp_path, "-c", THREADS, level="standard")
    (source,) = tmp_path.glob("source-*")
    size = (source / "regions.bin").stat().st_size
    assert size == 60_000 * tables.packer("regions").size, f"{size} bytes: regions were lost or written twice"
    ids = [json.loads(line)["id"] for line in (source / tables.NAMES).read_text().splitlines()]
    assert sorted(ids) == list(range(150)), "a name has two numbers, or two names have one"


# ---------------------------------------------------------------- results


def test_results_are_stored_with_their_tolerance(record: Callable[..., Any]) -> None:
    import torch

    loaded = record("light")
    marks.result("loss", 2.5, rtol=0.1)
    marks.result("loss", torch.tensor(2.25, dtype=torch.bfloat16, requires_grad=True))
    marks.result("ids", np.array([[3, 1], [2, 0]], np.int32), atol=0.01, margins=[0.5, 0.25, 1, 1 / 3])
    marks.result("flags", (True, np.int64(2), [torch.tensor(7)]))
    marks.result("ids again", [3, 1, 2, 0])
    loss, second, ids, flags, again = loaded().results
    assert (loss.name, loss.values, loss.integer, loss.rtol, loss.atol) == ("loss", (2.5,), False, 0.1, 1e-6)
    assert (second.values, second.count) == ((2.25,), 1)
    assert (ids.values, ids.integer, ids.margins) == ((3, 1, 2, 0), True, (0.5, 0.25, 1, 0.3333))
    assert flags.values == (1, 2, 7)
    assert again.checksum == ids.checksum, "the width of the numbers does not matter"


def test_results_are_of_bounded_size(record: Callable[..., Any]) -> None:
    loaded = record("light")
    large = np.arange(100_000)
    for _ in range(20):
        marks.result("large", large)
    for _ in range(20_000):
        marks.result("loss", 1.0)
    results = loaded().results
    stored = [result for result in results if result.name == "large"]
    assert stored[0].count == len(large)
    assert len(stored[0].values) == 4096
    assert len({value % 25 for value in stored[0].values}) == 25, "not evenly spaced"
    assert sum(len(result.values) for result in stored) < 80_000
    assert sum(result.name == "loss" for result in results) == 10_000


@pytest.mark.parametrize("value", ["text", None, object(), [], [1, "a"], 1j, np.array(["a"]), {"a": "b"}, iter([1])])
def test_a_result_that_cannot_be_stored_is_reported_once(
    record: Callable[..., Any], capsys: pytest.CaptureFixture[str], value: Any
) -> None:
    loaded = record("light")
    marks.result("bad", value)
    marks.result("bad", value)
    marks.result("good", 1)
    assert [result.name for result in loaded().results] == ["good"]
    assert capsys.readouterr().err.count("profiler: result 'bad' could not be recorded: ") == 1


def test_results_of_several_ranks_are_those_of_the_lowest(folder: Path) -> None:
    line = {"name": "loss", "count": 1, "integer": False, "checksum": 0, "rtol": 0, "atol": 0, "margins": []}
    for rank in (1, 0):
        source = write_source(folder, 10 - rank, rank=rank)
        (source / tables.RESULTS).write_text(json.dumps(line | {"values": [rank]}) + "\n{torn")
    run = load(folder)
    assert [result.values for result in run.results] == [(0,)]
    assert {problem.code for problem in run.problems} == {"torn-line"}
