"""Loading: sources merged with their texts, torn tails cut and named, and one line for what is no run."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.core.errors import Notice, ProfilerError
from profiler.run import store
from profiler.run.load import LOST_NAME, load
from profiler.run.model import CollectorStatus, Site
from profiler.run.tables import SETTINGS, TABLES, CallKind, ValueKind, packer
from tests.recorded.builders import dtype_of
from tests.recorded.directories import steps, write_manifest, write_source


def source(run: Path, pid: int, *, count: int, names: tuple[str, ...], rank: int = 0, **facts: Any) -> Path:
    """A folder as `profiler.marks` leaves it: steps, one region for each name, one call at one site."""
    return write_source(
        run, pid, rank=rank, facts=facts, names=names, sites={0: Site(f"{pid}.py", 7, "f")},
        steps=steps(count, tid=pid),
        regions=[(1, 2, pid, number, 0) for number in range(len(names))],
        calls=[(1, 2, 0, 0, 0, pid, 0, 0, 0, 0), (3, 4, 0, 0, 0, pid, 0, 0, -1, 0)],
    )  # fmt: skip


def test_sources_are_merged_and_their_ids_renumbered(tmp_path: Path) -> None:
    write_manifest(tmp_path, facts={"preset": "tiny", "device": "?"})
    source(tmp_path, 20, count=1, names=("log", "data"), rank=1, device="worker")
    source(tmp_path, 30, count=3, names=("data", "log"), device="host")
    run = load(tmp_path)
    texts = [(row["pid"], row["rank"], run.names[row["name"]]) for row in run.regions]
    assert texts == [(30, 0, "data"), (30, 0, "log"), (20, 1, "log"), (20, 1, "data")]
    assert [str(run.sites[row["site"]]) if row["site"] >= 0 else "" for row in run.calls] == [
        "30.py:7 (f)",
        "",
        "20.py:7 (f)",
        "",
    ]
    assert run.steps["pid"].tolist() == [30, 30, 30, 20]
    assert run.info.facts == {"preset": "tiny", "device": "host"}, "what the process with most steps said"
    assert run.problems == ()
    for table in TABLES:
        assert getattr(run, table).dtype == dtype_of(table)
        assert not getattr(run, table).flags.writeable


def process(run: Path, pid: int, ends: range, **facts: Any) -> None:
    """A folder as the hooks leave it: an optimizer's boundaries."""
    boundaries = [(time, time, time, 0, pid, 0, 0, 0) for time in ends]
    write_source(
        run, pid, facts=facts, names=("AdamW (train.py:3)",), boundaries=boundaries, regions=[(1, 2, pid, 0, 0)]
    )


@pytest.mark.parametrize(("masks", "cores"), [(("3", "3"), 2), (("1", "2"), 2), (("1", "1"), 1), ((None, "6"), 2)])
def test_the_cores_of_the_ranks_are_those_that_any_of_them_may_use(
    tmp_path: Path, masks: tuple[str | None, str], cores: int
) -> None:
    write_manifest(tmp_path)
    for rank, mask in enumerate(masks):
        source(tmp_path, 10 + rank, count=2, names=("step",), rank=rank, **({"affinity": mask} if mask else {}))
    source(tmp_path, 20, count=0, names=("step",), affinity="ff00")  # a process without steps
    assert load(tmp_path).info.facts["rank_cores"] == cores


