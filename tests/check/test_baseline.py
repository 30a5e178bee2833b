"""A baseline through its file and back, and what an update changes in it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.check.baseline import (
    Baseline,
    as_counted,
    loosened,
    made,
    other_command,
    others,
    previous,
    read,
    sections,
    write,
)
from profiler.check.counters import compare
from profiler.check.keyed import mismatch
from profiler.check.model import FAIL, PASS, Limits
from profiler.core.errors import ProfilerError
from tests.fakes.counting import at, lines_of, one
from tests.recorded.builders import RunBuilder

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
LINES = lines_of(at(9, 20, 'name = "ä"  # …'), at(7, 40, "loss.item()"), at(3, 1, file="lib/a.py"))
COUNTED = (
    one(would_sync=61, h2d=0, h2d_bytes=123_456_789_012, workers={"tokenized": 160}, lines=LINES),
    one(would_sync=62, h2d=0, h2d_bytes=123_456_789_012, workers={"tokenized": 160}, lines=LINES),
)


def baseline(*counted: Any, command: str = "python train.py", **facts: Any) -> Baseline:
    run = RunBuilder(**{"device": "cpu", "preset": "tiny", **facts}).build()
    return made(counted or COUNTED, run, command, at=NOW)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file, section = tmp_path / "counters.json", baseline()
    assert write(file, section)
    assert read(file) == read(file, section.key) == section
    assert (section.steps, section.processes) == (20, 2)
    assert (section.tool, section.updated_at) == (profiler.__version__, "2026-01-02T03:04:05+00:00")
    assert section.counters == {"would_sync": (3.05, 3.1), "h2d": (0, 0), "h2d_bytes": (6172839450.6, 6172839450.6)}
    assert file.read_bytes().endswith(b"}\n")
    assert not file.with_name(".counters.json.new").exists()


def test_it_says_of_the_same_processes_that_nothing_changed(tmp_path: Path) -> None:
    write(tmp_path / "counters.json", baseline())
    base = as_counted(read(tmp_path / "counters.json"))
    assert [one.totals for one in base] == [one.totals for one in COUNTED], "to the last byte"
    found = compare(base, COUNTED, Limits())
    assert {line.state for line in found} == {PASS}
    assert all(line.changes == () for line in found)
    more = tuple(
        dataclasses.replace(one, totals={**one.totals, "h2d_bytes": one.totals["h2d_bytes"] + 1}) for one in base
    )
    assert {line.counter for line in compare(base, more, Limits()) if line.state == FAIL} == {"h2d_bytes"}, (
        "1 byte more"
    )


def test_lines_that_moved_are_known_by_their_text_after_the_file_too(tmp_path: Path) -> None:
    write(tmp_path / "counters.json", baseline())
    moved = lines_of(
        at(10, 20, 'name = "ä"  # …'), at(8, 40, "loss.item()"), at(6, 20, "new"), at(4, 1, file="lib/a.py")
    )
    after = [one(would_sync=500, h2d=0, h2d_bytes=1, lines=moved)] * 2
    found = compare(as_counted(read(tmp_path / "counters.json")), after, Limits())
    (line,) = (line for line in found if (line.counter, line.scope) == ("would_sync", "step"))
    assert [(change.file, change.line) for change in line.changes] == [("train.py", 6)]


def test_a_person_can_review_it(tmp_path: Path) -> None:
    write(tmp_path / "counters.json", baseline())
    lines = (tmp_path / "counters.json").read_text(encoding="utf-8").splitlines()
    assert '        "h2d": 0,' in lines
    assert '        "would_sync": [3.05, 3.1]' in lines, "sorted, the last one without a comma"
    assert '        ["would_sync", "train.py", 7, "main", "item", 2, "loss.item()"],' in lines
    assert any('"name = \\"ä\\"  # …"' in line for line in lines), "as it stands in the program"


def test_the_same_counts_give_the_same_file_on_every_machine(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    write(one, baseline(command="/usr/bin/python3 train.py --data /srv/me/data", cwd="/srv/me"))
    write(other, baseline(command="/ci/.venv/bin/python3 train.py --data /ci/work/data", cwd="/ci/work"))
    assert one.read_bytes() == other.read_bytes()
    assert "/srv" not in one.read_text(encoding="utf-8")


def test_the_same_command_from_anywhere_gives_the_same_file(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    inside = baseline(command="python train.py", cwd=str(project))
    script = f"{project}/train.py"
    for folder, command in (
        (tmp_path, f"python {script}"),
        (tmp_path, "python project/train.py"),
        ("/", f"p {script}"),
    ):
        section = baseline(command=command, cwd=str(folder))
        assert section.command.split()[1] == inside.command.split()[1] == "train.py"


def test_a_command_that_is_no_shells_is_kept_as_it_is() -> None:
    assert baseline(command="python 'train.py").command == "python 'train.py"


def test_another_command_is_said(tmp_path: Path) -> None:
    section = baseline(command="/ci/bin/python train.py --data /ci/work/data", cwd="/ci/work")
    assert other_command(section, "/mine/bin/python train.py --data /mine/data", "/mine") == ""
    said = other_command(section, "/mine/bin/python train.py --data other", "/mine")
    assert said == "the baseline was counted with another command: python train.py --data data"


def test_processes_must_have_taken_as_many_steps() -> None:
    with pytest.raises(ProfilerError, match="processes that took 20 and 21 steps"):
        baseline(one(20, syncs=1), one(21, syncs=1))
    with pytest.raises(ProfilerError, match="took no steps"):
        made((), RunBuilder().build(), "")


# ---------------------------------------------------------------- several sections


def test_sections_of_several_keys_live_in_one_file_in_a_fixed_order(tmp_path: Path) -> None:
    cpu, cuda = baseline(), baseline(one(syncs=20), device="cuda")
    orders = ((cpu, cuda), (cuda, cpu))
    for name, order in zip("ab", orders, strict=True):
        for section in order:
            assert write(tmp_path / name, section)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read(tmp_path / "a", cuda.key) == cuda
    assert sections(tmp_path / "a") == (cpu, cuda)


def test_of_a_key_without_a_section_the_nearest_says_why(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    write(file, baseline())
    write(file, baseline(device="cuda", preset="large"))
    found = read(file, {**baseline().key, "device": "rocm"})
    assert found == baseline()
    (why,) = mismatch(found.key, {**baseline().key, "device": "rocm"})
    assert why.startswith("device: cpu in the baseline against rocm")


def test_an_update_replaces_its_own_section_only(tmp_path: Path) -> None:
    file, cuda = tmp_path / "counters.json", baseline(device="cuda")
    write(file, baseline())
    write(file, cuda)
    new = baseline(one(syncs=1))
    assert previous(file, new.key) == (baseline(), "")
    assert write(file, new)
    assert sections(file) == (new, cuda)


def test_an_update_that_changes_nothing_leaves_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    write(file, baseline())
    before = file.stat()
    later = dataclasses.replace(baseline(), updated_at="2027-01-01T00:00:00+00:00", tool="99", reason="again")
    assert not write(file, later)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_the_reason_is_kept(tmp_path: Path) -> None:
    section = dataclasses.replace(baseline(), reason="one sync more for the new metric \udcff")
    write(tmp_path / "counters.json", section)
    assert read(tmp_path / "counters.json").reason == "one sync more for the new metric ?"


# ---------------------------------------------------------------- what an update loosens


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"syncs": (1, 1)}, {"syncs": (1, 1)}, ()),
        ({"syncs": (2, 2)}, {"syncs": (1, 1)}, ()),
        ({"syncs": (1, 2)}, {"syncs": (1, 1)}, ()),
        ({"syncs": (1, 2)}, {"syncs": (2, 2)}, ()),
        ({"syncs": (1, 1)}, {"syncs": (2, 2)}, ("syncs: 1 -> 2 per step",)),
        ({"syncs": (1, 2)}, {"syncs": (1, 3)}, ("syncs: 1 to 2 -> 1 to 3 per step",)),
        ({"syncs": (2, 2)}, {"syncs": (1, 2)}, ("syncs: always 2 before, 1 to 2 per step now",)),
        ({"syncs": (1, 1)}, {}, ("syncs: 1 per step before, not counted any more",)),
        ({}, {"syncs": (1, 1)}, ()),
        (
            {"h2d": (0, 0), "d2h": (0, 0)},
            {"h2d": (0.05, 0.05), "d2h": (1, 1)},
            ("d2h: 0 -> 1 per step", "h2d: 0 -> 0.05 per step"),
        ),
    ],
)
def test_what_loosens(old: Mapping[str, Any], new: Mapping[str, Any], expected: tuple[str, ...]) -> None:
    whole = baseline()
    assert (
        loosened(
            dataclasses.replace(whole, counters=old, workers={}), dataclasses.replace(whole, counters=new, workers={})
        )
        == expected
    )
    in_workers = loosened(dataclasses.replace(whole, workers=old), dataclasses.replace(whole, workers=new))
    assert in_workers == tuple(line.replace(":", " in loader workers:", 1) for line in expected)


def test_a_0_of_what_needs_a_device_may_go_where_there_is_none() -> None:
    ran_out = {"h2d": (0, 0), "syncs": (1, 1), "would_sync": (0, 0)}
    old = dataclasses.replace(baseline(), counters=ran_out, workers=ran_out)
    new = dataclasses.replace(old, counters={}, workers={"would_sync_in_loader": (9, 9)})
    assert loosened(old, new) == (
        "syncs: 1 per step before, not counted any more",
        "would_sync: 0 per step before, not counted any more",
        "syncs in loader workers: 1 per step before, not counted any more",
    )
    cuda = {"device": "cuda"}
    lost = loosened(dataclasses.replace(old, key=cuda), dataclasses.replace(new, key=cuda))
    assert "h2d: 0 per step before, not counted any more" in lost


def test_what_gates_nothing_loosens_nothing() -> None:
    old = dataclasses.replace(baseline(), workers={"would_sync": (4, 4)}, counters={"would_sync_in_loader": (1, 1)})
    more = {"would_sync_in_loader": (8, 9)}
    assert loosened(old, dataclasses.replace(old, workers=more, counters=more)) == ()


def test_a_file_from_before_calls_the_waits_of_workers_by_their_old_name(tmp_path: Path) -> None:
    lines = lines_of(at(3, 8, "x.item()", file="data.py"))
    section = dataclasses.replace(baseline(), workers={"would_sync": (8, 8)}, worker_lines=lines)
    write(tmp_path / "counters.json", section)
    old = as_counted(read(tmp_path / "counters.json"))
    assert old[0].workers == {"would_sync_in_loader": 160}
    assert set(old[0].worker_lines) == {("would_sync_in_loader", "data.py", "main", "item")}
    now = [one(would_sync=1, h2d=0, h2d_bytes=1, workers={"would_sync_in_loader": 500})] * 2
    assert {line.state for line in compare(old, now, Limits())} == {PASS}


# ---------------------------------------------------------------- what an update leaves


def test_sections_that_an_update_leaves_are_said_and_whether_their_script_is_gone(tmp_path: Path) -> None:
    file, here = tmp_path / "counters.json", tmp_path / "here"
    here.mkdir()
    (here / "train.py").touch()
    written = baseline(device="cuda")
    write(file, written)
    assert others(file, written, str(here)) == ()
    write(file, baseline())
    write(file, baseline(command="python old.py --fast", device="host"))
    write(file, baseline(command="python -m mine", preset="large"))
    write(file, baseline(command="python 'odd.py", preset="odd"))
    gone = "there is no old.py any more: if it was renamed, delete that section"
    assert others(file, written, str(here)) == (
        "left as it was: python -m mine (device cpu, preset large)",
        "left as it was: python 'odd.py (device cpu, preset odd)",
        "left as it was: python train.py (device cpu)",
        f"left as it was: python old.py --fast (device host); {gone}",
    )


def test_a_section_may_be_deleted_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    write(file, baseline())
    write(file, baseline(device="cuda"))
    value = json.loads(file.read_text(encoding="utf-8"))
    del value["sections"][0]
    file.write_text(json.dumps(value), encoding="utf-8")
    assert sections(file) == (baseline(device="cuda"),)


# ---------------------------------------------------------------- laid out by others


def test_another_layout_of_the_same_content_is_read(tmp_path: Path) -> None:
    """What formatters, version control and editors do to a file: line ends, order, indentation, a byte order mark."""
    file, section = tmp_path / "counters.json", baseline()
    write(file, section)
    text = file.read_text(encoding="utf-8")
    value = json.loads(text)
    mixed = json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    for other in (
        text.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + text.encode(),
        json.dumps(value).encode(),
        json.dumps(mixed, indent=8).encode(),
        json.dumps(value, ensure_ascii=False, sort_keys=True, indent="\t").encode(),
        text.replace('"h2d": 0,', '"h2d": 0.0,').encode(),
        text.rstrip("\n").encode(),
    ):
        file.write_bytes(other)
        assert read(file) == section, other[:60]
