"""A damaged or hostile file gives a result with a problem, or one line that names it: never an internal error."""

from __future__ import annotations

import gzip
import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.__main__ import main
from profiler.core.errors import ProfilerError
from profiler.core.files import limited_to
from profiler.report.write import rendered
from profiler.run import tables
from tests.recorded.directories import steps, write_manifest, write_source
from tests.run.damage import DAMAGES, damages, mutant
from tests.run.ingest.made_up import event, written

RUNS = Path(__file__).parents[1] / "approval" / "runs"
UNREADABLE = {
    "deep manifest", "FIFO for the manifest", "manifest is gone", "a manifest of the future",
}  # fmt: skip
"""Damages that leave nothing of the run to report."""
DAMAGED = dict(damages(10))
FURTHER = re.compile(r"seed|facts of type [1-46-9]|facts of type 1\d|(?!calls|boundaries)\w+ of -?\d")
"""Further values of kinds of damage that the quick tests have."""


@pytest.fixture(scope="module")
def recorded() -> zipfile.ZipFile:
    return zipfile.ZipFile(RUNS / "ranks.zip")


def opened(path: Path) -> str:
    """The report of what is at `path`, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # would be lines on standard error
        try:
            return rendered(profiler.analyse_run(profiler.load(path)), "json")
        except ProfilerError as error:
            return f"error: {error}"


def is_report(path: Path) -> bool:
    """Whether there is a report of what is at `path`. If not, a line names the path."""
    text = opened(path)
    assert text.startswith("{") or ("\n" not in text and str(path) in text)
    return text.startswith("{")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * bool(FURTHER.match(name))) for name in DAMAGED]
)
def test_a_damaged_run(name: str, tmp_path: Path, recorded: zipfile.ZipFile) -> None:
    recorded.extractall(tmp_path)
    run = next(tmp_path.rglob(tables.MANIFEST)).parent
    DAMAGED[name](run)
    is_readable = is_report(run)
    if name in DAMAGES:
        assert is_readable is (name not in UNREADABLE)


def test_a_damaged_rank_does_not_hide_the_others(tmp_path: Path) -> None:
    run = write_manifest(tmp_path / "run")
    good, bad = (write_source(run, pid, rank=rank, steps=steps(5)) for rank, pid in enumerate((7, 8)))
    (bad / tables.SOURCE_META).write_text('{"schema": 99}')
    loaded = profiler.load(run)
    assert set(loaded.steps["pid"].tolist()) == {int(good.name.partition("-")[2])}
    (problem,) = loaded.problems
    assert "newer version" in problem.values["text"]


def test_a_value_of_another_type_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_manifest(tmp_path / "run")
    write_source(run, facts={"affinity": "", "cores": "many", "device": "cpu"}, steps=steps(5))
    loaded = profiler.load(run)
    assert loaded.info.facts == {"device": "cpu"}
    assert main(["report", str(run), "--format", "text"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "source-7/source.json: affinity and cores were ignored because of an unexpected type" in words


@pytest.fixture(scope="module")
def trace() -> dict[str, Any]:
    document: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100"}], "traceEvents": []}
    for step in range(3):
        document["traceEvents"].append(event("user_annotation", f"ProfilerStep#{step}", 700 * step, 690))
        for number in range(8):
            time, key = 700 * step + 40 * number, {"correlation": 100 * step + number + 1}
            document["traceEvents"] += [
                event("cpu_op", "aten::mm", time, 30),
                event("cuda_runtime", "cudaLaunchKernel", time + 15, 5, **key),
                event("kernel", "gemm", time + 22, 7, device=0, stream=7, **key),
            ]
    return document


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 14)) for seed in range(60)])
def test_a_damaged_trace(seed: int, tmp_path: Path, trace: dict[str, Any]) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(mutant(trace, seed))
    is_report(path)


@pytest.mark.parametrize("names", [("a.json", "b.json"), (f"rank-{'9' * 30}.json", "rank-1.json")])
def test_traces_with_impossible_ranks_get_others(names: tuple[str, str], tmp_path: Path) -> None:
    for name, rank in zip(names, (1 << 40, -1), strict=True):
        written(tmp_path / name, [event("cpu_op", "aten::mm", 5, 6)], distributedInfo={"rank": rank})
    assert set(profiler.load(tmp_path).steps["rank"].tolist()) == {0, 1}


@pytest.mark.skipif(os.getuid() != 0, reason="only root may change its user")
@pytest.mark.parametrize("mode", [0, 0o644])
@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", "{}"),
        ("report", "{}/run.json"),
        ("export", "{}"),
        ("run", "--out", "{}/x", "true"),
    ],
)
def test_a_run_of_another_user_is_named(
    words: tuple[str, ...],
    mode: int,
    tmp_path: Path,
    recorded: zipfile.ZipFile,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded.extractall(tmp_path)
    run = next(tmp_path.rglob(tables.MANIFEST)).parent
    main([word.format(run) for word in words])  # imports what another user may not read
    run.chmod(mode)
    capsys.readouterr()
    os.seteuid(65534)
    try:
        assert main([word.format(run) for word in words]) == 2
    finally:
        os.seteuid(0)
    said = capsys.readouterr().err
    assert said.startswith("error: cannot ")
    assert said.count("\n") == 1
    assert str(run) in said


@pytest.mark.parametrize("values", [{"cat": ["kernel"]}, {"pid": [1]}, {"tid": {}}, {"name": 5}, {"ts": "1e9999999"}])
def test_an_event_of_other_types_is_left_out(tmp_path: Path, values: dict[str, Any]) -> None:
    good = event("cpu_op", "aten::mm", 5, 6)
    run = profiler.load(written(tmp_path / "t.json", [good, {**good, **values}]))
    assert [(problem.code, problem.values["events"]) for problem in run.problems] == [("events-without-time", 1)]
    assert len(run.regions) == 1


def test_a_bomb_is_refused_at_the_limit(tmp_path: Path) -> None:
    packed = tmp_path / "bomb.json.gz"
    packed.write_bytes(gzip.compress(b'{"traceEvents":[' + b" " * 5_000_000 + b"]}"))
    folder = write_manifest(tmp_path / "run")
    (folder / "source-1").mkdir()
    (folder / "source-1" / "steps.bin").write_bytes(bytes(5_000_000))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (folder / tables.MANIFEST, folder / "source-1" / "steps.bin"):
            archive.write(file, file.relative_to(folder))
    for path in (packed, tmp_path / "bomb.zip"):
        with pytest.raises(ProfilerError, match=rf"{path.name} unpacks to more than 1.00 MB.* --max-size"):
            profiler.load(path, max_size=1_000_000)
    with limited_to(1_000_000):
        assert [problem.code for problem in profiler.load(folder).problems] == ["metadata-damaged", "file-unreadable"]


def test_empty_events_and_long_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.run.ingest.trace_events._MAX_EMPTY", 1000)
    monkeypatch.setattr("profiler.run.ingest.trace_events._LONGEST", 1 << 21)
    path = tmp_path / "t.json"
    for content, words in (
        (b"{}," * 2000 + b"{}", "1,001 of its events are empty"),
        (b'"' + b"x" * (1 << 23), "longer"),
    ):
        path.write_bytes(b'{"traceEvents":[' + content + b"]}")
        with pytest.raises(ProfilerError, match=words):
            profiler.load(path)


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_a_trace_is_the_same_in_any_pieces(
    piece: int, tmp_path: Path, trace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "t.json", trace["traceEvents"], distributedInfo={"rank": 3}, name="é\n")
    whole = profiler.load(path)
    monkeypatch.setattr("profiler.run.ingest.trace_events._PIECE", piece)
    again = profiler.load(path)
    assert (again.info, again.names) == (whole.info, whole.names)
    assert all((getattr(again, table) == getattr(whole, table)).all() for table in tables.TABLES)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("/dev/zero")], ids=["FIFO", "device"])
@pytest.mark.parametrize("name", ["trace.json", "run.zip", "counters.json", "history.jsonl"])
def test_only_regular_files_are_read(
    make: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(name)
    words = {
        "counters.json": ["check", "--baseline", name, "--", "python"],
        "history.jsonl": ["check", "--set", f"history={name}"],
    }
    assert main(words.get(name, ["diagnose", name])) == 2
    assert f"{name} is a pipe, a device or a socket" in capsys.readouterr().err


def test_max_size_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path / "t.json", [event("cpu_op", "aten::mm", 5, 6)]))
    assert main(["diagnose", path, "--max-size", "20"]) == 2
    assert "has more than 20.0 B" in capsys.readouterr().err
    assert main(["diagnose", path, "--max-size", "1.5 kB"]) == main(["diagnose", path]) == 0
    with pytest.raises(SystemExit):
        main(["diagnose", path, "--max-size", "much"])
    assert "no size such as 500MB" in capsys.readouterr().err