def test_the_line_that_starts_processes_is_known_of_the_process_that_steps(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    start, own = ({"file": "train.py", "line": line, "function": "main"} for line in (3, 9))
    source(tmp_path, 10, count=0, names=("step",), setting_lines={"processes": start, "threads": start})
    source(tmp_path, 11, count=2, names=("step",), setting_lines={"float64": own})
    assert load(tmp_path).info.facts[SETTINGS] == {"processes": start, "float64": own}


def test_the_facts_are_those_of_the_process_that_steps(tmp_path: Path) -> None:
    write_manifest(tmp_path, facts={"preset": "tiny"})
    trace = {"state": "recorded", "began": 50_000, "ended": 60_000}
    process(tmp_path, 1000, range(0), device="cpu")
    process(tmp_path, 2000, range(1000, 3000, 1000), device="cpu")
    process(tmp_path, 3000, range(1000, 100_000, 1000), device="cuda", trace=trace)
    run = load(tmp_path)
    assert run.info.facts == {"preset": "tiny", "device": "cuda", "trace": trace}
    assert run.steps["pid"].tolist() == [3000] * 98 + [2000]
    assert run.regions["pid"][0] == 3000


def test_reads_that_a_former_version_took_for_certain_are_possible_ones(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    calls = [(1, 2, 0, 3, 0, 10, kind, 2, -1, 0) for kind in (CallKind.WOULD_SYNC, CallKind.MIGHT_SYNC)]
    counted = [(2, 0, amount, name, ValueKind.COUNTER) for name, amount in enumerate((3.0, 4.0))]
    write_source(
        tmp_path, 10, names=("would_sync", "might_sync", "item"), steps=steps(1, tid=10), calls=calls, values=counted
    )
    run = load(tmp_path)
    assert run.calls["kind"].tolist() == [CallKind.MIGHT_SYNC] * 2
    assert [(run.names[row["name"]], row["value"]) for row in run.values] == [("might_sync", 3.0), ("might_sync", 4.0)]
    assert run.names.count("might_sync") == 1


def test_an_empty_run_has_empty_tables(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    run = load(tmp_path / "run.json")
    assert {table: len(getattr(run, table)) for table in TABLES} == dict.fromkeys(TABLES, 0)


def test_what_the_recorder_wrote_comes_back(tmp_path: Path) -> None:
    store.create(tmp_path)
    write_manifest(tmp_path)
    writer = store.RunWriter(tmp_path)
    writer.samples(5, [(1, 2, "thread.cpu_s", 0.5), (1, 0, "process.rss", 7.0), (1, 3, "thread.cpu_s", 1.5)])
    stack = (("a.py", 1, "main"), ("b.py", 2, "inner"))
    writer.stacks([(10, 20, 1, 2, stack, 1), (20, 30, 1, 2, stack[:1], 0), (30, 40, 1, 2, stack, -1)])
    writer.close()
    run = load(tmp_path)
    assert [(run.names[row["name"]], row["tid"], row["value"]) for row in run.samples] == [
        ("thread.cpu_s", 2, 0.5),
        ("process.rss", 0, 7.0),
        ("thread.cpu_s", 3, 1.5),
    ]
    assert [run.stack_frames[number] for number in run.stacks["stack"]] == [
        (Site("a.py", 1, "main"), Site("b.py", 2, "inner")),
        (Site("a.py", 1, "main"),),
        (Site("a.py", 1, "main"), Site("b.py", 2, "inner")),
    ]
    assert run.stacks["active"].tolist() == [1, 0, -1]


def test_every_cut_of_a_table_loads(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    folder = source(tmp_path, 20, count=2, names=("data",))
    whole = (folder / "steps.bin").read_bytes()
    size = packer("steps").size
    for cut in range(len(whole) + 1):
        (folder / "steps.bin").write_bytes(whole[:cut])
        run = load(tmp_path)
        assert len(run.steps) == cut // size, f"cut at {cut} of {len(whole)}"
        torn = Notice("torn-record", {"file": "source-20/steps.bin", "bytes": cut % size})
        assert run.problems == ((torn,) if cut % size else ())


def test_every_cut_of_the_names_loads(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    folder = source(tmp_path, 20, count=1, names=("data", "log"))
    whole = (folder / "names.jsonl").read_bytes()
    for cut in range(len(whole) + 1):
        (folder / "names.jsonl").write_bytes(whole[:cut])
        run = load(tmp_path)
        read = [run.names[number] for number in run.regions["name"]]
        complete = whole[:cut].count(b"}")
        assert read == ["data", "log"][:complete] + [LOST_NAME] * (2 - complete), f"cut at {cut}"
        if complete < 2:
            assert "lost-texts" in {problem.code for problem in run.problems}, run.problems


def test_a_damaged_line_and_a_missing_meta_are_named(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    folder = source(tmp_path, 20, count=1, names=("data",))
    (folder / "names.jsonl").write_bytes(b'\xff\xfe\n{"id": 0, "text": "data"}\n{"id": 1}\n')
    (folder / "source.json").unlink()
    run = load(tmp_path)
    assert run.steps["pid"].tolist() == [20], "from the folder's name"
    assert run.names[run.regions["name"][0]] == "data"
    assert set(run.problems) == {
        Notice("metadata-damaged", {"file": "source-20/source.json", "error": "FileNotFoundError"}),
        *(Notice("damaged-line", {"file": "source-20/names.jsonl", "line": line}) for line in (1, 3)),
    }


def test_a_killed_recorder_and_a_failed_collector_are_named(tmp_path: Path) -> None:
    write_manifest(tmp_path, state="running", collectors=(CollectorStatus("stacks", "failed", "died"),))
    failed = Notice("collector-failed", {"name": "stacks", "reason": "died"})
    assert load(tmp_path).problems == (Notice("run-not-ended"), failed)


def test_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name, message in (("file", "not a run directory"), ("folder", "is not a run"), ("none", "there is no run")):
        with pytest.raises(ProfilerError, match=message) as caught:
            load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_newer_source_is_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    folder = source(tmp_path, 20, count=1, names=())
    (folder / "source.json").write_text(json.dumps({"schema": 9, "pid": 20, "rank": 0, "facts": {}}))
    with pytest.raises(ProfilerError, match="newer version"):
        load(tmp_path)


def test_random_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    folder = source(tmp_path, 20, count=1, names=("data",))
    random = np.random.default_rng(0)
    for name in ("names.jsonl", "sites.jsonl", "stacks.jsonl", "source.json", "regions.bin", "calls.bin", "stacks.bin"):
        for size in (1, 50, 300):
            (folder / name).write_bytes(random.bytes(size))
            load(tmp_path)


# ---------------------------------------------------------------- archives


def one_step_run(folder: Path) -> Path:
    """A run of one step at `folder`/run."""
    run = write_manifest(folder / "run")
    write_source(run, facts={"device": "host"}, steps=steps(1, 20))
    return run


@pytest.mark.parametrize("top", ["run", "."], ids=["in a folder", "at the top"])
def test_an_archive_loads_as_its_directory_does(tmp_path: Path, top: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, scratch = one_step_run(tmp_path), tmp_path / "scratch"
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", run if top == "." else tmp_path, top))
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    folder, packed = load(run), load(archive)
    assert list(scratch.iterdir()) == [], "nothing is left behind"
    assert packed.path == archive
    assert packed.info == folder.info
    assert packed.problems == folder.problems == ()
    assert packed.steps.tolist() == folder.steps.tolist() == [(0, 0, 20, 3, 1, 1, 0, 7, 0, 7, 0)]


def test_errors_inside_an_archive_name_the_archive(tmp_path: Path) -> None:
    run = one_step_run(tmp_path)
    (run / "run.json").write_text("{")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "run")
    with pytest.raises(ProfilerError, match=r"packed\.zip/run\.json is damaged") as caught:
        load(archive)
    assert "profiler-" not in str(caught.value), "the temporary folder means nothing to a reader"


def test_no_run_or_several(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as file:
        file.writestr("readme.txt", "nothing")
    with pytest.raises(ProfilerError, match=r"none\.zip holds 0 runs"):
        load(tmp_path / "none.zip")
    one_step_run(tmp_path / "both" / "a")
    one_step_run(tmp_path / "both" / "b")
    with pytest.raises(ProfilerError, match=r"two\.zip holds 2 runs: give a \.zip of one"):
        load(shutil.make_archive(str(tmp_path / "two"), "zip", tmp_path / "both"))


def test_damaged_archives(tmp_path: Path) -> None:
    good = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", one_step_run(tmp_path))).read_bytes()
    flipped = bytearray(good)
    flipped[good.index(b"run.json") + len("run.json") + 20] ^= 0xFF  # within the manifest's compressed bytes
    for name, content in (("text", b"not an archive"), ("torn", good[: len(good) // 2]), ("flipped", bytes(flipped))):
        path = tmp_path / f"{name}.zip"
        path.write_bytes(content)
        with pytest.raises(ProfilerError, match=rf"{name}\.zip is damaged, or not a \.zip that can be read"):
            load(path)


def test_entries_cannot_leave_the_temporary_folder(tmp_path: Path) -> None:
    run, escaped = one_step_run(tmp_path), tmp_path.parent / "escaped.txt"
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(run / "run.json", "run/run.json")
        file.writestr(f"../../{escaped.name}", "x")
        file.writestr(str(escaped), "x")
    assert load(archive).info.argv == ("train",)
    assert not escaped.exists()
