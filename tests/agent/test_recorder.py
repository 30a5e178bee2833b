"""The recorder under several threads and forks: nothing is lost, nothing raises, a child leaves its parent's alone."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.agent import folder
from profiler.agent import recorder as module
from profiler.agent.clocks import Clocked, ClockedRegion, Region
from profiler.agent.recorder import Recorder
from profiler.run.source import read_source
from profiler.run.tables import NOT_READ, BoundaryKind


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """Threads are switched as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    made = Recorder(tmp_path, "standard")
    yield made
    sys.setswitchinterval(before)
    made.close()


def at_once(*work: Callable[[], object]) -> None:
    """Each in a thread; an error of any is raised here."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> None:
        gate.wait()
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_clocks_of_the_stepping_thread_are_recorded_at_most_every_10_ms(recorder: Recorder) -> None:
    for _ in range(300):
        recorder.record_boundary(BoundaryKind.OPTIMIZER, "Adam")
    recorder.flush()
    rows = read_source(recorder.directory).tables["thread_clocks"]
    read = read_source(recorder.directory).tables["boundaries"]
    read = read[read["thread_cpu"] != NOT_READ]
    assert 100 <= len(rows) < 300
    assert rows["time"].tolist() == read["time"].tolist()
    assert rows["cpu"].tolist() == read["thread_cpu"].tolist()
    assert (rows["delay"][1:] >= rows["delay"][:-1]).all()


def test_regions_have_their_clocks_read_now_and_then_at_both_ends(recorder: Recorder) -> None:
    for _ in range(2000):
        with ClockedRegion(recorder, "data"), ClockedRegion(recorder, "tokenize"):
            pass
        with Region(recorder, "collate"):
            pass
    recorder.flush()
    read = read_source(recorder.directory)
    rows, regions = read.tables["thread_clocks"], read.tables["regions"]
    if not len(rows):
        pytest.skip("this kernel does not tell how long a thread waits for a core")
    ends = {end: read.names[row["name"]] for row in regions for end in (int(row["begin"]), int(row["end"]))}
    spans = [ends[moment] for moment in rows["time"].tolist()]
    assert (rows["cpu"] == NOT_READ).all()
    assert spans[:2] == ["data", "data"]
    assert set(spans) == {"data", "tokenize"}
    assert len(rows) < len(regions)
    assert spans.count("data") % 2 == spans.count("tokenize") % 2 == 0


@pytest.mark.parametrize("lengths", [(10,), (15, 15, 15, 15, 40), (1,) * 59 + (41,), (3, 90)])
def test_regions_are_chosen_whatever_their_length(lengths: tuple[int, ...]) -> None:
    """Every length is chosen as often as it occurs, also where a CPU quota of 100 ms makes some regions long."""
    clocked, chosen, now_ms = Clocked(), [], 0
    for number in range(100_000):
        length = lengths[number % len(lengths)]
        clocked.until_next -= 1
        if clocked.until_next <= 0:
            clocked.choose_next(now_ms * 1_000_000)
            chosen.append(length)
        now_ms += length
    assert chosen.count(lengths[-1]) / len(chosen) == pytest.approx(lengths.count(lengths[-1]) / len(lengths), rel=0.05)
    assert 0.6 < now_ms / len(chosen) / max(40, now_ms / 100_000) < 1.6


def test_threads_may_count_while_one_writes_and_nothing_is_lost(recorder: Recorder) -> None:
    rounds = 3000

    def counts() -> None:
        for number in range(rounds):
            recorder.count("all")
            recorder.count("all", 0.0)
            recorder.count(f"of {number}")  # a new name each: what is written grows meanwhile

    def finds() -> None:
        for _ in range(300):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")

    def asks() -> None:
        for _ in range(300):
            at = recorder.begin_boundary(BoundaryKind.LOADER, "DataLoader")
            recorder.count("asked")
            assert at is not None
            recorder.end_boundary(BoundaryKind.LOADER, "DataLoader", at)

    at_once(counts, counts, finds, asks)
    recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
    assert recorder.folder.failed == ""
    recorder.flush()
    read = read_source(recorder.directory)
    written: dict[str, float] = {}
    for row in read.tables["values"]:
        name = read.names[row["name"]]
        written[name] = written.get(name, 0) + row["value"]
    assert written["all"] == 2 * rounds
    assert written["asked"] == 300
    assert all(written[f"of {number}"] == 2 for number in range(rounds))


def test_threads_may_add_facts_at_once(recorder: Recorder) -> None:
    recorder.folder.make()

    def knows() -> None:
        for number in range(100):
            recorder.add_hook_facts(**{f"{threading.get_ident()} {number}": number})

    at_once(knows, knows, lambda: [recorder.hook_errors.update({str(number): ""}) for number in range(2000)])
    recorder.write_metadata()
    assert recorder.folder.failed == ""
    meta = json.loads((recorder.directory / "source.json").read_text())
    assert (len(meta["facts"]), len(meta["hooks"])) == (200, 2000)
    assert [file.name for file in recorder.directory.iterdir() if file.name.endswith(".new")] == []


def test_a_fact_that_cannot_be_written_does_not_end_the_recording(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    circle: dict[str, object] = {}
    circle["itself"] = circle
    recorder.folder.make()
    recorder.add_hook_facts(circle=circle)
    assert recorder.folder.failed == ""
    assert "ValueError" in capsys.readouterr().err


def test_an_error_at_a_boundary_is_reported_and_the_program_goes_on(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise ValueError("of a device")

    recorder.on_step.append(fails)
    recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
    assert recorder.folder.failed == "of a device"
    assert "recording stopped: of a device" in capsys.readouterr().err


def test_a_region_that_a_child_inherits_is_not_written_to_its_parents_files(recorder: Recorder) -> None:
    with Region(recorder, "before"):
        pass
    names = recorder.directory / "names.jsonl"
    before = names.read_text()
    held = threading.Event()
    done = threading.Event()

    def holds() -> None:
        with recorder.names._adding, recorder.folder._making, recorder.folder._writing_metadata:
            held.set()
            done.wait()

    thread = threading.Thread(target=holds)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:  # with locks that nobody gives back here
        with Region(recorder, "of the child"):
            recorder.add_hook_facts(child=True)
        recorder.folder.make()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert status == 0
    assert names.read_text() == before


def test_the_lines_of_a_program_that_makes_code_as_it_goes_are_bounded(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_MAX_SITES", 5)
    for number in range(20):
        made: dict[str, object] = {"sys": sys}
        exec(compile("frame = sys._getframe()", f"made{number}.py", "exec"), made)
        assert recorder.site(made["frame"]) == number  # type: ignore[arg-type]
    assert len(recorder.site.__self__._numbers) == 5  # type: ignore[attr-defined]


def test_code_that_a_program_makes_without_end_leaves_few_tallies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_TALLIES", 10)
    recorder = Recorder(tmp_path, "standard")
    for number in range(95):
        recorder.tally(f"read {number}", -1)[0] += 1
    assert len(recorder._tallies) == 5
    recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
    recorder.flush()
    tables = read_source(recorder.directory).tables
    recorder.close()
    assert (tables["values"]["value"].tolist(), tables["calls"]["bytes"].tolist()) == ([95.0], [1] * 95)
