"""`export` on the command line: files and their places, filters, faults in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from profiler.__main__ import main
from profiler.core.errors import Exit
from profiler.report.export import perfetto
from profiler.run import store
from tests.recorded.directories import steps, write_manifest, write_source
from tests.report.export.trace_rules import complaints
from tests.run.ingest.made_up import event, written
from tests.run.ingest.test_attached import DAY, EVENTS, FACT, PID, recorded
from tests.run.ingest.test_operators import NESTED


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two processes with three steps each, and stacks of the first."""
    path = tmp_path / "run"
    store.create(path)
    write_manifest(path, label="mine", level="standard")
    for pid in (7, 8):
        write_source(path, pid, steps=steps(3, 1000, tid=pid, tokens=1))
    writer = store.RunWriter(path)
    writer.stacks([(0, 2000, 7, 7, (("t.py", 1, "main"),), 1), (0, 2000, 7, 9, (("t.py", 2, "other"),), 1)])
    writer.close()
    return path


@pytest.mark.parametrize(
    ("form", "file"), [("perfetto", "trace.json.gz"), ("speedscope", "speedscope.json"), ("collapsed", "collapsed.txt")]
)
def test_each_format_has_its_file(run: Path, form: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--format", form]) == Exit.OK
    assert capsys.readouterr().out.strip() == str(run / file)
    assert (run / file).stat().st_size > 20
    before = (run / file).read_bytes()
    assert main(["export", str(run / "run.json"), "--format", form]) == Exit.OK
    assert (run / file).read_bytes() == before, (
        "the same run gives the same bytes, and what was written is no part of it"
    )


def test_compressed_by_its_name_or_plain(run: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "deep" / "t.json", tmp_path / "t.json.gz"
    for out in (plain, packed):
        assert main(["export", str(run), "--out", str(out)]) == Exit.OK
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert json.loads(plain.read_text())["otherData"]["label"] == "mine"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["t.json"]


def test_standard_output_and_threads(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--format", "collapsed", "--out", "-", "--threads", "--thread", "9"]) == Exit.OK
    assert capsys.readouterr().out == "mine;thread 9;other (t.py:2) 2\n"


def test_operators_are_exported_and_omissions_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = traced(tmp_path, *EVENTS, *NESTED), tmp_path / "t.json"
    assert main(["export", str(run), "--out", str(out)]) == Exit.OK
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err == "torch operators: from 25.0 ms to 25.1 ms of the timeline\n"
    assert out.read_text().count('"cat":"operator"') == 3
    monkeypatch.setattr(perfetto, "MAX_SLICES", 2)
    assert main(["export", str(run), "--out", str(out)]) == Exit.OK
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err.splitlines()[1:] == [
        "left out: 1 of 3 torch operators, the shortest: none took more than 18.5 µs",
        "left out: 1 of 3 runtime calls of torch's trace, the shortest: none took more than 5.00 µs",
        f"the whole trace: {run}/source-{PID}/kineto.json.gz",
    ]
    assert out.read_text().count('"cat":"operator"') == 2
    assert complaints(out.read_text()) == []
    assert main(["export", str(run / "run.json"), "--out", str(out)]) == Exit.OK
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == f"the whole trace: {run}/source-{PID}/kineto.json.gz", "the directory, not the file that was given"
    assert main(["export", str(run), "--out", str(out), "--thread", "99"]) == Exit.OK
    assert out.read_text().count('"cat":"operator"') == 0


def test_only_traces_of_the_requested_processes_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = traced(tmp_path, *EVENTS, *NESTED), tmp_path / "t.json"
    copytree(run / f"source-{PID}", run / "source-8")
    (run / "source-8" / "source.json").write_text(
        (run / f"source-{PID}" / "source.json").read_text().replace(f'"pid": {PID}', '"pid": 8')
    )
    monkeypatch.setattr(perfetto, "MAX_SLICES", 2)
    assert main(["export", str(run), "--out", str(out), "--pid", "8"]) == Exit.OK
    assert capsys.readouterr().err.splitlines()[-1] == f"the whole trace: {run}/source-8/kineto.json.gz"


def traced(folder: Path, *events: dict[str, Any]) -> Path:
    """A recorded run with these events in the trace of torch's profiler."""
    run = recorded(folder, FACT)
    written(run / f"source-{PID}" / "kineto.json.gz", list(events), baseTimeNanoseconds=DAY)
    return run


def test_a_thread_that_only_the_trace_knows(tmp_path: Path) -> None:
    run, out = traced(tmp_path, *EVENTS, event("cpu_op", "aten::mm", 30, 5, tid=123)), tmp_path / "t.json"
    assert main(["export", str(run), "--out", str(out), "--thread", "123"]) == Exit.OK
    begun = [one["name"] for one in json.loads(out.read_text())["traceEvents"] if one.get("cat") == "operator"]
    assert begun == ["aten::mm"]


def test_a_run_with_nothing_but_operators(tmp_path: Path) -> None:
    run, out = traced(tmp_path, event("cpu_op", "aten::mm", 30, 5, tid=7)), tmp_path / "t.json"
    for file in (run / f"source-{PID}").glob("*.bin"):
        file.unlink()
    assert main(["export", str(run), "--out", str(out)]) == Exit.OK
    assert out.read_text().count('"cat":"operator"') == 1


def test_only_one_process(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    assert main(["export", str(run), "--out", str(out), "--pid", "8"]) == Exit.OK
    events = json.loads(out.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {8}
    assert sum(event["ph"] == "B" for event in events) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pid", "5"], "this run has no process 5; it has 7, 8"),
        (["--format", "speedscope", "--pid", "8"], "no stack samples"),
        (["--threads"], "--threads: format perfetto"),
        (["nothing"], "there is no run at nothing"),
        (["--out", "/proc/nowhere/t.json"], "cannot write /proc/nowhere/t.json"),
    ],
)
def test_faults_are_one_line(run: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *([str(run)] if options[0].startswith("-") else []), *options]) == Exit.USAGE
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
